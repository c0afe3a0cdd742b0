"""Which DiT gets the next job when all of them paint."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

from services.gateway.replica import Replica


def _replicas(pipeline: Any) -> dict[str, Replica]:
    return dict(pipeline.dit.replicas)


async def test_of_two_that_paint_alike_the_one_that_began_first_gets_the_next_job(world: Any) -> None:

    dits = [await world.dit(), await world.dit()]
    pipeline = await world.pipeline([await world.ar()], dits)
    deadline = asyncio.get_running_loop().time() + 20
    pipeline.dit.seconds_per_work = 1.0
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(pipeline.dit.replica(10.0, deadline))
        second = await stack.enter_async_context(pipeline.dit.replica(10.0, deadline))
        assert first is not second
        first.front_began -= 1.0  # it has painted a second longer...
        assert first.seconds_ahead(1.0) < second.seconds_ahead(1.0)
        assert await stack.enter_async_context(pipeline.dit.replica(1.0, deadline)) is first
    async with AsyncExitStack() as stack:  # ...and the other way round, so that it is not their order that decides
        a = await stack.enter_async_context(pipeline.dit.replica(10.0, deadline))
        b = await stack.enter_async_context(pipeline.dit.replica(10.0, deadline))
        b.front_began -= 1.0
        assert await stack.enter_async_context(pipeline.dit.replica(1.0, deadline)) is b
        assert {a.url, b.url} == set(_replicas(pipeline))


async def test_an_idle_replica_has_no_work_ahead(world: Any) -> None:
    pipeline = await world.pipeline([await world.ar()], [await world.dit()])
    (replica,) = _replicas(pipeline).values()
    async with pipeline.dit.replica(10.0, asyncio.get_running_loop().time() + 20):
        assert replica.seconds_ahead(2.0) > 10
    assert replica.seconds_ahead(2.0) == 0.0
