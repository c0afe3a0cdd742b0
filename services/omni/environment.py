"""The environment variables that vLLM-Omni needs for one stage, set unless the user set them.

| variable | value | why |
|---|---|---|
| VLLM_NO_USAGE_STATS | 1 | no phoning home |
| HF_HUB_OFFLINE, TRANSFORMERS_OFFLINE | 1 | the checkpoint is on disk by now; look-ups only cost time |
| TOKENIZERS_PARALLELISM | false | no warning when the engine forks |
| VLLM_OMNI_EVENT_DRIVEN_ORCH | 1 | wait for outputs; polling each millisecond costs an eighth of a core while idle |
| VLLM_ENABLE_V1_MULTIPROCESSING | 0 | CPU, one rank: the worker runs inside the core, not in a process below it |
| VLLM_CPU_OMP_THREADS_BIND | 0\\|1 | CPU, more ranks: one NUMA node is short of nodes for vLLM's own split |
| OMP_NUM_THREADS | cores / 2 | CPU, one rank: waiting threads on shared cores slow each other down |
| VLLM_CPU_KVCACHE_SPACE | 1 | CPU: GiB, where the stage names no kv_cache_memory_bytes |
"""

import os
from collections.abc import Mapping
from typing import Any

ALWAYS = {
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "VLLM_OMNI_EVENT_DRIVEN_ORCH": "1",
}


def prepare_environment() -> None:
    """Set what must stand before huggingface_hub and vLLM are imported."""
    _default(ALWAYS)


def prepare_cpu_environment(engine_args: Mapping[str, Any]) -> None:
    """Set what vLLM's CPU platform needs for these engine arguments. vLLM reads it when the engine is built."""
    ranks = tensor_parallel_size(engine_args)
    if ranks == 1:
        _default({"VLLM_ENABLE_V1_MULTIPROCESSING": "0"})
        if "OMP_NUM_THREADS" not in os.environ:
            _limit_threads(max(1, len(os.sched_getaffinity(0)) // 2))
    else:
        _default({"VLLM_CPU_OMP_THREADS_BIND": threads_bind(ranks, sorted(os.sched_getaffinity(0)))})
    if not engine_args.get("kv_cache_memory_bytes"):
        _default({"VLLM_CPU_KVCACHE_SPACE": "1"})


def tensor_parallel_size(engine_args: Mapping[str, Any]) -> int:
    """Ranks that the stage asks for, wherever its arguments say so; 1 if they do not."""
    nested = engine_args.get("parallel_config") or {}
    return int(engine_args.get("tensor_parallel_size") or nested.get("tensor_parallel_size") or 1)


def threads_bind(ranks: int, cores: list[int]) -> str:
    """An equal share of `cores` a rank, in vLLM's notation (`0,1|2,3`); ranks share cores where there are too few."""
    share = max(1, len(cores) // ranks)
    groups = [[cores[(rank * share + i) % len(cores)] for i in range(share)] for rank in range(ranks)]
    return "|".join(",".join(map(str, group)) for group in groups)


def _limit_threads(threads: int) -> None:
    import torch

    os.environ["OMP_NUM_THREADS"] = str(threads)  # for the processes to come
    torch.set_num_threads(threads)


def _default(values: Mapping[str, str]) -> None:
    for name, value in values.items():
        os.environ.setdefault(name, value)
