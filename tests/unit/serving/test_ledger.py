"""Bounds, abort, deadlines and the wait of a drain."""

import asyncio

import pytest

from services.serving.ledger import JobLedger
from services.wire.errors import Cancelled, DeadlineExceeded, EngineDied, InvalidRequest, Overloaded


async def _hold(ledger: JobLedger, name: str, started: asyncio.Event, budget: float = 60):
    async with ledger.job(name, budget):
        started.set()
        await asyncio.Event().wait()


@pytest.fixture
async def running():
    """A ledger of one place, taken by job `a`."""
    ledger, started = JobLedger(1), asyncio.Event()
    task = asyncio.create_task(_hold(ledger, "a", started))
    await started.wait()
    yield ledger, task
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_full_ledger_refuses_with_a_retry_time(running):
    ledger, _ = running
    with pytest.raises(Overloaded) as refused:
        async with ledger.job("b", 60):
            pass
    assert refused.value.retry_after


async def test_the_same_id_twice_is_refused(running):
    ledger, _ = running
    with pytest.raises(InvalidRequest, match="runs already"):
        async with ledger.job("a", 60):
            pass


async def test_abort_ends_that_job_and_frees_its_place(running):
    ledger, task = running
    assert ledger.abort("a")
    with pytest.raises(Cancelled):
        await task
    assert len(ledger) == 0
    assert not ledger.abort("a")
    async with ledger.job("b", 60):
        assert len(ledger) == 1


async def test_a_cancel_from_outside_stays_a_cancel(running):
    _, task = running
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_the_budget_ends_a_job():
    ledger = JobLedger(1)
    with pytest.raises(DeadlineExceeded):
        await _hold(ledger, "a", asyncio.Event(), budget=0.01)
    assert len(ledger) == 0


async def test_drain_waits_for_the_running_job_and_refuses_new_ones(running):
    ledger, task = running
    drain = asyncio.create_task(ledger.drain())
    await asyncio.sleep(0)
    with pytest.raises(Overloaded, match="draining"):
        async with ledger.job("b", 60):
            pass
    assert not drain.done()
    ledger.abort("a")
    await asyncio.gather(task, return_exceptions=True)
    await asyncio.wait_for(drain, 5)


async def test_fail_all_ends_each_job_with_that_error():
    ledger = JobLedger(4)
    started = [asyncio.Event(), asyncio.Event()]
    tasks = [asyncio.create_task(_hold(ledger, name, event)) for name, event in zip("ab", started, strict=True)]
    for event in started:
        await event.wait()
    ledger.fail_all(EngineDied("gone"))
    for task in tasks:
        with pytest.raises(EngineDied, match="gone"):
            await task
    assert len(ledger) == 0
