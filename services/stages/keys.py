"""Every key of a file against the schema: unknown names with the nearest known one, and values of the wrong type."""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from services.stages.findings import Findings, Key, Place, shown
from services.stages.literal import Source
from services.stages.schema import (
    annotation_type,
    nearest,
    nested_fields,
    platform_names,
    stage_fields,
    top_fields,
)
from services.stages.source_reader import UpstreamField
from services.stages.view import StageView
from services.stages.yaml_tree import Node

# Counts and sizes that an engine would only refuse much later, after loading the weights.
_ONE_OR_MORE = frozenset(
    {
        "tensor_parallel_size",
        "pipeline_parallel_size",
        "data_parallel_size",
        "sequence_parallel_size",
        "ulysses_degree",
        "ring_degree",
        "allgather_degree",
        "cfg_parallel_size",
        "max_num_seqs",
        "max_num_batched_tokens",
        "kv_cache_memory_bytes",
        "num_inference_steps",
        "height",
        "width",
    }
)
_NESTED = ("default_sampling_params", "parallel_config", "compilation_config", "profiler_config")
_WORDS = {
    int: "a whole number",
    bool: "true or false",
    float: "a number",
    str: "text",
    dict: "a mapping",
    list: "a list",
}


@cache
def _adapter(which: str) -> TypeAdapter[Any]:
    """A strict model of the keys of a stage kind, of something nested in one (`kind.key`), or of the top level."""
    kind, _, key = which.partition(".")
    fields = top_fields() if which == "top" else nested_fields(kind, key) if key else stage_fields(kind)
    typed = {name: _constrained(field) for name, field in (fields or {}).items()}
    make: Any = TypedDict  # the names are only known now; a field may have any name, even `model_config`
    model = make("Keys", typed, total=False)
    model.__pydantic_config__ = ConfigDict(strict=True, extra="forbid", arbitrary_types_allowed=True)
    return TypeAdapter(model)


def _constrained(field: UpstreamField) -> Any:
    if field.name in _ONE_OR_MORE:
        return Annotated[int, Field(ge=1)]
    if field.name == "gpu_memory_utilization":
        return Annotated[float, Field(gt=0, le=1)]
    return annotation_type(field.annotation)


def _problems(which: str, values: Mapping[str, Any]) -> dict[str, str]:
    """For each key that is wrong, pydantic's word for it; `extra_forbidden` for an unknown one."""
    try:
        _adapter(which).validate_python(dict(values))
    except ValidationError as error:
        found: dict[str, str] = {}
        for item in error.errors(include_url=False, include_input=False):
            if item["loc"]:
                found.setdefault(str(item["loc"][0]), "unknown" if item["type"] == "extra_forbidden" else item["msg"])
        return {name: found[name] for name in values if name in found}  # in the file's order
    return {}


def check_stage_keys(view: StageView, findings: Findings) -> None:
    """Unknown keys and wrong types of one stage, and of the mappings in it that the schema knows."""
    kind = view.kind.execution_type
    fields = stage_fields(kind)
    for name, problem in _problems(kind, view.values).items():
        if name == "scheduler_cls":
            continue  # pairing.py says what to do about it
        if problem == "unknown":
            _unknown(findings, view, name, f"vLLM-Omni has no such key for the {view.kind.role} stage", fields)
        else:
            message = mismatch(fields[name], view.values[name], problem, view.sources.get(name))
            findings.error(view.place_of(name), view.key_of(name), message)
    for name in _NESTED:
        inside, known = view.values.get(name), nested_fields(kind, name)
        if isinstance(inside, dict) and known:
            _check_nested(view, name, inside, known, findings)


def _unknown(findings: Findings, view: StageView, name: str, what: str, known: Mapping[str, UpstreamField]) -> None:
    elsewhere = "; it belongs at the top of the file" if name in top_fields() else ""
    findings.error(view.place_of(name), view.key_of(name), f"{what}{elsewhere or nearest(name, known)}")


def _check_nested(
    view: StageView, outer: str, inside: dict[str, Any], known: Mapping[str, UpstreamField], findings: Findings
) -> None:
    for name, problem in _problems(f"{view.kind.execution_type}.{outer}", inside).items():
        key = (*view.key_of(outer), name)
        source = view.inner_sources.get((outer, name))
        place = source.place if source else view.place_of(outer)
        if problem == "unknown":
            findings.error(place, key, f"{outer} of the {view.kind.role} stage has no such key{nearest(name, known)}")
        else:
            findings.error(place, key, mismatch(known[name], inside[name], problem, source))


def mismatch(field: UpstreamField, value: Any, problem: str, source: Source | None) -> str:
    """What a value must be, what it is, and the mend for the mistakes that are made most."""
    text = f"must be {words(annotation_type(field.annotation))}, got {shown(value)}"
    if not isinstance(value, str):
        hint = "; write it in quotes" if field.name == "devices" else f" ({problem})"
        return text + ("" if "valid" in problem and not isinstance(value, int) else hint)
    kind = annotation_type(field.annotation)
    wants = {kind, *get_args(kind)} if kind in _WORDS or get_origin(kind) is not Literal else set()
    resolver = next((name for plain, name in ((bool, "bool"), (int, "int"), (float, "float")) if plain in wants), None)
    if resolver and source is not None and source.variables:
        return f"{text}; oc.env always gives text: write ${{env.{resolver}:{source.variables[0]},DEFAULT}}"
    return f"{text}; remove the quotes" if resolver else text


def words(kind: Any) -> str:
    """A type in words."""
    if kind in _WORDS:
        return _WORDS[kind]
    origin, args = get_origin(kind), [arg for arg in get_args(kind) if arg is not type(None)]
    if origin is Literal:
        return "one of " + ", ".join(str(arg) for arg in args)
    if origin is list:
        return "a list of " + {"a whole number": "whole numbers", "text": "texts"}.get(words(args[0]), "values")
    if origin in _WORDS:
        return _WORDS[origin]
    return " or ".join(words(arg) for arg in args) if args else "of another type"


def check_top_keys(root: Node, literals_of: Any, findings: Findings) -> None:
    """Unknown keys and wrong types at the top of the file, and unknown platforms."""
    entries = root.value if isinstance(root.value, dict) else {}
    known = top_fields()
    if "stage_args" in entries:
        place = entries["stage_args"].place
        findings.error(place, "stage_args", "the old schema, which applies no defaults: run `diptych migrate FILE`")
    values = {name: literals_of((name,)) for name in entries if name not in ("stages", "platforms", "stage_args")}
    for name, problem in _problems("top", {k: v for k, v in values.items() if v is not None}).items():
        place = entries[name].place
        if problem != "unknown":
            findings.error(place, name, mismatch(known[name], values[name], problem, None))
        elif any(name in stage_fields(kind) for kind in ("llm_ar", "diffusion")):
            findings.error(place, name, "belongs under a stage, not at the top of the file")
        elif "stage_args" not in entries or name != "runtime":
            findings.error(place, name, f"no such key at the top of a file{nearest(name, known)}")
    for name, needed in (("stages", list), ("platforms", dict)):
        node = entries.get(name)
        if node is not None and node.value is not None and not isinstance(node.value, needed):
            findings.error(node.place, name, f"must be {_WORDS[needed]}, got {shown(node.plain())}")


def check_platform_name(name: str, place: Place, key: Key, findings: Findings) -> None:
    """A platform that vLLM-Omni does not have is a block that never applies."""
    if name not in platform_names():
        findings.error(place, key, f"no such platform, so this never applies{nearest(name, platform_names())}")
