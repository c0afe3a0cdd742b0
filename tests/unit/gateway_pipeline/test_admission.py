"""The queue: bounded, all or none, fair, and honest about time."""

import asyncio
from typing import Any

import pytest

from services.gateway.admission import Admission
from services.gateway.estimates import Estimates
from services.gateway.retries import RetryBudget
from services.wire.errors import DiptychError, EngineDied, Overloaded


def order_of_turns(queue: Admission) -> list[str]:
    """Tenants in the order in which they get turns, one at a time."""
    tenants = []
    while waiting := queue.waiting():
        tenants.append(waiting[0].job.tenant)
        queue.grant(1)
    return tenants


async def test_all_places_or_none(world: Any) -> None:
    queue = Admission(max_jobs=3, tenant_share=1)
    queue.reserve([world.job(), world.job()], 7.0)
    with pytest.raises(Overloaded) as refused:
        queue.reserve([world.job(), world.job()], 7.0)
    assert refused.value.retry_after == 7.0
    assert len(queue) == 2


async def test_retry_after_stays_between_one_second_and_two_minutes(world: Any) -> None:
    queue = Admission(max_jobs=1, tenant_share=1)
    queue.reserve([world.job()], 0)
    for given, told in ((0.0, 1.0), (900.0, 120.0)):
        with pytest.raises(Overloaded) as refused:
            queue.reserve([world.job()], given)
        assert refused.value.retry_after == told


async def test_one_key_cannot_take_the_whole_queue(world: Any) -> None:
    queue = Admission(max_jobs=4, tenant_share=0.5)
    queue.reserve([world.job(tenant="a"), world.job(tenant="a")], 1)
    with pytest.raises(Overloaded, match="this key has 2"):
        queue.reserve([world.job(tenant="a")], 1)
    queue.reserve([world.job(tenant="b")], 1)


async def test_without_keys_all_of_the_queue_is_open(world: Any) -> None:
    queue = Admission(max_jobs=4, tenant_share=0.5)
    queue.reserve([world.job() for _ in range(4)], 1)
    assert len(queue) == 4


async def test_a_late_tenant_does_not_wait_behind_a_crowd(world: Any) -> None:
    queue = Admission(max_jobs=100, tenant_share=1)
    crowd = [world.job(tenant="crowd") for _ in range(6)]
    queue.reserve(crowd, 1)
    single = world.job(tenant="single")
    queue.reserve([single], 1)
    for job in [*crowd, single]:
        queue.take(job)
    assert order_of_turns(queue).index("single") <= 1


async def test_tenants_share_by_work_not_by_jobs(world: Any) -> None:
    queue = Admission(max_jobs=100, tenant_share=1)
    big = [world.job(tenant="big", steps=40) for _ in range(3)]
    small = [world.job(tenant="small", steps=10) for _ in range(8)]
    queue.reserve(big, 1)
    queue.reserve(small, 1)
    for job in [*big, *small]:
        queue.take(job)
    first = order_of_turns(queue)[:5]
    assert first.count("small") >= 3


async def test_a_job_is_painted_once(world: Any) -> None:
    queue = Admission(max_jobs=4, tenant_share=1)
    job = world.job()
    with pytest.raises(DiptychError, match="no place"):
        queue.take(job)
    queue.reserve([job], 1)
    queue.take(job)
    with pytest.raises(DiptychError, match="paint once"):
        queue.take(job)


async def test_a_place_that_nobody_painted_ends_at_its_deadline(world: Any) -> None:
    queue = Admission(max_jobs=1, tenant_share=1)
    queue.reserve([world.job(deadline=asyncio.get_running_loop().time() - 1)], 1)
    queue.reserve([world.job()], 1)
    assert len(queue) == 1


async def test_leaving_twice_is_no_error(world: Any) -> None:
    queue = Admission(max_jobs=1, tenant_share=1)
    job = world.job()
    queue.reserve([job], 1)
    queue.leave([job])
    queue.leave([job])
    assert len(queue) == 0


def test_estimates_are_silent_until_both_stages_were_measured() -> None:
    estimates = Estimates()
    estimates.wrote(20)
    assert estimates.wait(jobs_ahead=9, work_ahead=100, work=50, ar_places=1, dit_places=1) == 0


def test_the_slower_stage_sets_the_pace() -> None:
    estimates = Estimates()
    estimates.wrote(10)
    estimates.rendered(seconds=50, work=50)
    dit_bound = estimates.wait(jobs_ahead=2, work_ahead=100, work=50, ar_places=8, dit_places=1)
    assert dit_bound == pytest.approx(100 + 10 + 50)
    ar_bound = estimates.wait(jobs_ahead=20, work_ahead=100, work=50, ar_places=1, dit_places=4)
    assert ar_bound == pytest.approx(200 + 10 + 50)


def test_look_ahead_follows_littles_law_and_the_ars_places() -> None:
    estimates = Estimates()
    assert estimates.look_ahead(ar_places=8, dit_places=2) == 3
    estimates.wrote(20)
    estimates.rendered(seconds=10, work=1)
    assert estimates.look_ahead(ar_places=32, dit_places=2) == 4 + 2
    assert estimates.look_ahead(ar_places=2, dit_places=2) == 4
    assert estimates.look_ahead(ar_places=8, dit_places=0) == 1


def test_the_retry_budget_is_a_share_of_first_calls() -> None:
    budget = RetryBudget(share=0.5, burst=1)
    error = EngineDied("x")
    assert budget.spend("ar", error)
    assert not budget.spend("ar", error)
    budget.earn()
    assert not budget.spend("ar", error)
    budget.earn()
    assert budget.spend("ar", error)
    for _ in range(10):
        budget.earn()
    assert [budget.spend("ar", error) for _ in range(2)] == [True, False]  # the store is bounded
