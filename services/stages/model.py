"""What a stage configuration resolves to: literal, typed, and ready to be handed to vLLM-Omni."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from services.stages.findings import Finding
from services.stages.literal import Source
from services.stages.pairing import SchedulerPair

Role = Literal["ar", "dit", "all"]


@dataclass(frozen=True, slots=True)
class ConnectorSettings:
    """The `connectors:` entry of the NIXL hand-off. extra: its literal settings; empty if the file names none."""

    name: str = "NixlConnector"
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ResolvedStage:
    """One stage, literal.

    devices: logical device indices, as text ("0,1"). engine_args: the keys of vLLM-Omni's deploy schema for this
    stage, without `stage_id`; pipeline-wide keys of the file are in it. platforms: what the file changes for this
    stage on a named platform. sources: where each key came from.
    """

    stage_id: int
    role: Literal["ar", "dit"]
    part: str
    model: str
    devices: str
    tensor_parallel_size: int
    max_num_seqs: int
    scheduler: SchedulerPair
    engine_args: dict[str, Any]
    default_sampling_params: dict[str, Any]
    platforms: dict[str, dict[str, Any]] = field(default_factory=dict)
    sources: dict[str, Source] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Deployment:
    """A checked stage configuration. A stage that the role does not run is None."""

    path: Path
    ar: ResolvedStage | None
    dit: ResolvedStage | None
    connector: ConnectorSettings
    findings: tuple[Finding, ...] = ()


def literal_document(stage: ResolvedStage, pipeline: str) -> dict[str, Any]:
    """The deploy document for this stage alone, as stage 0 of the registered one-stage `pipeline`."""
    document: dict[str, Any] = {"pipeline": pipeline, "async_chunk": False}
    document["stages"] = [{"stage_id": 0, **stage.engine_args}]
    if stage.platforms:
        document["platforms"] = {
            name: {"stages": [{"stage_id": 0, **block}]} for name, block in stage.platforms.items()
        }
    return document


def write_literal(stage: ResolvedStage, path: Path, *, pipeline: str) -> None:
    """Write `literal_document` as YAML; any `$` in it is escaped, so that no reader resolves it again."""
    text = yaml.safe_dump(_escaped(literal_document(stage, pipeline)), sort_keys=False, allow_unicode=True)
    path.write_text(text, encoding="utf-8")


def _escaped(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _escaped(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_escaped(item) for item in value]
    return value.replace("${", "\\${") if isinstance(value, str) else value
