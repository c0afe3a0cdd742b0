"""One DiT pipeline or engine at a time: each takes the process's parallel groups for itself."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import torch

from services.omni.checkpoint import Checkpoint
from services.omni.dit_stage import VllmDitEngine
from services.omni.environment import prepare_environment
from tests.engine.dit.harness import Stepper

DIT_ARGS: dict[str, Any] = {"devices": "0", "max_num_seqs": 4, "enforce_eager": True, "dtype": "float32"}


@pytest.fixture(scope="module")
def stepper(request: pytest.FixtureRequest, tiny_checkpoint: Checkpoint) -> Iterator[Stepper]:
    """A pipeline in the dtype that the module names as DTYPE, float32 by default."""
    prepare_environment()
    stepper = Stepper(tiny_checkpoint.path, getattr(request.module, "DTYPE", torch.float32))
    yield stepper
    stepper.close()


@pytest.fixture(scope="module")
async def dit_engine(tiny_checkpoint: Checkpoint) -> AsyncIterator[VllmDitEngine]:
    engine = VllmDitEngine(tiny_checkpoint, DIT_ARGS)
    await engine.start()
    yield engine
    await engine.stop()
