"""Generations over HTTP: what is asked for is what is painted, and the reply says so."""

import asyncio
import base64
import io

import pytest
from PIL import Image

from services.wire.errors import (
    DeadlineExceeded,
    EngineFailed,
    InvalidPriors,
    PeerGone,
    ProtocolError,
    RateLimited,
    StageUnavailable,
)
from tests.service.gateway.serve import serving


def image_of(reply, index=0) -> Image.Image:
    assert reply.status_code == 200, reply.text
    return Image.open(io.BytesIO(base64.b64decode(reply.json()["data"][index]["b64_json"], validate=True)))


def error_of(reply) -> dict:
    error = reply.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


async def test_reply_has_every_field_and_honest_usage(gateway):
    reply = await gateway.generate(n=2, seed=7)
    body = reply.json()
    assert [datum["seed"] for datum in body["data"]] == [7, 8]
    assert set(body) == {"created", "data", "size", "quality", "background", "output_format", "usage"}
    assert (body["size"], body["background"], body["output_format"]) == ("64x64", "opaque", "png")
    assert body["usage"] == {
        "input_tokens": 6,
        "output_tokens": 8,
        "total_tokens": 14,
        "input_tokens_details": {"text_tokens": 6, "image_tokens": 0},
        "output_tokens_details": {"text_tokens": 0, "image_tokens": 8},
    }
    assert reply.headers["server-timing"] == "ar;dur=10.0, denoise;dur=20.0"


async def test_odd_sizes_are_painted_larger_and_cropped(gateway):
    reply = await gateway.generate(size="200x136")
    assert image_of(reply).size == (200, 136)
    job = gateway.painter.jobs[0]
    assert (job.width, job.height, job.crop) == (224, 160, (200, 136))


async def test_everything_asked_for_reaches_the_job(gateway):
    await gateway.generate(
        prompt="p",
        negative_prompt="n",
        output_format="jpeg",
        output_compression=33,
        guidance_scale=4,
        num_inference_steps=3,
        seed=2**63 - 1,
    )
    job = gateway.painter.jobs[0]
    assert (job.prompt, job.negative_prompt, job.format, job.compression) == ("p", "n", "jpeg", 33)
    assert (job.guidance, job.steps, job.seed, job.seed_given) == (4.0, 3, 2**63 - 1, True)


async def test_seeds_wrap_at_the_largest(gateway):
    reply = await gateway.generate(seed=2**63 - 1, n=2)
    assert [datum["seed"] for datum in reply.json()["data"]] == [2**63 - 1, 0]


async def test_a_drawn_seed_is_reported_and_makes_the_image_again(gateway):
    first = await gateway.generate()
    assert not gateway.painter.jobs[0].seed_given
    again = await gateway.generate(seed=first.json()["data"][0]["seed"])
    assert first.json()["data"] == again.json()["data"]


@pytest.mark.parametrize(
    ("fields", "steps", "quality"),
    [
        ({"num_inference_steps": None}, 50, "high"),
        ({"num_inference_steps": None, "quality": "low"}, 15, "low"),
        ({"num_inference_steps": None, "quality": "hd"}, 50, "hd"),
        ({"num_inference_steps": 2, "quality": "auto"}, 2, "low"),
        ({"num_inference_steps": 31}, 31, "medium"),
        ({"num_inference_steps": 4, "quality": "hd"}, 4, "hd"),
    ],
)
async def test_quality_sets_the_steps_unless_steps_are_given(gateway, fields, steps, quality):
    reply = await gateway.generate(**fields)
    assert (gateway.painter.jobs[0].steps, reply.json()["quality"]) == (steps, quality)


async def test_the_images_of_a_request_are_painted_at_the_same_time(gateway):
    gateway.painter.script = lambda _job: gateway.painter.until(lambda: gateway.painter.running == 3)
    assert len((await gateway.generate(n=3)).json()["data"]) == 3
    assert gateway.painter.most_running == 3


async def test_one_failure_fails_all_and_cancels_the_others(gateway):
    def script(job):
        if job.seed == 2:
            raise EngineFailed("the engine refused")
        return asyncio.Event().wait()

    gateway.painter.script = script
    reply = await gateway.generate(n=3, seed=1)
    assert (reply.status_code, error_of(reply)["type"]) == (500, "server_error")
    assert reply.headers["x-should-retry"] == "false"
    assert len(gateway.painter.cancelled) == 3
    assert not gateway.painter.held


