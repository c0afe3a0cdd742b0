"""The internal protocol over real sockets: what is answered, what is refused, and what ends with its caller."""

import asyncio
import io

import httpx
import numpy as np
import pytest
from PIL import Image
from prometheus_client import REGISTRY

from services.wire import framing
from services.wire.ar_to_gateway import Prior
from services.wire.dit_to_gateway import Failed, Preview, Progress, Rendered
from services.wire.errors import EngineFailed, ErrorBody, InvalidPriors, Overloaded
from services.wire.gateway_to_ar import PriorRequest
from services.wire.gateway_to_dit import RenderRequest


def _prior_request(request_id: str, **changes) -> bytes:
    fields = {"prompt": "p", "width": 64, "height": 96, "seed": 1, "budget": 30.0} | changes
    return framing.encode(PriorRequest(request_id=request_id, **fields))


def _render_request(request_id: str, ticket: bytes, **changes) -> bytes:
    fields = {"prompt": "p", "width": 64, "height": 96, "crop": (60, 90), "steps": 2, "guidance": 1.5, "seed": 1}
    fields |= {"budget": 30.0} | changes
    return framing.encode(RenderRequest(request_id=request_id, ticket=ticket, **fields))


async def _ticket(ar: httpx.AsyncClient, request_id: str) -> bytes:
    reply = await ar.post("/v1/priors", content=_prior_request(request_id))
    assert reply.status_code == 200
    return framing.decode(reply.content, Prior).ticket


async def _events(dit: httpx.AsyncClient, content: bytes) -> list:
    async with dit.stream("POST", "/v1/renders", content=content) as reply:
        assert reply.status_code == 200
        return [event async for event in framing.events(reply.aiter_bytes())]


def _error(reply: httpx.Response) -> ErrorBody:
    return framing.decode(reply.content, ErrorBody)


async def test_tokens_reach_the_pixels_through_nixl(services, ar, dit):
    ticket = await _ticket(ar, "through")
    steps = REGISTRY.get_sample_value("diptych_denoise_steps_total")
    events = await _events(dit, _render_request("through", ticket, previews=2))
    assert [type(event) for event in events] == [Progress, Preview, Preview, Rendered]
    rendered = events[-1]
    image = Image.open(io.BytesIO(rendered.image))
    assert image.size == (60, 90) == (rendered.width, rendered.height)
    assert np.unique(np.asarray(image)).tolist() == [sum(range(6)) % 256]
    assert {"handoff", "denoise", "encode"} <= set(rendered.times)
    told = sum(isinstance(event, Progress) for event in events)
    assert REGISTRY.get_sample_value("diptych_denoise_steps_total") == steps + told


async def test_the_transport_and_its_rate_are_told(services, ar, dit):
    await _events(dit, _render_request("lanes", await _ticket(ar, "lanes")))
    assert "GB/s" in next(iter(services.dit.info().transports.values()))
    assert "tcp/" in " ".join(services.ar.info().transports.values())
    metrics = (await dit.get("/metrics")).text
    assert 'diptych_nixl_peers_by_transport{stage="dit",transport="tcp"} 1.0' in metrics
    assert 'diptych_nixl_best_bytes_per_second{stage="dit"}' in metrics


async def test_release_is_idempotent_and_the_ticket_is_worthless_afterwards(services, ar, dit):
    ticket = await _ticket(ar, "released")
    before = services.ar.info().handoff["slots_live"]
    for _ in range(2):
        assert (await ar.delete("/v1/priors/released")).status_code == 204
    assert services.ar.info().handoff["slots_live"] == before - 1
    reply = await dit.post("/v1/renders", content=_render_request("released", ticket))
    assert reply.status_code >= 400
    assert _error(reply).code in ("lease_expired", "ticket_invalid", "integrity_error")


async def test_an_engine_error_before_the_first_event_is_a_plain_reply(services, ar):
    services.ar_engine.raises = InvalidPriors("3 tokens, 6 wanted")
    reply = await ar.post("/v1/priors", content=_prior_request("bad"))
    assert (reply.status_code, _error(reply).code) == (500, "invalid_priors")
    assert services.ar.info().running == 0


