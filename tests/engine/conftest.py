"""Real engines on the tiny checkpoint, each started once a session."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from services.omni.ar_stage import VllmArEngine
from services.omni.checkpoint import Checkpoint, open_checkpoint
from services.omni.tiny_model import write_tiny_model

CACHE = Path(__file__).parents[2] / ".cache"
AR_ARGS: dict[str, Any] = {
    "devices": "0",
    "max_num_seqs": 4,
    "max_model_len": 8192,
    "max_num_batched_tokens": 8192,
    "enforce_eager": True,
    "enable_prefix_caching": False,
    "kv_cache_memory_bytes": 128 << 20,
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.engine)


@pytest.fixture(scope="session")
def tiny_checkpoint() -> Checkpoint:
    return open_checkpoint(str(write_tiny_model(CACHE / "tiny-glm-image")), 0)


@pytest.fixture(scope="session")
async def ar_engine(tiny_checkpoint: Checkpoint) -> AsyncIterator[VllmArEngine]:
    engine = VllmArEngine(tiny_checkpoint, AR_ARGS)
    await engine.start()
    yield engine
    await engine.stop()
