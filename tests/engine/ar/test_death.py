"""The AR engine's process dies: whoever waits is told, and a new start recovers."""

import asyncio
import signal

import psutil
import pytest
import torch

from services.omni.ar_stage import VllmArEngine
from services.omni.checkpoint import Checkpoint
from services.serving.engine import PRIOR_TOKENS
from services.wire.errors import EngineDied
from tests.engine.ar.jobs import job
from tests.engine.conftest import AR_ARGS


async def test_death_is_seen_and_a_new_start_recovers(tiny_checkpoint: Checkpoint) -> None:
    engine = VllmArEngine(tiny_checkpoint, AR_ARGS)
    with pytest.raises(EngineDied, match="not started"):
        await engine.check_health()
    await engine.start()
    first = await engine.write(job(1))
    running = asyncio.create_task(engine.write(job(2, width=2048, height=2048)))
    await asyncio.sleep(0)
    processes = [process for process in engine._engine._processes if process.is_running()]
    assert processes
    for process in processes:
        process.send_signal(signal.SIGKILL)
    with pytest.raises(EngineDied):
        await asyncio.wait_for(running, 30)
    async with asyncio.timeout(30):
        while True:
            try:
                await engine.check_health()
            except EngineDied:
                break
            await asyncio.sleep(0.05)
    with pytest.raises(EngineDied):
        await asyncio.wait_for(engine.write(job(3)), 30)
    await engine.stop()
    assert not any(psutil.pid_exists(process.pid) for process in processes)
    await engine.start()
    again = await engine.write(job(1))
    assert torch.equal(first.bundle[PRIOR_TOKENS], again.bundle[PRIOR_TOKENS])
    left = [process.pid for process in engine._engine._processes]
    await engine.stop()
    assert left
    assert not any(psutil.pid_exists(pid) for pid in left)