async def test_an_engine_error_in_the_stream_is_its_last_event(services, ar, dit):
    services.dit_engine.raises = EngineFailed("out of luck")
    events = await _events(dit, _render_request("fails", await _ticket(ar, "fails")))
    assert isinstance(events[-1], Failed)
    assert events[-1].error.code == "engine_failed"


@pytest.mark.parametrize(
    ("changes", "param"),
    [({"width": 65}, "width"), ({"height": 4096}, "height"), ({"crop": (65, 90)}, "crop"), ({"steps": 0}, "steps")],
)
async def test_a_render_that_does_not_add_up_is_refused(services, dit, changes, param):
    reply = await dit.post("/v1/renders", content=_render_request("odd", b"ticket", **changes))
    assert (reply.status_code, _error(reply).param) == (400, param)


async def test_garbage_and_oversize_bodies_are_typed_errors(services, ar):
    assert _error(await ar.post("/v1/priors", content=b"\xc1garbage")).code == "protocol_error"
    big = await ar.post("/v1/priors", content=b"x" * (2**20 + 1))
    assert (big.status_code, _error(big).param) == (400, "body")


async def test_a_forged_ticket_never_touches_memory(services, dit):
    reply = await dit.post("/v1/renders", content=_render_request("forged", b"DPT\x01" + b"\x00" * 200))
    assert (reply.status_code, _error(reply).code) == (400, "ticket_invalid")


async def test_the_callers_leave_ends_the_job_at_both_services(services, ar, dit):
    for client, engine, path, content in (
        (ar, services.ar_engine, "/v1/priors", _prior_request("leaves")),
        (dit, services.dit_engine, "/v1/renders", _render_request("leaves", await _ticket(ar, "leaves"))),
    ):
        engine.entered.clear()
        engine.left.clear()
        engine.hold = asyncio.Event()
        call = asyncio.create_task(client.post(path, content=content))
        await asyncio.wait_for(engine.entered.wait(), 10)
        call.cancel()
        await asyncio.wait_for(engine.left.wait(), 10)


async def test_a_delete_aborts_the_run(services, ar):
    services.ar_engine.hold = asyncio.Event()
    call = asyncio.create_task(ar.post("/v1/priors", content=_prior_request("aborted")))
    await asyncio.wait_for(services.ar_engine.entered.wait(), 10)
    assert (await ar.delete("/v1/priors/aborted")).status_code == 204
    assert _error(await call).code == "cancelled"


async def test_the_budget_ends_a_run(services, ar):
    services.ar_engine.hold = asyncio.Event()
    reply = await ar.post("/v1/priors", content=_prior_request("late", budget=0.05))
    assert (reply.status_code, _error(reply).code) == (504, "timeout")


async def test_a_full_service_says_when_to_come_back(services, ar):
    services.ar_engine.hold = asyncio.Event()
    calls = [asyncio.create_task(ar.post("/v1/priors", content=_prior_request(f"full{i}"))) for i in range(2)]
    while len(services.ar.ledger) < 2:
        await asyncio.sleep(0.01)
    refused = _error(await ar.post("/v1/priors", content=_prior_request("full2")))
    assert refused.code == Overloaded.code
    assert refused.retry_after
    services.ar_engine.hold.set()
    assert {reply.status_code for reply in await asyncio.gather(*calls)} == {200}


async def test_a_dead_engine_makes_the_service_unready_and_comes_back(services, ar):
    services.ar_engine.dead = True
    async with asyncio.timeout(10):
        while services.ar.supervisor.ready:
            await asyncio.sleep(0.01)
        assert (await ar.get("/ready")).status_code == 503
        assert (await ar.get("/live")).status_code == 200
        while (await ar.get("/ready")).status_code != 200:
            await asyncio.sleep(0.05)
    assert services.ar_engine.starts >= 1
    assert (await ar.post("/v1/priors", content=_prior_request("after"))).status_code == 200
