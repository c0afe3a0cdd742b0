"""Environment variables are defaults: what the user set stays."""

import os

import pytest

from services.omni.environment import (
    prepare_cpu_environment,
    prepare_environment,
    tensor_parallel_size,
    threads_bind,
)


@pytest.fixture
def environ(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """An empty environment in place of the process's own."""
    empty: dict[str, str] = {}
    monkeypatch.setattr(os, "environ", empty)
    return empty


def test_what_the_user_set_stays(environ: dict[str, str]) -> None:
    environ["HF_HUB_OFFLINE"] = "0"
    prepare_environment()
    assert environ["HF_HUB_OFFLINE"] == "0"
    assert environ["VLLM_NO_USAGE_STATS"] == "1"


@pytest.mark.parametrize(
    ("args", "expected"),
    [({}, 1), ({"tensor_parallel_size": 2}, 2), ({"parallel_config": {"tensor_parallel_size": 4}}, 4)],
)
def test_the_ranks_are_found_wherever_they_are_named(args: dict[str, object], expected: int) -> None:
    assert tensor_parallel_size(args) == expected


@pytest.mark.parametrize(
    ("ranks", "cores", "expected"),
    [(2, [0, 1], "0|1"), (2, [0, 1, 2, 3], "0,1|2,3"), (2, [5], "5|5"), (3, [2, 4], "2|4|2")],
)
def test_ranks_share_the_cores_evenly(ranks: int, cores: list[int], expected: str) -> None:
    assert threads_bind(ranks, cores) == expected


def test_one_rank_needs_no_engine_process(environ: dict[str, str]) -> None:
    prepare_cpu_environment({"kv_cache_memory_bytes": 1})
    assert {name for name in environ if name.startswith("VLLM")} == {"VLLM_ENABLE_V1_MULTIPROCESSING"}


def test_more_ranks_get_their_own_cores(environ: dict[str, str]) -> None:
    prepare_cpu_environment({"tensor_parallel_size": 2})
    assert environ["VLLM_CPU_OMP_THREADS_BIND"].count("|") == 1
    assert environ["VLLM_CPU_KVCACHE_SPACE"] == "1"
