"""A start that cannot succeed says why, soon."""

import asyncio
import signal
import time

import psutil
import pytest

from services.omni.ar_stage import VllmArEngine
from services.omni.checkpoint import Checkpoint
from services.omni.engine import SingleStageEngine
from services.wire.errors import ConfigError, EngineDied
from tests.engine.conftest import AR_ARGS

# vLLM-Omni raises what it met in its own thread a second time, where nobody listens.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")


async def test_more_tokens_than_the_model_has_positions_are_refused(tiny_checkpoint: Checkpoint) -> None:
    engine = VllmArEngine(tiny_checkpoint, AR_ARGS | {"max_model_len": 131073})
    with pytest.raises(ConfigError, match="max_model_len is 131073: the model has positions for 131072"):
        await engine.start()


async def test_what_vllm_refuses_is_a_configuration_error_of_one_line(tiny_checkpoint: Checkpoint) -> None:
    engine = VllmArEngine(tiny_checkpoint, AR_ARGS | {"max_num_batched_tokens": 100})
    with pytest.raises(ConfigError, match="max_num_batched_tokens") as caught:
        await engine.start()
    assert "\n" not in caught.value.message


async def test_a_worker_that_dies_at_start_fails_the_start(tiny_checkpoint: Checkpoint) -> None:
    before = set(psutil.Process().children(recursive=True))
    engine = SingleStageEngine(0, str(tiny_checkpoint.path), AR_ARGS)
    start = asyncio.create_task(engine.start())
    async with asyncio.timeout(60):
        while not (workers := _cores(before)):
            await asyncio.sleep(0.05)
    killed = time.monotonic()
    for worker in workers:
        worker.send_signal(signal.SIGKILL)
    with pytest.raises(EngineDied, match="did not start"):
        await asyncio.wait_for(start, 60)
    assert time.monotonic() - killed < 60
    assert not _cores(before)


async def test_a_start_past_its_deadline_leaves_no_process(tiny_checkpoint: Checkpoint) -> None:
    before = set(psutil.Process().children(recursive=True))
    engine = SingleStageEngine(0, str(tiny_checkpoint.path), AR_ARGS, start_seconds=2)
    with pytest.raises(EngineDied, match=r"not up within 2 s|did not start"):
        await asyncio.wait_for(engine.start(), 60)
    assert not _cores(before)


def _cores(before: set[psutil.Process]) -> list[psutil.Process]:
    new = [child for child in psutil.Process().children(recursive=True) if child not in before]
    return [child for child in new if child.is_running() and "resource_tracker" not in " ".join(child.cmdline())]
