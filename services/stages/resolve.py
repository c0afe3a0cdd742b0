"""A stage configuration file -> a `Deployment`: read, merged, made literal, checked."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.stages.findings import Finding, Findings, Place, shown
from services.stages.inherit import load_merged
from services.stages.literal import Literals
from services.stages.model import ConnectorSettings, Deployment, ResolvedStage, Role
from services.stages.pairing import resolve_pair
from services.stages.topology import StageKind, stage_kinds
from services.stages.view import StageView, view_stage
from services.stages.yaml_tree import Node
from services.wire.errors import ConfigError

# Not for vLLM-Omni: Diptych's own keys, and the wiring that its NIXL hand-off takes the place of.
_NOT_HANDED_ON = frozenset({"devices", "num_replicas", "input_connectors", "output_connectors"})


@dataclass(frozen=True, slots=True)
class Inspection:
    """The outcome of a check: what could be resolved, and every finding."""

    deployment: Deployment | None
    findings: tuple[Finding, ...]


def resolve(path: Path, *, role: Role, environ: Mapping[str, str]) -> Deployment:
    """The checked deployment of `path` for the stages that `role` runs.

    Raises `ConfigError` for the first error, in one line: the file with its line, the key, what is wrong, the mend.
    """
    inspection = inspect(path, role=role, environ=environ)
    first = next((item for item in inspection.findings if item.level == "error"), None)
    if first is not None or inspection.deployment is None:
        message = str(first).replace(" error:", "", 1) if first else f"{path}: nothing to run"
        raise ConfigError(message, param=first.key if first else None)
    return inspection.deployment


def inspect(path: Path, *, role: Role, environ: Mapping[str, str]) -> Inspection:
    """Everything that a check of `path` finds. Never raises for what is in the file or the environment."""
    findings = Findings()
    try:
        root = load_merged(path, lambda node: _base_path(node, environ))
        literals = Literals(root, environ, findings)
        deployment = _deployment(path, root, literals, role, findings)
    except ConfigError as error:
        findings.error(Place(path), "", error.message.removeprefix(f"{path}: "))
        deployment = None
    return Inspection(deployment, tuple(findings.items))


def _base_path(node: Node, environ: Mapping[str, str]) -> str:
    """`base_config` as a literal path."""
    findings = Findings()
    name = Literals(Node({"base_config": node}, node.place), environ, findings).value(("base_config",))
    if findings.errors:
        raise ConfigError(str(findings.errors[0]))
    if not isinstance(name, str) or not name:
        raise ConfigError(f"{node.place}: base_config: must be the path of a file, got {shown(name)}")
    return name


def _deployment(path: Path, root: Node, literals: Literals, role: Role, findings: Findings) -> Deployment:
    kinds = {kind.role: kind for kind in stage_kinds().values()}
    views = {name: _view(root, kinds[name], literals, findings) for name in ("ar", "dit") if role in (name, "all")}
    model = literals.value(("model",))
    stages = {name: _stage(view, model, root, literals) for name, view in views.items() if view is not None}
    return Deployment(path, stages.get("ar"), stages.get("dit"), _connector(literals), tuple(findings.items))


def _view(root: Node, kind: StageKind, literals: Literals, findings: Findings) -> StageView | None:
    stages = root.value.get("stages") if isinstance(root.value, dict) else None
    entries = stages.value if stages is not None and isinstance(stages.value, list) else []
    for i, entry in enumerate(entries):
        found = entry.value.get("stage_id") if isinstance(entry.value, dict) else None
        if found is not None and found.value == kind.stage_id:
            return view_stage(entry, ("stages", i), kind, literals, findings)
    findings.error(root.place, "stages", f"no stage with stage_id {kind.stage_id} (the {kind.role} stage); add it")
    return None


def _stage(view: StageView, model: Any, root: Node, literals: Literals) -> ResolvedStage:
    values = view.values
    return ResolvedStage(
        stage_id=view.kind.stage_id,
        role=view.kind.role,
        part=view.kind.part,
        model=model if isinstance(model, str) else "",
        devices=values.get("devices", "0"),
        tensor_parallel_size=values.get("tensor_parallel_size", 1),
        max_num_seqs=values.get("max_num_seqs", 1),
        scheduler=resolve_pair(view.kind.execution_type, values.get("async_scheduling")),
        engine_args={k: v for k, v in values.items() if k not in _NOT_HANDED_ON - {"devices"}},
        default_sampling_params=values.get("default_sampling_params", {}),
        sources=view.sources,
    )


def _connector(literals: Literals) -> ConnectorSettings:
    found = literals.value(("connectors",))
    for block in found.values() if isinstance(found, dict) else ():
        if isinstance(block, dict) and block.get("name") == "NixlConnector":
            return ConnectorSettings(extra=block.get("extra") or {})
    return ConnectorSettings()
