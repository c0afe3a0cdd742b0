"""Clients that leave, in each phase of a job, and a queue that is full: nothing may stay behind."""

import asyncio
import random
import signal
import time

import httpx
import pytest

from services.wire import framing
from services.wire.ar_to_gateway import Prior
from services.wire.dit_to_gateway import Progress, Rendered
from services.wire.gateway_to_ar import PriorRequest
from services.wire.gateway_to_dit import RenderRequest
from tests.chaos.services.conftest import trial
from tests.chaos.services.fleet import Fleet, Service, eventually

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]

BODY = {"prompt": "a fox", "size": "128x128"}


async def leave_when(gateway: Service, phase: str, steps: int) -> None:
    """Ask, and hang up when a job of this gateway is in `phase`."""
    async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as client:
        asking = asyncio.create_task(
            client.post("/v1/images/generations", json=BODY | {"num_inference_steps": steps, "n": 10})
        )
        name, labels = ("diptych_queue_jobs", {}) if phase == "queue" else ("diptych_active_jobs", {"phase": phase})
        await asyncio.to_thread(eventually, lambda: gateway.metric(name, **labels) > 0, 20, f"a job in {phase}")
        assert not asking.done()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


async def all_gone(fleet: Fleet) -> None:
    await asyncio.to_thread(eventually, lambda: fleet.jobs() == 0, 10, "all jobs have left")
    await asyncio.to_thread(eventually, lambda: fleet.slots() == 0, 10, "all slots are free")


@pytest.mark.parametrize("phase", ["queue", "ar", "dit"])
async def test_leaving_in_one_phase_frees_everything(calm_fleet: Fleet, phase: str) -> None:
    gateway = calm_fleet["gateway"]
    before = gateway.metric("diptych_images_total", outcome="cancelled")
    await leave_when(gateway, phase, steps=200)
    await all_gone(calm_fleet)
    assert gateway.metric("diptych_images_total", outcome="cancelled") == before + 10


async def test_leaving_during_the_read_frees_everything(calm_fleet: Fleet) -> None:
    """The test plays the gateway: it stops the AR after it wrote its ticket, so that the READ cannot end."""
    ar, dit = calm_fleet["ar0"], calm_fleet["dit0"]
    common = {"request_id": "left-in-read", "prompt": "a fox", "width": 128, "height": 128, "seed": 1, "budget": 20.0}
    async with httpx.AsyncClient(timeout=30, headers={"content-type": framing.MSGPACK}) as client:
        reply = await client.post(f"{ar.url}/v1/priors", content=framing.encode(PriorRequest(**common)))
        prior = framing.decode(reply.content, Prior)
        ar.send(signal.SIGSTOP)
        try:
            render = RenderRequest(**common, ticket=prior.ticket, crop=(128, 128), steps=4, guidance=1.5)
            asking = asyncio.create_task(client.post(f"{dit.url}/v1/renders", content=framing.encode(render)))
            await asyncio.to_thread(eventually, lambda: dit.info().get("running"), 5, "the DiT has the job")
            assert not asking.done()
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            await asyncio.to_thread(eventually, lambda: not dit.info().get("running"), 10, "the DiT let the job go")
        finally:
            ar.send(signal.SIGCONT)
        assert (await client.delete(f"{ar.url}/v1/priors/left-in-read")).status_code == 204
    await all_gone(calm_fleet)
    await asyncio.to_thread(calm_fleet.up)
    settled = lambda: dit.info()["handoff"]["in_quarantine"] == 0  # noqa: E731
    await asyncio.to_thread(eventually, settled, 90, "the READ that was left is over")


async def test_leaving_while_the_image_is_encoded_frees_everything(calm_fleet: Fleet) -> None:
    """The test plays the gateway, and hangs up between the last step and the image, which is large: that takes long."""
    ar, dit = calm_fleet["ar0"], calm_fleet["dit0"]
    common = {
        "request_id": "left-in-encode",
        "prompt": "a fox",
        "width": 2048,
        "height": 2048,
        "seed": 1,
        "budget": 12.0,
    }
    async with httpx.AsyncClient(timeout=30, headers={"content-type": framing.MSGPACK}) as client:
        reply = await client.post(f"{ar.url}/v1/priors", content=framing.encode(PriorRequest(**common)))
        ticket = framing.decode(reply.content, Prior).ticket
        render = RenderRequest(**common, ticket=ticket, crop=(2048, 2048), steps=2, guidance=1.5, format="webp")
        seen: list[object] = []
        async with client.stream("POST", f"{dit.url}/v1/renders", content=framing.encode(render)) as stream:
            async for event in framing.events(stream.aiter_raw()):
                seen.append(event)
                if isinstance(event, Progress) and event.step == event.total:
                    break
        assert not any(isinstance(event, Rendered) for event in seen)
        await asyncio.to_thread(eventually, lambda: not dit.info().get("running"), 10, "the DiT let the job go")
        assert dit.metric("diptych_stage_jobs_total", outcome="cancelled") >= 1
        assert (await client.delete(f"{ar.url}/v1/priors/left-in-encode")).status_code == 204
    await all_gone(calm_fleet)


async def test_clients_that_leave_at_any_moment_cost_the_others_nothing(calm_fleet: Fleet) -> None:
    """Random moments reach what no event announces: the READ, the VAE, the encoder, the reply itself."""
    draw = random.Random(7)
    async with trial(calm_fleet, workers=3) as t, httpx.AsyncClient(base_url=calm_fleet["gateway"].url) as client:
        usual = 6 / t.calm

        async def leave() -> None:
            stream = draw.random() < 0.5
            asking = client.post("/v1/images/generations", json=BODY | {"num_inference_steps": 4, "stream": stream})
            try:
                async with asyncio.timeout(draw.random() * usual):
                    await asking
            except (TimeoutError, httpx.TransportError):
                return

        for _ in range(20):
            await asyncio.gather(*(leave() for _ in range(5)))
    assert t.tally.failed == {}


async def test_a_full_queue_refuses_with_an_honest_time_and_serves_the_rest(calm_fleet: Fleet) -> None:
    gateway = calm_fleet.extra_gateway("gateway9", DIPTYCH_MAX_JOBS="4")
    try:
        async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as client:
            body = BODY | {"num_inference_steps": 20}
            replies = await asyncio.gather(*(client.post("/v1/images/generations", json=body) for _ in range(24)))
            refused = [reply for reply in replies if reply.status_code == 503]
            assert {reply.status_code for reply in replies} == {200, 503}
            for reply in refused:
                assert reply.json()["error"]["code"] == "server_is_overloaded"
                assert 1 <= int(reply.headers["retry-after"]) <= 120
            assert gateway.metric("diptych_shed_total", reason="queue_full") == len(refused)
            await asyncio.sleep(int(refused[0].headers["retry-after"]))
            began = time.monotonic()
            again = await client.post("/v1/images/generations", json=body)
            assert again.status_code == 200, f"{again.text} after {time.monotonic() - began:.1f} s"
        await all_gone(calm_fleet)
    finally:
        gateway.kill()
        del calm_fleet.services["gateway9"]
