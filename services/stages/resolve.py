"""A stage configuration file -> a `Deployment`: read, merged, made literal, checked."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.stages.connectors import check_references, read_connectors
from services.stages.findings import Finding, Findings, Level, Place, Refused, shown
from services.stages.inherit import load_merged
from services.stages.keys import check_stage_keys, check_top_keys
from services.stages.literal import Literals
from services.stages.model import ConnectorSettings, Deployment, ResolvedStage, Role
from services.stages.pairing import check_pairing
from services.stages.parallel import check_devices, check_sharing, parallel_size
from services.stages.rules import check_model_fit, check_stage_rules, check_top_rules, model_of
from services.stages.sections import platform_views, stage_views
from services.stages.view import StageView
from services.stages.yaml_tree import Node
from services.wire.errors import ConfigError

# Kept from vLLM-Omni: what Diptych sets by other means, and the wiring that its own hand-off takes the place of.
_KEPT_BACK = frozenset({"model", "num_replicas", "input_connectors", "output_connectors", "async_chunk"})


@dataclass(frozen=True, slots=True)
class Inspection:
    """The outcome of a check: what could be resolved (None if the file could not even be read), and every finding."""

    deployment: Deployment | None
    findings: tuple[Finding, ...]

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that stop a start."""
        return tuple(item for item in self.findings if item.level is Level.ERROR)


def resolve(path: Path, *, role: Role, environ: Mapping[str, str]) -> Deployment:
    """The checked deployment of `path` for the stages that `role` runs.

    Raises `ConfigError` for the first error, in one line: the file with its line, the key, what is wrong, the mend.
    """
    inspection = inspect(path, role=role, environ=environ)
    if inspection.errors or inspection.deployment is None:
        first = inspection.errors[0]
        subject = f"{first.key}: " if first.key else ""
        raise ConfigError(f"{first.place}: {subject}{first.message}", param=first.key or None)
    return inspection.deployment


def inspect(path: Path, *, role: Role, environ: Mapping[str, str]) -> Inspection:
    """Everything that a check of `path` finds. Never raises for what is in the file or the environment."""
    findings = Findings()
    deployment = None
    try:
        root = load_merged(path, lambda node: _base_path(node, environ))
        deployment = _deployment(path, root, Literals(root, environ, findings), role, findings)
    except Refused as refused:
        findings.error(refused.place, refused.key, refused.message)
    except ConfigError as error:  # the schema, or the checkpoint, cannot be read
        findings.error(Place(path), "", error.message)
    return Inspection(deployment, tuple(findings.items))


def _base_path(node: Node, environ: Mapping[str, str]) -> str:
    """`base_config` as a literal path."""
    findings = Findings()
    name = Literals(Node({"base_config": node}, node.place), environ, findings).value(("base_config",))
    if findings.errors:
        raise Refused(node.place, "base_config", findings.errors[0].message)
    if not isinstance(name, str) or not name:
        raise Refused(node.place, "base_config", f"must be the path of a file, got {shown(name)}")
    return name


def _deployment(path: Path, root: Node, literals: Literals, role: Role, findings: Findings) -> Deployment:
    check_top_keys(root, literals.value, findings)
    check_top_rules(root, literals, findings)
    connector = read_connectors(root, literals, findings)
    views = stage_views(root, role, literals, findings)
    stages = {name: _stage(view, root, literals, findings) for name, view in views.items()}
    _check_node(views, root, literals, findings)
    return _assemble(path, stages, connector, findings)


def _assemble(
    path: Path, stages: Mapping[str, ResolvedStage], connector: ConnectorSettings, findings: Findings
) -> Deployment:
    return Deployment(path, stages.get("ar"), stages.get("dit"), connector, tuple(findings.items))


def _stage(view: StageView, root: Node, literals: Literals, findings: Findings) -> ResolvedStage:
    """Check one stage, on every platform, and make it literal."""
    values, sampling = view.values, view.values.get("default_sampling_params")
    connectors = root.value.get("connectors") if isinstance(root.value, dict) else None
    names = connectors.value if connectors and isinstance(connectors.value, dict) else {}
    check_stage_keys(view, findings)
    check_references(view, frozenset(names), findings)
    model = model_of(view, root, literals, findings)
    scheduler = check_pairing(view, None, findings)
    platforms: dict[str, dict[str, Any]] = {}
    for platform, own in platform_views(view.kind, root, literals, findings).items():
        check_stage_keys(own, findings)
        overlaid = view.overlaid(own)
        check_pairing(overlaid, platform, findings)
        check_devices(overlaid, findings)
        check_model_fit(overlaid, model, literals.environ, findings)
        platforms[platform] = _handed_on(own.values)
    check_devices(view, findings)
    check_stage_rules(view, findings)
    check_model_fit(view, model, literals.environ, findings)
    return ResolvedStage(
        stage_id=view.kind.stage_id,
        role=view.kind.role,
        part=view.kind.part,
        model=model or "",
        devices=str(values.get("devices", "")),
        tensor_parallel_size=parallel_size(values, "tensor_parallel_size"),
        max_num_seqs=parallel_size(values, "max_num_seqs"),
        scheduler=scheduler,
        engine_args=_handed_on(values),
        default_sampling_params=dict(sampling) if isinstance(sampling, dict) else {},
        platforms=platforms,
        sources=view.sources | {f"{outer}.{inner}": src for (outer, inner), src in view.inner_sources.items()},
    )


def _handed_on(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in _KEPT_BACK}


def _check_node(views: Mapping[str, StageView], root: Node, literals: Literals, findings: Findings) -> None:
    """Devices that both stages claim, here and on each platform."""
    if set(views) != {"ar", "dit"} or literals.value(("placement",)) == "separate_nodes":
        return
    if literals.value(("share_devices",)) is True:
        return
    check_sharing(views["ar"], views["dit"], findings)
    silent = Findings()  # what is wrong inside the blocks has been said
    ar, dit = (platform_views(views[name].kind, root, literals, silent) for name in ("ar", "dit"))
    for platform in sorted(ar.keys() & dit.keys()):
        check_sharing(views["ar"].overlaid(ar[platform]), views["dit"].overlaid(dit[platform]), findings)
