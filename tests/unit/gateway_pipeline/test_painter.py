"""A job's way through the pipeline, against stand-in replicas: overlap, cancellation, deadlines, shedding."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import msgspec
import pytest
from prometheus_client import REGISTRY

from services.gateway.jobs import Painted, Queued, Step
from services.wire.ar_to_gateway import Prior
from services.wire.dit_to_gateway import Progress, RenderEvent
from services.wire.errors import DeadlineExceeded, Overloaded, StageUnavailable
from services.wire.gateway_to_ar import PriorRequest
from services.wire.gateway_to_dit import RenderRequest


class Gate:
    """Holds the calls of a stand-in until it is opened."""

    def __init__(self, replica: Any) -> None:
        self.open = asyncio.Event()
        self._replica = replica

    async def write(self, request: PriorRequest) -> Prior:
        await self.open.wait()
        return await self._replica.write_at_once(request)

    async def paint(self, request: RenderRequest) -> AsyncIterator[RenderEvent]:
        yield Progress(1, request.steps)
        await self.open.wait()
        async for event in self._replica.paint_at_once(request):
            yield event


async def test_a_job_goes_through_both_stages_and_frees_its_slot(world: Any) -> None:
    ar, dit = await world.ar(), await world.dit()
    painter = await world.pipeline([ar], [dit])
    waits = lambda: REGISTRY.get_sample_value("diptych_phase_seconds_count", {"phase": "ready"}) or 0  # noqa: E731
    before = waits()
    painted = await world.image(painter, world.job())
    assert waits() == before + 1
    assert painted.image == f"image of {ar.info.instance}/7".encode()
    assert painted.prior_tokens == 261
    assert {"queue", "ar", "denoise"} <= painted.times.keys()
    await world.eventually(lambda: ar.deleted == [ar.writes[0].request_id])
    assert len(painter) == 0


async def test_events_come_in_order_and_end_with_the_image(world: Any) -> None:
    ar, dit = await world.ar(), await world.dit()
    painter = await world.pipeline([ar], [dit])
    job = world.job(steps=2)
    painter.reserve([job])
    kinds = [type(event) async for event in painter.paint(job)]
    assert kinds == [Queued, Step, Step, Painted]


async def test_two_requests_with_one_id_do_not_collide(world: Any) -> None:
    ar, dit = await world.ar(), await world.dit()
    painter = await world.pipeline([ar], [dit])
    await asyncio.gather(*(world.image(painter, world.job(request_id="same")) for _ in range(3)))
    assert len({request.request_id for request in ar.writes}) == 3


async def test_priors_are_written_while_the_dit_paints_but_not_far_ahead(world: Any) -> None:
    ar, dit = await world.ar(capacity=8), await world.dit(capacity=1)
    gate = Gate(dit)
    dit.paint = gate.paint
    painter = await world.pipeline([ar], [dit], look_ahead=2, dit_depth=0)
    images = [asyncio.create_task(world.image(painter, world.job(seed=seed))) for seed in range(8)]
    await world.eventually(lambda: len(dit.renders) == 1 and len(ar.writes) == 3)
    await asyncio.sleep(0.2)  # nothing more may come: one is painted, two are ahead
    assert len(ar.writes) == 3
    gate.open.set()
    assert {image.seed for image in await asyncio.gather(*images)} == set(range(8))


async def test_the_ar_gets_a_batch(world: Any) -> None:
    ar, dits = await world.ar(capacity=8), [await world.dit() for _ in range(3)]
    gate = Gate(ar)
    ar.write = gate.write
    painter = await world.pipeline([ar], dits, look_ahead=6)
    images = [asyncio.create_task(world.image(painter, world.job(seed=seed))) for seed in range(8)]
    await world.eventually(lambda: ar.most == 6)
    gate.open.set()
    await asyncio.gather(*images)


@pytest.mark.parametrize("phase", ["queued", "ar", "dit"])
async def test_leaving_cancels_that_job_only_and_frees_everything(world: Any, phase: str) -> None:
    ar, dit = await world.ar(capacity=1), await world.dit()
    gate = Gate(ar if phase != "dit" else dit)
    ar.write, dit.paint = (gate.write, dit.paint) if phase != "dit" else (ar.write, gate.paint)
    painter = await world.pipeline([ar], [dit], look_ahead=1)
    first = asyncio.create_task(world.image(painter, world.job(seed=1)))
    await world.eventually(lambda: ar.writes if phase != "dit" else dit.renders)
    leaver = asyncio.create_task(world.image(painter, world.job(seed=2))) if phase == "queued" else first
    await asyncio.sleep(0.05)
    other = asyncio.create_task(world.image(painter, world.job(seed=3)))
    leaver.cancel()
    await asyncio.gather(leaver, return_exceptions=True)
    gate.open.set()
    assert (await other).seed == 3
    if phase == "queued":
        assert (await first).seed == 1
        assert 2 not in [request.seed for request in ar.writes]
    await world.eventually(lambda: {r.request_id for r in ar.writes} == set(ar.deleted))
    if phase == "dit":
        await world.eventually(lambda: dit.renders[0].request_id in dit.deleted)
    assert len(painter) == 0
    assert painter.ar.replicas[ar.url].outstanding == painter.dit.replicas[dit.url].outstanding == 0


async def test_closing_the_iterator_early_cancels(world: Any) -> None:
    ar, dit = await world.ar(), await world.dit()
    dit.paint = Gate(dit).paint
    painter = await world.pipeline([ar], [dit])
    job = world.job()
    painter.reserve([job])
    async with aclosing(painter.paint(job)) as events:
        async for event in events:
            if isinstance(event, Step):
                break
    await world.eventually(lambda: dit.deleted and ar.deleted)
    assert len(painter) == 0


async def test_an_image_is_a_success_of_both_replicas(world: Any) -> None:
    ar, dit = await world.ar(), await world.dit()
    painter = await world.pipeline([ar], [dit])
    await world.image(painter, world.job())
    for replica in (ar, dit):
        labels = {"stage": replica.info.stage, "replica": replica.url, "outcome": "ok"}
        assert REGISTRY.get_sample_value("diptych_replica_calls_total", labels) == 1


async def test_a_job_ends_at_its_deadline_in_each_stage(world: Any) -> None:
    ar, dit = await world.ar(), await world.dit()
    painter = await world.pipeline([ar], [dit])
    for replica, name in ((ar, "write"), (dit, "paint")):
        setattr(replica, name, getattr(Gate(replica), name))
        soon = asyncio.get_running_loop().time() + 0.2
        with pytest.raises(DeadlineExceeded):
            await world.image(painter, world.job(deadline=soon))
        setattr(replica, name, getattr(replica, f"{name}_at_once"))
    assert len(painter) == 0


async def test_the_queue_says_where_one_is(world: Any) -> None:
    ar, dit = await world.ar(capacity=1), await world.dit()
    gate = Gate(ar)
    ar.write = gate.write
    painter = await world.pipeline([ar], [dit], look_ahead=1)
    running = asyncio.create_task(world.image(painter, world.job()))
    await world.eventually(lambda: ar.writes)
    jobs = [world.job() for _ in range(2)]
    painter.reserve(jobs)
    streams = [painter.paint(job) for job in jobs]
    assert [(await anext(stream)).position for stream in streams] == [0, 1]
    for stream in streams:
        await stream.aclose()
    gate.open.set()
    await running


async def test_a_full_queue_and_a_drain_are_refused_with_a_time(world: Any) -> None:
    ar, dit = await world.ar(), await world.dit()
    painter = await world.pipeline([ar], [dit], max_jobs=1)
    painter.reserve([world.job()])
    with pytest.raises(Overloaded, match="at most 1 may") as full:
        painter.reserve([world.job()])
    assert full.value.retry_after
    painter.drain()
    with pytest.raises(Overloaded, match="draining"):
        painter.reserve([world.job()])
    assert painter.unready() == "this gateway is draining"


async def test_what_cannot_be_done_in_time_is_refused_at_once(world: Any) -> None:
    ar, dit = await world.ar(), await world.dit()
    painter = await world.pipeline([ar], [dit])
    painter.estimates.wrote(5)
    painter.estimates.rendered(seconds=60, work=3 * 64 * 64 / 1e6)
    now = asyncio.get_running_loop().time()
    painter.reserve([world.job(deadline=now + 70)])
    with pytest.raises(Overloaded, match="about 125 s") as refused:
        painter.reserve([world.job(deadline=now + 80)])
    assert refused.value.retry_after == pytest.approx(45, abs=1)
    painter.reserve([world.job(deadline=now + 130)])


async def test_an_estimate_gone_wrong_is_corrected_by_the_jobs_that_an_empty_gateway_takes(world: Any) -> None:
    ar, dit = await world.ar(), await world.dit()
    painter = await world.pipeline([ar], [dit])
    painter.estimates.wrote(1000)
    painter.estimates.rendered(seconds=1000, work=3 * 64 * 64 / 1e6)
    for _ in range(30):  # one after the other: a gateway that refused them would never learn that they take no time
        assert await world.image(painter, world.job())
    painter.reserve([world.job()])
    painter.reserve([world.job()])


async def test_a_stage_that_is_gone_for_long_is_a_503(world: Any) -> None:
    ar, dit = await world.ar(), await world.dit()
    dit.info = msgspec.structs.replace(dit.info, ready=False, reason="the engine is starting")
    painter = await world.pipeline([ar], [dit], outage_grace=0)
    with pytest.raises(StageUnavailable, match="the engine is starting") as refused:
        painter.reserve([world.job()])
    assert refused.value.retry_after


async def test_an_accepted_job_waits_for_a_stage_to_come_back(world: Any) -> None:
    ar, dit = await world.ar(), await world.dit()
    dit.info = msgspec.structs.replace(dit.info, ready=False)
    painter = await world.pipeline([ar], [dit])
    image = asyncio.create_task(world.image(painter, world.job()))
    await world.eventually(lambda: ar.writes)
    dit.info = msgspec.structs.replace(dit.info, ready=True)
    assert (await image).image
