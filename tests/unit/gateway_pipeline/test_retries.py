"""What is tried again after which error, and what never is."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from services.gateway.jobs import Partial
from services.wire.ar_to_gateway import Prior
from services.wire.dit_to_gateway import Failed, Preview, Progress, RenderEvent
from services.wire.errors import (
    ArenaFull,
    DeadlineExceeded,
    DiptychError,
    EngineDied,
    EngineFailed,
    ErrorBody,
    InvalidPriors,
    Overloaded,
    PeerGone,
    StageUnavailable,
    TransferTimeout,
)
from services.wire.gateway_to_ar import PriorRequest
from services.wire.gateway_to_dit import RenderRequest


def failing_writes(replica: Any, *errors: DiptychError) -> None:
    """The first writes end in these errors, later ones well."""
    left = list(errors)

    async def write(request: PriorRequest) -> Prior:
        if left:
            raise left.pop(0)
        return await replica.write_at_once(request)

    replica.write = write


def failing_renders(replica: Any, *errors: DiptychError) -> None:
    """The first renders end in these errors after one step, later ones well."""
    left = list(errors)

    async def paint(request: RenderRequest) -> AsyncIterator[RenderEvent]:
        if left:
            yield Progress(1, request.steps)
            yield Failed(left.pop(0).body())
            return
        async for event in replica.paint_at_once(request):
            yield event

    replica.paint = paint


@pytest.mark.parametrize("error", [EngineDied("x"), StageUnavailable("x"), Overloaded("x"), ArenaFull("x")])
async def test_an_ar_failure_goes_to_the_other_replica_with_the_same_seed(world: Any, error: DiptychError) -> None:
    one, two, dit = await world.ar(), await world.ar(), await world.dit()
    painter = await world.pipeline([one, two], [dit])
    failing_writes(one, error)
    failing_writes(two, error)
    with_retry = await world.image(painter, world.job(seed=11))
    assert with_retry.seed == 11
    seeds = [request.seed for request in one.writes + two.writes]
    assert seeds in ([11, 11], [11, 11, 11])
    assert len(one.writes) >= 1
    assert len(two.writes) >= 1


@pytest.mark.parametrize("error", [EngineDied("x"), StageUnavailable("x"), Overloaded("x")])
async def test_a_dit_failure_takes_the_same_ticket_elsewhere(world: Any, error: DiptychError) -> None:
    ar, one, two = await world.ar(), await world.dit(), await world.dit()
    painter = await world.pipeline([ar], [one, two])
    failing_renders(one, error)
    failing_renders(two, error)
    await world.image(painter, world.job())
    tickets = {request.ticket for request in one.renders + two.renders}
    assert len(ar.writes) == 1
    assert len(tickets) == 1
    assert one.renders
    assert two.renders


async def test_a_gone_ar_means_new_priors_with_the_same_seed(world: Any) -> None:
    ar, dit = await world.ar(), await world.dit()
    painter = await world.pipeline([ar], [dit])
    failing_renders(dit, PeerGone("the producer is gone"))
    painted = await world.image(painter, world.job(seed=5))
    assert painted.seed == 5
    assert [request.seed for request in ar.writes] == [5, 5]
    assert ar.writes[0].request_id != ar.writes[1].request_id


async def test_a_slow_transfer_gets_its_ticket_once_more_then_new_priors(world: Any) -> None:
    ar, dit = await world.ar(), await world.dit()
    painter = await world.pipeline([ar], [dit])
    failing_renders(dit, TransferTimeout("slow"), TransferTimeout("slow"))
    await world.image(painter, world.job())
    assert len(ar.writes) == 2
    assert [request.ticket for request in dit.renders[:2]] == [dit.renders[0].ticket] * 2


async def test_a_job_whose_time_runs_out_between_tries_tells_the_last_failure(world: Any) -> None:
    ar, dit = await world.ar(), await world.dit()
    painter = await world.pipeline([ar], [dit])
    failing_renders(dit, *[TransferTimeout("no READ from the AR's node")] * 2)

    async def write(request: PriorRequest) -> Prior:
        if len(ar.writes) > 1:
            await asyncio.Event().wait()
        return await ar.write_at_once(request)

    ar.write = write
    with pytest.raises(DeadlineExceeded, match="no READ from the AR's node"):
        await world.image(painter, world.job(deadline=asyncio.get_running_loop().time() + 3))


async def test_an_engine_error_is_the_callers_at_once(world: Any) -> None:
    ar, dit = await world.ar(), await world.dit()
    painter = await world.pipeline([ar], [dit])
    failing_renders(dit, EngineFailed("this one is too hard"))
    with pytest.raises(EngineFailed, match="too hard"):
        await world.image(painter, world.job())
    assert len(dit.renders) == 1
    await world.eventually(lambda: len(ar.deleted) == 1)


async def test_nothing_is_tried_again_once_a_partial_image_was_shown(world: Any) -> None:
    ar, one, two = await world.ar(), await world.dit(), await world.dit()
    painter = await world.pipeline([ar], [one, two])

    async def half(request: RenderRequest) -> AsyncIterator[RenderEvent]:
        yield Preview(0, b"half")
        yield Failed(ErrorBody(code="engine_died", message="gone"))

    one.paint = two.paint = half
    job = world.job(previews=1)
    painter.reserve([job])
    seen = []
    with pytest.raises(EngineDied):
        async for event in painter.paint(job):
            seen.append(event)
    assert [event for event in seen if isinstance(event, Partial)] == [Partial(0, b"half")]
    assert len(one.renders) + len(two.renders) == 1


async def test_invalid_priors_get_another_seed_once_if_none_was_given(world: Any) -> None:
    ar, dit = await world.ar(), await world.dit()
    painter = await world.pipeline([ar], [dit])
    failing_writes(ar, InvalidPriors("token 16384"))
    painted = await world.image(painter, world.job(seed=7, seed_given=False))
    assert painted.seed == ar.writes[1].seed != 7
    assert dit.renders[0].seed == painted.seed


async def test_invalid_priors_twice_are_an_error(world: Any) -> None:
    ar, dit = await world.ar(), await world.dit()
    painter = await world.pipeline([ar], [dit])
    failing_writes(ar, InvalidPriors("token 16384"), InvalidPriors("token 16384"))
    with pytest.raises(InvalidPriors):
        await world.image(painter, world.job(seed_given=False))


async def test_a_chosen_seed_is_never_exchanged(world: Any) -> None:
    ar, dit = await world.ar(), await world.dit()
    painter = await world.pipeline([ar], [dit])
    failing_writes(ar, InvalidPriors("token 16384"))
    with pytest.raises(InvalidPriors):
        await world.image(painter, world.job(seed_given=True))
    assert len(ar.writes) == 1


async def test_a_used_up_budget_ends_retries(world: Any) -> None:
    ar, dit = await world.ar(), await world.dit()
    painter = await world.pipeline([ar], [dit], retry_share=0, retry_burst=0)
    failing_writes(ar, Overloaded("busy"))
    with pytest.raises(Overloaded, match="busy"):
        await world.image(painter, world.job())


async def test_tries_are_bounded(world: Any) -> None:
    ar, dit = await world.ar(), await world.dit()
    painter = await world.pipeline([ar], [dit], max_attempts=2)
    failing_writes(ar, *[Overloaded("busy")] * 9)
    with pytest.raises(Overloaded):
        await world.image(painter, world.job())
    assert len(ar.writes) == 2


async def test_a_lost_replica_ends_the_calls_that_wait_for_it(world: Any) -> None:
    ar, one, two = await world.ar(), await world.dit(), await world.dit()
    painter = await world.pipeline([ar], [one, two])

    async def silent(request: RenderRequest) -> AsyncIterator[RenderEvent]:
        yield Progress(1, request.steps)
        await asyncio.Event().wait()

    one.paint = two.paint = silent
    image = asyncio.create_task(world.image(painter, world.job()))
    await world.eventually(lambda: one.renders or two.renders)
    stuck, other = (one, two) if one.renders else (two, one)
    other.paint = other.paint_at_once
    painter.dit.replicas[stuck.url].lose("it does not answer")
    assert (await image).image
    assert len(other.renders) == 1


async def test_garbage_from_a_replica_is_a_typed_error_and_another_try(world: Any) -> None:
    one, two, dit = await world.ar(), await world.ar(), await world.dit()
    painter = await world.pipeline([one, two], [dit])

    async def garbage(_request: PriorRequest) -> Any:
        return {"not": "a prior"}

    one.write = garbage
    for _ in range(3):
        assert (await world.image(painter, world.job())).image