@pytest.mark.parametrize(
    ("error", "status", "code", "headers"),
    [
        (StageUnavailable("no ar", retry_after=300), 503, "server_is_overloaded", {"retry-after": "120"}),
        (PeerGone("gone"), 503, "server_is_overloaded", {"retry-after": "5"}),
        (ProtocolError("garbage"), 503, "server_is_overloaded", {"retry-after": "5"}),
        (DeadlineExceeded("late"), 504, "timeout", {"x-should-retry": "false"}),
        (InvalidPriors("1 token"), 500, "server_error", {"x-should-retry": "false"}),
        (ZeroDivisionError("secret"), 500, "server_error", {"x-should-retry": "false"}),
    ],
)
async def test_errors_of_the_stages(gateway, error, status, code, headers):
    def script(_job):
        raise error

    gateway.painter.script = script
    reply = await gateway.generate()
    assert (reply.status_code, error_of(reply)["code"]) == (status, code)
    assert headers.items() <= dict(reply.headers).items()
    assert "secret" not in reply.text
    assert not gateway.painter.held


async def test_addresses_of_replicas_stay_inside(gateway):
    def script(_job):
        raise StageUnavailable("http://10.0.0.7:8101/v1/priors is lost")

    gateway.painter.script = script
    assert error_of(await gateway.generate())["message"] == "a replica is lost"


async def test_a_full_queue_is_a_503_that_says_when(gateway):
    gateway.painter.places = 2
    reply = await gateway.generate(n=3)
    assert (reply.status_code, error_of(reply)["code"]) == (503, "server_is_overloaded")
    assert reply.headers["retry-after"] == "8"
    assert gateway.painter.jobs == []
    assert (await gateway.generate(n=2)).status_code == 200


async def test_the_deadline_ends_a_job():
    async with serving(deadline=0.2) as gateway:
        gateway.painter.script = lambda _job: asyncio.Event().wait()
        reply = await gateway.generate()
        assert (reply.status_code, error_of(reply)["code"]) == (504, "timeout")
        assert len(gateway.painter.cancelled) == 1
        assert not gateway.painter.held


@pytest.mark.parametrize("stream", [False, True])
async def test_a_caller_who_leaves_ends_its_jobs_and_no_other(gateway, stream):
    release = asyncio.Event()
    gateway.painter.script = lambda _job: release.wait()
    staying = asyncio.create_task(gateway.generate(prompt="stays"))
    leaving = asyncio.create_task(gateway.generate(prompt="leaves", n=2, stream=stream))
    await gateway.painter.until(lambda: gateway.painter.running == 3)
    leaving.cancel()
    await gateway.painter.until(lambda: len(gateway.painter.cancelled) == 2)
    assert gateway.painter.running == 1
    release.set()
    assert (await staying).status_code == 200
    assert not gateway.painter.held


async def test_one_client_id_used_twice_makes_two_jobs(gateway):
    headers = {"x-request-id": "mine"}
    body = {"prompt": "a", "size": "64x64", "num_inference_steps": 1}
    replies = [await gateway.http.post("/v1/images/generations", json=body, headers=headers) for _ in range(2)]
    assert [reply.headers["x-request-id"] for reply in replies] == ["mine", "mine"]
    first, second = (job.request_id for job in gateway.painter.jobs)
    assert first != second
    assert first.startswith("mine-")


async def test_a_large_image_arrives_whole(gateway):
    gateway.painter.image = bytes(range(256)) * 12_345 + b"x"
    reply = await gateway.generate(n=2)
    assert [base64.b64decode(datum["b64_json"]) for datum in reply.json()["data"]] == [gateway.painter.image] * 2


async def test_a_caller_that_stops_reading_is_cut_off(gateway, monkeypatch):
    monkeypatch.setattr("services.gateway.reply.STALL_SECONDS", 0.2)
    gateway.painter.image = bytes(40 * 2**20)
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port, limit=1024)
    body = b'{"prompt":"a","size":"64x64"}'
    head = b"POST /v1/images/generations HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    writer.write(head + b"content-length: %d\r\n\r\n" % len(body) + body)
    await gateway.painter.until(lambda: len(gateway.painter.ended) == 1)
    await asyncio.sleep(1)  # reads nothing: the stall is what is tested
    with pytest.raises(asyncio.IncompleteReadError):
        await reader.readexactly(50 * 2**20)
    writer.close()


async def test_a_callers_own_share_is_a_429():
    def script(_job):
        raise RateLimited("this key has 8 images waiting", retry_after=3)

    async with serving() as gateway:
        gateway.painter.script = script
        reply = await gateway.generate()
        assert (reply.status_code, error_of(reply)["code"]) == (429, "rate_limit_exceeded")
        assert reply.headers["retry-after"] == "3"
