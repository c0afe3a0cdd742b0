"""`diptych migrate`: a file on the legacy `stage_args` schema -> the `stages` schema, with a reason for each drop.

Interpolations are carried over as written, except that `oc.env` for a number, a flag or devices becomes a resolver of
ours: there it gives text, or fails, depending on what is set.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from services.stages.findings import Refused, one_line, shown
from services.stages.pairing import resolve_pair
from services.stages.schema import STAGE_CONFIG, annotation_type, nearest, nested_fields, stage_fields, top_fields
from services.stages.source_reader import all_fields_of
from services.stages.topology import StageKind, stage_kinds
from services.stages.yaml_tree import read_tree
from services.wire.errors import ConfigError

_PIPELINE = "the pipeline itself declares this"
_DROPPED = {
    "engine_input_source": "the pipeline itself declares where a stage's input comes from",
    "stage_type": _PIPELINE,
    "is_comprehension": _PIPELINE,
    "worker_type": _PIPELINE,
    "worker_cls": "the platform chooses the worker",
    "process": "every stage runs as vLLM-Omni needs it",
    "enabled": "there is no switch any more",
    "defaults": "window size and in-flight limits are not settings any more",
    "edges": "the pipeline itself declares its edges",
    "model_config": "not a stage key any more",
}
_ENV = re.compile(r"\$\{oc\.env:\s*(\w+)\s*(?:,\s*(.*?)\s*)?\}")
_DECODED_ENV = re.compile(r"\$\{oc\.decode:\s*\$\{oc\.env:\s*(\w+)\s*(?:,\s*([^{}]*?)\s*)?\}\s*\}")


@dataclass(slots=True)
class _Section:
    """Keys to write, and comments on what is not written."""

    values: dict[str, Any] = field(default_factory=dict)
    comments: list[str] = field(default_factory=list)

    def drop(self, name: str, why: str) -> None:
        self.comments.append(f"dropped {one_line(name, 60)}: {why}")


def migrate(path: Path) -> str:
    """The text of the new file.

    Raises `ConfigError` if the file cannot be read, is not on the `stage_args` schema, or names a stage that GLM-Image
    does not have.
    """
    try:
        old = read_tree(path).plain()
    except Refused as refused:
        raise ConfigError(str(refused)) from refused
    entries = old.get("stage_args")
    if not isinstance(entries, list):
        raise ConfigError(f"{path}: has no stage_args list, so there is nothing to migrate; run `diptych check` on it")
    stages = [_stage(path, entry) for entry in entries]
    ids = [section.values["stage_id"] for section in stages]
    if len(ids) != len(set(ids)):
        raise ConfigError(f"{path}: stage_args: stage_id {ids[0]} is given twice; merge the two entries")
    top = _top(old)
    _device_notes(top, stages)
    return (
        "\n".join([f"# Migrated from {one_line(path.name, 100)} by `diptych migrate`.", *_written(top, stages)]) + "\n"
    )


def _top(old: dict[str, Any]) -> _Section:
    top = _Section({"model": "${env.str:MODEL,zai-org/GLM-Image}", "async_chunk": False})
    runtime = old.get("runtime")
    for name, value in runtime.items() if isinstance(runtime, dict) else ():
        if name == "connectors" and isinstance(value, dict):
            top.values["connectors"] = value
        else:
            top.drop(f"runtime.{name}", _DROPPED.get(name, "not a setting any more"))
    for name, value in old.items():
        if name in ("stage_args", "runtime"):
            continue
        if name == "async_chunk" and value is not False:
            top.drop("async_chunk", "GLM-Image has no chunk producer")
        elif name in top_fields():
            top.values[name] = value
        else:
            top.drop(name, f"no key of a file any more{nearest(name, top_fields())}")
    return top


def _stage(path: Path, entry: Any) -> _Section:
    found = entry.get("stage_id") if isinstance(entry, dict) else None
    kind = stage_kinds().get(found) if isinstance(found, int) and not isinstance(found, bool) else None
    if kind is None:
        raise ConfigError(f"{path}: stage_args: stage_id must be 0 (ar) or 1 (dit), got {shown(found)}")
    section = _Section({"stage_id": kind.stage_id})
    engine = entry.get("engine_args")
    flag = engine.get("async_scheduling") if isinstance(engine, dict) else None
    for name, value in entry.items():
        if name == "stage_id":
            continue
        if name in ("engine_args", "runtime") and isinstance(value, dict):
            for inner, setting in value.items():
                _setting(section, kind, inner, setting, flag)
        else:
            _setting(section, kind, name, value, flag)
    return section


def _setting(section: _Section, kind: StageKind, name: str, value: Any, flag: Any) -> None:
    known = stage_fields(kind.execution_type)
    declared = {f.name for f in all_fields_of(STAGE_CONFIG, "StagePipelineConfig")}
    if name == "max_batch_size":
        section.values.setdefault("max_num_seqs", value)
        section.comments.append("max_batch_size is called max_num_seqs now")
    elif name == "scheduler_cls":
        section.drop(name, _scheduler_reason(kind, value, flag))
    elif name == "num_replicas" and value != 1:
        section.drop(name, "one service is one replica; start another service")
    elif name == "model":
        section.drop(name, "the checkpoint is named once, at the top (MODEL)")
    elif name in _DROPPED or name in declared:
        section.drop(name, _DROPPED.get(name, _PIPELINE))
    elif name not in known:
        section.drop(name, f"no key of the {kind.role} stage in this version{nearest(name, known)}")
    else:
        section.values[name] = _kept(section, kind, name, value)


def _scheduler_reason(kind: StageKind, pinned: Any, flag: Any) -> str:
    pair = resolve_pair(kind.execution_type, flag if isinstance(flag, bool) else None)
    if pair.scheduler_cls is None or pinned == pair.scheduler_cls:
        return "vLLM-Omni chooses the scheduler by itself"
    mode = "on" if pair.async_scheduling else "off"
    name = one_line(str(pinned).rpartition(".")[2], 80)
    return f"{name} with async scheduling {mode} kills the engine at the first request; vLLM-Omni chooses"


def _kept(section: _Section, kind: StageKind, name: str, value: Any) -> Any:
    if name == "devices":
        return _devices(value)
    inside = nested_fields(kind.execution_type, name)
    if inside and isinstance(value, dict):
        for unknown in [key for key in value if key not in inside]:
            section.drop(f"{name}.{unknown}", f"no such key in this version{nearest(unknown, inside)}")
        return {key: _typed(item, inside[key].annotation) for key, item in value.items() if key in inside}
    return _typed(value, stage_fields(kind.execution_type)[name].annotation)


def _devices(value: Any) -> Any:
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str):
        return text
    text = _DECODED_ENV.sub(r"${oc.env:\1,\2}", text)
    found = _ENV.fullmatch(text.strip())
    if not found:
        return text
    default = (found[2] or "").strip("'\"")
    return f"${{env.devices:{found[1]},'{default}'}}" if default else f"${{env.devices:{found[1]}}}"


def _typed(value: Any, annotation: str) -> Any:
    """A value whose `oc.env` gives the type that the key wants."""
    kind = str(annotation_type(annotation))
    for resolver in ("bool", "int", "float"):
        if isinstance(value, str) and resolver in kind:
            found = _DECODED_ENV.fullmatch(value.strip()) or _ENV.fullmatch(value.strip())
            if found:
                default = (found[2] or "").strip("'\"")
                return f"${{env.{resolver}:{found[1]},{default}}}" if default else f"${{env.{resolver}:{found[1]}}}"
    return value


def _device_notes(top: _Section, stages: list[_Section]) -> None:
    for section in stages:
        if "devices" not in section.values:
            section.values["devices"] = "0"
            section.comments.append("devices was not written; 0 is a guess")
    claimed = [section.values["devices"] for section in stages]
    if len(claimed) == 2 and claimed[0] == claimed[1]:
        top.values["share_devices"] = True
        top.comments.append("share_devices is true because both stages name the same devices")


def _written(top: _Section, stages: list[_Section]) -> Iterator[str]:
    yield from (f"# {one_line(comment)}" for comment in top.comments)
    yield from _dumped(top.values)
    yield "stages:"
    for section in stages:
        yield from (f"  # {one_line(comment)}" for comment in section.comments)
        lines = _dumped(section.values)
        yield from (f"  {'- ' if i == 0 else '  '}{line}" for i, line in enumerate(lines))


def _dumped(values: dict[str, Any]) -> list[str]:
    """Block style outside, and inside a mapping or list of plain values flow style."""
    lines: list[str] = []
    for name, value in values.items():
        style = None if isinstance(value, dict | list) and value else False
        options: dict[str, Any] = {"sort_keys": False, "allow_unicode": True, "width": 1_000_000}
        text = str(yaml.safe_dump({name: value}, default_flow_style=style, **options))
        lines += text.rstrip("\n").split("\n")
    return lines
