"""`diptych check --explain KEY`: what a key does, its type and its default, in this version of vLLM-Omni."""

import re
from collections.abc import Iterator, Mapping

from services.stages.schema import nearest, nested_fields, nixl_extra_keys, stage_fields, top_fields
from services.stages.source_reader import UpstreamField, all_fields_of, origin_of
from services.stages.topology import stage_kinds
from services.wire.errors import ConfigError

Class = tuple[str, str]
"""Module and name."""

# What upstream's source does not say, or says for another purpose. Everything else is quoted from the source.
NOTES: Mapping[str, str] = {
    "stage_id": "0 is the AR stage, 1 the DiT stage.",
    "devices": "Device numbers within what this process may see, as text. As many as the parallel sizes need.",
    "tensor_parallel_size": "Over how many devices each layer is split. Must divide the checkpoint's heads and FFN.",
    "max_num_seqs": "How many requests run as one batch. The DiT joins requests of one size, and gains little by it.",
    "async_scheduling": "Whether the scheduler plans a step ahead. Chooses the scheduler class; unset means on.",
    "scheduler_cls": "Never written: vLLM-Omni chooses the class that fits async_scheduling.",
    "enable_prefix_caching": "Off for GLM-Image: a cache hit loses the tokens of the condition image.",
    "enforce_eager": "True: no graphs, no compilation. The DiT would capture a graph for every image size.",
    "default_sampling_params": "Used where a request does not say otherwise; the services set most of them themselves.",
    "kv_cache_memory_bytes": "The KV cache's size in bytes, instead of a share of the memory. The way to go on a CPU.",
    "gpu_memory_utilization": "The share of the device's memory for this stage, weights and KV cache together.",
    "connectors": "Named connectors. Diptych's hand-off reads the extra of NixlConnector; upstream's does not run.",
    "platforms": "Changes for one kind of device, applied by vLLM-Omni where that kind is found.",
    "num_replicas": "Always 1: one service is one replica.",
    "async_chunk": "Always false: GLM-Image hands whole requests on.",
    "stages": "One entry a stage, found by its stage_id.",
}

_DESCRIBED_IN = (
    ("vllm.config.parallel", "ParallelConfig"),
    ("vllm.config.cache", "CacheConfig"),
    ("vllm.config.scheduler", "SchedulerConfig"),
    ("vllm.config.model", "ModelConfig"),
    ("vllm.config.load", "LoadConfig"),
)


_ENGINES: Mapping[str, Class] = {
    "llm_ar": ("vllm.engine.arg_utils", "EngineArgs"),
    "diffusion": ("vllm_omni.diffusion.data", "OmniDiffusionConfig"),
}


def explain(key: str) -> str:
    """The explanation of a key: `devices`, `default_sampling_params.top_p`, `connectors.extra.host`.

    Raises `ConfigError` for a key that nothing knows, with the nearest one.
    """
    name = key.strip().removeprefix("stages.").rpartition("].")[2]
    lines = list(_uses(name))
    if not lines:
        raise ConfigError(f"{key}: no such key{nearest(name, _all_names())}")
    note = NOTES.get(name)
    return "\n".join([name, *([f"  {note}"] if note else []), *lines])


def _all_names() -> set[str]:
    names = set(top_fields()) | set(NOTES)
    for kind in stage_kinds().values():
        names |= set(stage_fields(kind.execution_type))
    return names


def _uses(name: str) -> Iterator[str]:
    """One paragraph for each place that knows the key."""
    outer, _, inner = name.partition(".")
    if outer == "connectors" and inner.rpartition(".")[2] in nixl_extra_keys():
        default = nixl_extra_keys()[inner.rpartition(".")[2]]
        yield f"  a setting of NixlConnector, under connectors.NAME.extra, default {default or 'unset'}"
    if not inner and name in top_fields():
        yield from _described("top of the file", top_fields()[name])
    for kind in stage_kinds().values():
        known = nested_fields(kind.execution_type, outer) if inner else stage_fields(kind.execution_type)
        if known and (inner or name) in known:
            yield from _described(f"{kind.role} stage", known[inner or name], _ENGINES[kind.execution_type])
    if name == "scheduler_cls":
        yield "  no key of a stage"


def _described(where: str, field: UpstreamField, engine: Class | None = None) -> Iterator[str]:
    yield f"  {where}: {field.annotation}, default {_default(field, engine) or 'unset'}"
    doc = _documentation(field)
    if doc and field.name not in NOTES:
        yield f"    {doc}"


def _documentation(field: UpstreamField) -> str:
    """What vLLM's own config class says about a field, else the comment where vLLM-Omni declares it."""
    for owner in _DESCRIBED_IN:
        for other in all_fields_of(*owner):
            if other.name == field.name and other.doc:
                return other.doc
    return field.doc


def _default(field: UpstreamField, engine: Class | None) -> str | None:
    """The default that applies: the deploy schema's None means the engine's, which may name another class's."""
    if field.default not in (None, "None") or engine is None:
        return field.default
    found = next((other.default for other in all_fields_of(*engine) if other.name == field.name), None)
    owner, _, name = (found or "").partition(".")
    origin = origin_of(engine[0], owner) if owner.isidentifier() and name.isidentifier() else None
    if origin is None:
        return found
    found = next((other.default for other in all_fields_of(*origin) if other.name == name), found)
    inside = re.match(r"Field\(default=([^,)]+)", found or "")
    return inside[1] if inside else found
