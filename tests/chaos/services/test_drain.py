"""SIGTERM, part by part: not ready, nothing new, what runs is finished, slots are released, exit 0. And giving up."""

import asyncio
import signal
from pathlib import Path

import httpx
import pytest

from services.wire import framing
from services.wire.ar_to_gateway import Prior
from services.wire.dit_to_gateway import Progress, Rendered
from services.wire.errors import ErrorBody
from services.wire.gateway_to_ar import PriorRequest
from services.wire.gateway_to_dit import RenderRequest
from tests.chaos.services.fleet import Fleet, Service, eventually

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(120)]

HEADERS = {"content-type": framing.MSGPACK}


def wanted(name: str) -> dict[str, object]:
    return {"request_id": name, "prompt": "a fox", "width": 128, "height": 128, "seed": 1, "budget": 12.0}


async def write(client: httpx.AsyncClient, ar: Service, name: str) -> Prior:
    reply = await client.post(f"{ar.url}/v1/priors", content=framing.encode(PriorRequest(**wanted(name))))
    assert reply.status_code == 200, reply.content
    return framing.decode(reply.content, Prior)


def render(prior: Prior, name: str, steps: int) -> bytes:
    return framing.encode(
        RenderRequest(**wanted(name), ticket=prior.ticket, crop=(128, 128), steps=steps, guidance=1.5)
    )


async def drains(service: Service) -> None:
    """It says that it is not ready, and why."""
    service.send(signal.SIGTERM)
    await asyncio.to_thread(eventually, lambda: service.info()["draining"], 5, f"{service.name} drains")
    assert not service.ready()
    assert "draining" in httpx.get(f"{service.url}/ready").json()["reason"]


async def ended(service: Service, within: float = 20) -> int:
    assert service.process is not None
    return await asyncio.to_thread(service.process.wait, within)


@pytest.mark.parametrize("freed_by", ["delete", "lease"])
async def test_an_ar_stays_until_its_last_slot_is_free(calm_fleet: Fleet, freed_by: str) -> None:
    ar = calm_fleet["ar0"]
    async with httpx.AsyncClient(timeout=30, headers=HEADERS) as client:
        await write(client, ar, f"held-{freed_by}")
        await drains(ar)
        refused = await client.post(f"{ar.url}/v1/priors", content=framing.encode(PriorRequest(**wanted("late"))))
        assert refused.status_code == 503
        assert "draining" in framing.decode(refused.content, ErrorBody).message
        assert ar.alive, "somebody may still read that slot"
        if freed_by == "delete":
            assert (await client.delete(f"{ar.url}/v1/priors/held-delete")).status_code == 204
        assert await ended(ar) == 0


async def test_a_dit_finishes_what_it_paints(calm_fleet: Fleet) -> None:
    ar, dit = calm_fleet["ar0"], calm_fleet["dit0"]
    async with httpx.AsyncClient(timeout=30, headers=HEADERS) as client:
        first, second = await write(client, ar, "painted"), await write(client, ar, "refused")
        events: list[object] = []
        async with client.stream("POST", f"{dit.url}/v1/renders", content=render(first, "painted", 200)) as stream:
            async for event in framing.events(stream.aiter_raw()):
                if not events:
                    await drains(dit)
                    refused = await client.post(f"{dit.url}/v1/renders", content=render(second, "refused", 1))
                    assert refused.status_code == 503
                    assert "draining" in framing.decode(refused.content, ErrorBody).message
                events.append(event)
        assert isinstance(events[0], Progress)
        assert events[0].step < 200, "it was asked to stop before it was done"
        assert isinstance(events[-1], Rendered)
        assert await ended(dit) == 0
        for name in ("painted", "refused"):
            await client.delete(f"{ar.url}/v1/priors/{name}")


async def test_a_gateway_answers_whom_it_has_accepted(calm_fleet: Fleet) -> None:
    gateway = calm_fleet.extra_gateway("gateway8")
    body = {"prompt": "a fox", "size": "128x128", "num_inference_steps": 200}
    try:
        async with httpx.AsyncClient(base_url=gateway.url, timeout=30) as client:
            asking = asyncio.create_task(client.post("/v1/images/generations", json=body))
            painting = lambda: gateway.metric("diptych_active_jobs", phase="dit")  # noqa: E731
            await asyncio.to_thread(eventually, painting, 10, "it paints")
            await drains(gateway)
            refused = await client.post("/v1/images/generations", json=body)
            assert refused.status_code == 503
            assert refused.json()["error"]["code"] == "server_is_overloaded"
            assert refused.headers["retry-after"]
            assert not asking.done()
            assert (await asking).status_code == 200
            assert await ended(gateway) == 0
    finally:
        del calm_fleet.services["gateway8"]
    await asyncio.to_thread(eventually, lambda: calm_fleet.slots() == 0, 10, "its slots are free")


def test_an_engine_that_never_starts_ends_the_service_with_an_exit_code(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, {"DIPTYCH_SIM_START_FAILURES": "99", "DIPTYCH_MAX_RESTARTS": "1"}, ars=1, dits=0)
    service = fleet["ar0"]
    try:
        service.start()
        assert service.process is not None
        assert service.process.wait(60) == 1
        said = service.log.read_text()
        assert said.count("engine lost, restarting") == 2
        assert said.splitlines()[-1] == "diptych: simulated: start 2 fails"
    finally:
        fleet.down()
