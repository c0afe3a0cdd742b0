"""A check, as a table for people and as JSON for programs."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from services.stages.findings import Finding, Level, one_line
from services.stages.literal import Source
from services.stages.model import Deployment, ResolvedStage, Role
from services.stages.resolve import Inspection


def as_json(inspection: Inspection, path: Path, role: Role) -> dict[str, Any]:
    """Everything of a check in plain types."""
    deployment = inspection.deployment
    return {
        "file": str(path),
        "role": role,
        "ok": not inspection.errors,
        "stages": [_stage_json(stage) for stage in _stages(deployment)],
        "connector": {"name": deployment.connector.name, "extra": deployment.connector.extra} if deployment else None,
        "findings": [_finding_json(finding) for finding in inspection.findings],
    }


def _stages(deployment: Deployment | None) -> list[ResolvedStage]:
    return [stage for stage in (deployment.ar, deployment.dit) if stage] if deployment else []


def _stage_json(stage: ResolvedStage) -> dict[str, Any]:
    return {
        "stage_id": stage.stage_id,
        "role": stage.role,
        "part": stage.part,
        "model": stage.model,
        "devices": stage.devices,
        "tensor_parallel_size": stage.tensor_parallel_size,
        "max_num_seqs": stage.max_num_seqs,
        "scheduler": {"cls": stage.scheduler.scheduler_cls, "async_scheduling": stage.scheduler.async_scheduling},
        "engine_args": stage.engine_args,
        "platforms": stage.platforms,
        "sources": {name: _source_json(source) for name, source in stage.sources.items()},
    }


def _source_json(source: Source) -> dict[str, Any]:
    place = source.place
    return {
        "kind": source.kind,
        "file": str(place.file),
        "line": place.line,
        "variables": list(source.variables),
    }


def _finding_json(finding: Finding) -> dict[str, Any]:
    place = finding.place
    return {
        "level": finding.level.value,
        "file": str(place.file),
        "line": place.line,
        "key": finding.key,
        "message": finding.message,
    }


def as_text(inspection: Inspection, path: Path, role: Role) -> str:
    """The resolved picture, then the findings, then the verdict."""
    lines = list(_picture(inspection.deployment)) if inspection.deployment and _stages(inspection.deployment) else []
    lines += [str(finding) for finding in inspection.findings]
    count = len(inspection.errors)
    warnings = sum(item.level is Level.WARNING for item in inspection.findings)
    verdict = f"{count} error{'s' * (count != 1)}, {warnings} warning{'s' * (warnings != 1)}"
    return "\n".join([*lines, f"{path} (role {role}): {verdict}"])


def _picture(deployment: Deployment) -> Iterator[str]:
    stages = _stages(deployment)
    yield from _table(
        ("STAGE", "MODEL PART", "DEVICES", "TP", "SEQS", "SCHEDULER", "CONNECTOR", "MODEL"),
        [
            (
                f"{stage.stage_id} {stage.role}",
                stage.part,
                stage.devices or "?",
                str(stage.tensor_parallel_size),
                str(stage.max_num_seqs),
                str(stage.scheduler),
                deployment.connector.name,
                stage.model,
            )
            for stage in stages
        ],
    )
    yield ""
    yield from _table(("SETTING", "VALUE", "FROM"), [row for stage in stages for row in _provenance(stage)])
    yield ""


def _provenance(stage: ResolvedStage) -> Iterator[tuple[str, str, str]]:
    for name, value in {"model": stage.model, **stage.engine_args}.items():
        inner = value.items() if isinstance(value, dict) else ()
        rows = [(f"{name}.{key}", item) for key, item in inner] or [(name, value)]
        for full, item in rows:
            source = stage.sources.get(full) or stage.sources.get(name)
            yield f"{stage.role}.{full}", _yaml(item), str(source) if source else "-"


def _yaml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return one_line(value, 80) if isinstance(value, str) else one_line(json.dumps(value), 80)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    for row in (head, *rows):
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
