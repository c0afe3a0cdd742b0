"""The simulator keeps to the engine protocols: valid results, abort, death, and failures to order."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
import uvloop

from services.serving.engine import PRIOR_TOKENS, FinalImage, PartialImage, PriorJob, RenderJob, StepDone
from services.sim.faults import Faults
from services.sim.life import SimEngine
from services.sim.prior import SimPriorEngine
from services.sim.render import SimRenderEngine
from services.sim.settings import SimSettings
from services.wire.errors import Cancelled, EngineDied, EngineFailed, InvalidPriors
from services.wire.geometry import NUM_PRIOR_CODES

PRIOR_JOB = PriorJob(request_id="r", prompt="a red fox", width=96, height=64, seed=5)
RENDER_JOB = RenderJob(request_id="r", prompt="a red fox", width=96, height=64, steps=4, guidance=1.5, seed=5)


@asynccontextmanager
async def running(kind: type[SimEngine], **settings: Any) -> AsyncIterator[Any]:
    chosen = SimSettings(**({"start_seconds": 0, "ar_seconds": 0.01, "step_seconds": 0, "vae_seconds": 0} | settings))
    engine = kind(chosen, Faults(chosen))
    await engine.start()
    try:
        yield engine
    finally:
        await engine.stop()


async def test_priors_are_legal_and_repeatable() -> None:
    async with running(SimPriorEngine) as engine:
        first, second = await engine.write(PRIOR_JOB), await engine.write(PRIOR_JOB)
    tokens = first.bundle[PRIOR_TOKENS].numpy()
    assert tokens.dtype == np.int32
    assert tokens.shape == (6,)
    assert ((tokens >= 0) & (tokens < NUM_PRIOR_CODES)).all()
    assert (tokens == second.bundle[PRIOR_TOKENS].numpy()).all()


async def test_another_seed_gives_other_priors() -> None:
    other = PriorJob(request_id="q", prompt="a red fox", width=96, height=64, seed=6)
    async with running(SimPriorEngine) as engine:
        first, second = await asyncio.gather(engine.write(PRIOR_JOB), engine.write(other))
    assert (first.bundle[PRIOR_TOKENS] != second.bundle[PRIOR_TOKENS]).any()


async def test_a_render_counts_its_steps_and_ends_in_one_image() -> None:
    job = RenderJob(request_id="r", prompt="", width=96, height=64, steps=4, guidance=1, seed=5, previews=1)
    async with running(SimPriorEngine) as ar, running(SimRenderEngine) as dit:
        prior = await ar.write(PRIOR_JOB)
        seen = [event async for event in dit.paint(job, prior.bundle)]
    assert [event.step for event in seen if isinstance(event, StepDone)] == [1, 2, 3, 4]
    assert [event.index for event in seen if isinstance(event, PartialImage)] == [0]
    assert isinstance(seen[-1], FinalImage)
    assert seen[-1].pixels.shape == (64, 96, 3)


async def test_a_token_out_of_range_is_refused() -> None:
    async with running(SimPriorEngine) as ar, running(SimRenderEngine) as dit:
        bundle = dict((await ar.write(PRIOR_JOB)).bundle)
        bundle[PRIOR_TOKENS] = bundle[PRIOR_TOKENS] * 0 + NUM_PRIOR_CODES
        with pytest.raises(EngineFailed, match="out of range"):
            await anext(dit.paint(RENDER_JOB, bundle))


async def test_killing_the_core_ends_the_job_and_shows_in_health() -> None:
    async with running(SimPriorEngine, ar_seconds=30) as engine:
        job = asyncio.create_task(engine.write(PRIOR_JOB))
        await asyncio.sleep(0)
        os.kill(engine.core.pid, signal.SIGKILL)
        with pytest.raises(EngineDied):
            async with asyncio.timeout(10):
                await job
        with pytest.raises(EngineDied):
            await engine.check_health()


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_pipes_that_close_before_the_exit_is_known_are_a_death_in_every_loop(loop: Any) -> None:
    async def trial() -> None:
        async with running(SimRenderEngine) as engine:
            os.kill(engine.core.pid, signal.SIGSTOP)  # it cannot end yet
            engine.core._process.stdin.close()
            await engine.core._process.stdin.wait_closed()
            beat = asyncio.create_task(engine.core.beat())
            await asyncio.sleep(0)
            os.kill(engine.core.pid, signal.SIGCONT)
            with pytest.raises(EngineDied):
                await beat
            with pytest.raises(EngineDied):
                await engine.check_health()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(trial())


async def test_a_stopped_core_stalls_instead_of_failing() -> None:
    async with running(SimPriorEngine, ar_seconds=0) as engine:
        os.kill(engine.core.pid, signal.SIGSTOP)
        job = asyncio.create_task(engine.write(PRIOR_JOB))
        async with asyncio.timeout(5):
            while engine.stalled() < 0.05:
                await asyncio.sleep(0.01)
        assert not job.done()
        os.kill(engine.core.pid, signal.SIGCONT)
        assert (await job).prior_tokens > 0
        assert engine.stalled() == 0


async def test_abort_cancels_one_job_and_the_pipe_stays_in_step() -> None:
    async with running(SimPriorEngine, ar_seconds=0.2) as engine:
        job = asyncio.create_task(engine.write(PRIOR_JOB))
        await asyncio.sleep(0)
        await engine.abort("r")
        with pytest.raises(Cancelled):
            await job
        assert (await engine.write(PRIOR_JOB)).prior_tokens > 0


@pytest.mark.parametrize(
    ("setting", "error"), [("fail_rate", EngineFailed), ("die_rate", EngineDied), ("invalid_rate", InvalidPriors)]
)
async def test_failures_to_order(setting: str, error: type[Exception]) -> None:
    async with running(SimPriorEngine, **{setting: 1.0}) as engine:
        with pytest.raises(error):
            await engine.write(PRIOR_JOB)


async def test_starts_fail_as_often_as_told() -> None:
    settings = SimSettings(start_failures=1, start_seconds=0)
    faults = Faults(settings)
    with pytest.raises(EngineDied):
        await SimPriorEngine(settings, faults).start()
    engine = SimPriorEngine(settings, faults)
    await engine.start()
    await engine.stop()
