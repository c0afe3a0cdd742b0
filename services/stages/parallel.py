"""Tensor parallelism and devices: TP equals the device count and divides the checkpoint; no device is claimed twice."""

import math
from collections.abc import Mapping
from typing import Any

from services.stages.checkpoint import PartSizes
from services.stages.environment import BadVariable, parse_devices
from services.stages.findings import Findings, shown
from services.stages.literal import Source
from services.stages.view import StageView


def parallel_size(values: Mapping[str, Any], name: str) -> int:
    """One degree of parallelism; `parallel_config` wins, as in vLLM-Omni's `_build_parallel_config`."""
    nested = values.get("parallel_config")
    found = nested.get(name) if isinstance(nested, dict) else None
    value = values.get(name) if found is None else found
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 1 else 1


def world_size(values: Mapping[str, Any]) -> int:
    """The number of devices that one replica of a stage runs on."""
    sequence = parallel_size(values, "sequence_parallel_size")
    if sequence == 1:
        rings = parallel_size(values, "ulysses_degree") * parallel_size(values, "ring_degree")
        sequence = max(rings, parallel_size(values, "allgather_degree"))
    others = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "cfg_parallel_size")
    return sequence * math.prod(parallel_size(values, name) for name in others)


def device_list(view: StageView) -> list[int] | None:
    """The devices of a stage; None if they are not given, or not a list of devices."""
    try:
        return [int(part) for part in parse_devices("devices", view.values["devices"]).split(",")]
    except (KeyError, BadVariable):
        return None


def check_devices(view: StageView, findings: Findings) -> None:
    """The form of `devices`, and its length against the parallel sizes."""
    if view.unresolved & {"devices", "tensor_parallel_size", "parallel_config"}:
        return
    if "devices" not in view.values:
        findings.error(view.place, view.key_of("devices"), 'is missing; name the devices, such as devices: "0"')
        return
    text = view.values["devices"]
    if not isinstance(text, str):
        return  # the type is wrong already
    try:
        count = len(parse_devices("devices", text).split(","))
    except BadVariable as error:
        findings.error(view.place_of("devices"), view.key_of("devices"), str(error).removeprefix("devices "))
        return
    world = world_size(view.values)
    if count != world:
        findings.error(view.place_of("devices"), view.key_of("devices"), _count_message(view, text, count, world))
    if view.values.get("num_replicas", 1) != 1:
        message = "must be 1: Diptych runs one replica a service; start another service for another replica"
        findings.error(view.place_of("num_replicas"), view.key_of("num_replicas"), message)


def _count_message(view: StageView, text: str, count: int, world: int) -> str:
    tp = parallel_size(view.values, "tensor_parallel_size")
    needs = f"tensor_parallel_size {tp}" if tp == world else f"the parallel sizes (together {world})"
    devices = _variable(view.sources.get("devices")) or "devices"
    example = ",".join(str(i) for i in range(world)) if world <= 8 else f"{world} numbers"
    size = _variable(view.sources.get("tensor_parallel_size")) or "tensor_parallel_size"
    other = f", or {size}={count}" if tp == world else ""
    return f"{shown(text)} names {count} but {needs} needs {world}; set {devices}={example}{other}"


def _variable(source: Source | None) -> str | None:
    return source.variables[0] if source and source.variables else None


def check_division(view: StageView, sizes: PartSizes, findings: Findings) -> None:
    """Whether TP divides the checkpoint; a warning where key-value heads get copied."""
    tp = parallel_size(view.values, "tensor_parallel_size")
    place, key = view.place_of("tensor_parallel_size"), view.key_of("tensor_parallel_size")
    blockers = sizes.in_the_way(tp)
    if blockers:
        name = _variable(view.sources.get("tensor_parallel_size"))
        works = ", ".join(str(size) for size in sizes.that_work())
        mend = f"these sizes work: {works}" + (f"; set {name}" if name else "")
        findings.error(place, key, f"{tp} does not divide {' and '.join(blockers)} ({sizes.origin}); {mend}")
    elif sizes.kv_heads and sizes.kv_heads < tp:
        copies = tp // sizes.kv_heads
        message = f"{sizes.kv_heads} key-value heads over {tp} ranks: each head is held {copies} times"
        findings.warn(place, key, f"{message}, so the KV cache takes as much memory a rank as at TP={sizes.kv_heads}")


def check_sharing(ar: StageView, dit: StageView, findings: Findings) -> None:
    """Two stages of one node on the same device."""
    both = sorted(set(device_list(ar) or []) & set(device_list(dit) or []))
    if both:
        names = ", ".join(str(device) for device in both)
        message = f"device {names} is claimed by the ar stage too ({ar.place_of('devices')}); name others"
        mend = ", or write share_devices: true (placement: separate_nodes if they are on different nodes)"
        findings.error(dit.place_of("devices"), dit.key_of("devices"), message + mend)
