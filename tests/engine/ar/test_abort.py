"""Leaving early: one request goes, the others and the next one do not notice."""

import asyncio

import pytest
import torch

from services.omni.ar_stage import VllmArEngine
from services.serving.engine import PRIOR_TOKENS
from services.wire.errors import Cancelled
from tests.engine.ar.jobs import job, photo


async def _running(engine: VllmArEngine, request_id: str) -> None:
    async with asyncio.timeout(30):
        while request_id not in engine._engine._running:
            await asyncio.sleep(0.01)


async def test_abort_ends_that_request_only(ar_engine: VllmArEngine) -> None:
    expected = (await ar_engine.write(job(3))).bundle[PRIOR_TOKENS]
    doomed = job(4, width=2048, height=2048)
    leaving = asyncio.create_task(ar_engine.write(doomed))
    staying = asyncio.create_task(ar_engine.write(job(3)))
    await _running(ar_engine, doomed.request_id)
    await ar_engine.abort(doomed.request_id)
    with pytest.raises(Cancelled):
        await asyncio.wait_for(leaving, 30)
    assert torch.equal((await staying).bundle[PRIOR_TOKENS], expected)
    assert torch.equal((await ar_engine.write(job(3))).bundle[PRIOR_TOKENS], expected)


async def test_an_edit_that_waits_its_turn_can_be_aborted(ar_engine: VllmArEngine) -> None:
    async with ar_engine._one_edit:
        waiting = job(4, image=photo(1))
        task = asyncio.create_task(ar_engine.write(waiting))
        async with asyncio.timeout(30):
            while not ar_engine._one_edit._waiters:
                await asyncio.sleep(0.01)
        await ar_engine.abort(waiting.request_id)
        with pytest.raises(Cancelled):
            await asyncio.wait_for(task, 5)
    assert (await ar_engine.write(job(5, image=photo(1)))).image_tokens > 0


async def test_a_cancelled_task_leaves_the_engine_usable(ar_engine: VllmArEngine) -> None:
    expected = (await ar_engine.write(job(3))).bundle[PRIOR_TOKENS]
    doomed = job(4, width=2048, height=2048, image=photo(1))
    task = asyncio.create_task(ar_engine.write(doomed))
    await _running(ar_engine, doomed.request_id)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    edit = await asyncio.wait_for(ar_engine.write(job(5, image=photo(1))), 60)  # the turn was given back
    assert edit.image_tokens > 0
    assert torch.equal((await ar_engine.write(job(3))).bundle[PRIOR_TOKENS], expected)


async def test_aborting_what_does_not_run_is_no_error(ar_engine: VllmArEngine) -> None:
    await ar_engine.abort("nobody")
    await ar_engine.check_health()
