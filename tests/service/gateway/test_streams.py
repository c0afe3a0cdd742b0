"""Server-sent events: OpenAI's names and fields, real partial images only, errors that clients understand."""

import asyncio
import base64
import json

import pytest

from services.wire.errors import EngineDied, StageUnavailable
from tests.service.gateway.serve import serving

PARTIAL, DONE = "image_generation.partial_image", "image_generation.completed"


def events_of(text: str) -> list[tuple[str, dict]]:
    """(event name, data) of each event; comments left out."""
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if "data" in fields:
            found.append((fields.get("event", ""), json.loads(fields["data"])))
    return found


async def test_partial_images_come_before_the_completed_one(gateway):
    reply = await gateway.generate(stream=True, partial_images=2, num_inference_steps=6, seed=3)
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert reply.headers["cache-control"] == "no-cache, no-transform"
    assert reply.headers["x-accel-buffering"] == "no"
    assert "x-queue-position" not in reply.headers, "it waited for nobody"
    events = events_of(reply.text)
    assert [name for name, _ in events] == [PARTIAL, PARTIAL, DONE]
    assert all(data["type"] == name for name, data in events)
    assert [data.get("partial_image_index") for _, data in events] == [0, 1, None]
    common = {"type", "b64_json", "created_at", "size", "quality", "background", "output_format", "seed"}
    assert set(events[0][1]) == common | {"partial_image_index"}
    assert set(events[2][1]) == common | {"usage", "times"}
    assert events[2][1]["times"] == {"ar": 0.01, "denoise": 0.02}
    assert events[2][1]["usage"]["total_tokens"] == 7
    assert len({data["b64_json"] for _, data in events}) == 3
    assert "[DONE]" not in reply.text


async def test_without_partial_images_there_is_one_event(gateway):
    reply = await gateway.generate(stream=True)
    assert [name for name, _ in events_of(reply.text)] == [DONE]


async def test_a_stream_and_a_reply_carry_the_same_image(gateway):
    plain = await gateway.generate(seed=5)
    streamed = events_of((await gateway.generate(seed=5, stream=True)).text)
    assert streamed[0][1]["b64_json"] == plain.json()["data"][0]["b64_json"]


async def test_each_of_n_images_has_its_completed_event(gateway):
    reply = await gateway.generate(stream=True, n=3, seed=10, partial_images=1, num_inference_steps=3)
    events = events_of(reply.text)
    assert sorted(data["seed"] for name, data in events if name == DONE) == [10, 11, 12]
    assert sorted(data["seed"] for name, data in events if name == PARTIAL) == [10, 11, 12]


async def test_bad_requests_are_plain_errors(gateway):
    reply = await gateway.generate(stream=True, prompt="")
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "prompt")


async def test_an_early_failure_is_a_plain_error(gateway):
    def script(_job):
        raise StageUnavailable("no dit", retry_after=9)

    gateway.painter.script = script
    reply = await gateway.generate(stream=True)
    assert (reply.status_code, reply.headers["retry-after"]) == (503, "9")


async def test_a_full_queue_is_a_plain_error(gateway):
    gateway.painter.places = 0
    assert (await gateway.generate(stream=True)).status_code == 503


async def test_a_late_failure_is_an_error_event_and_the_end(gateway, monkeypatch):
    monkeypatch.setattr("services.gateway.sse.PATIENCE", 0.05)
    broken = asyncio.Event()

    async def script(_job):
        await broken.wait()
        raise EngineDied("the core died")

    gateway.painter.script = script
    body = {"prompt": "a", "size": "64x64", "stream": True}
    async with gateway.http.stream("POST", "/v1/images/generations", json=body) as reply:
        assert reply.status_code == 200
        broken.set()
        text = (await reply.aread()).decode()
    [(name, data)] = events_of(text)
    assert name == ""
    assert set(data) == {"error"}
    assert data["error"]["code"] == "server_is_overloaded"
    assert not gateway.painter.held


async def test_keep_alive_comments_tell_the_progress(monkeypatch):
    monkeypatch.setattr("services.gateway.sse.PATIENCE", 0.01)
    async with serving(keep_alive=0.05) as gateway:
        release = asyncio.Event()
        gateway.painter.script = lambda _job: release.wait()
        body = {"prompt": "a", "size": "64x64", "stream": True, "n": 2, "num_inference_steps": 1}
        async with gateway.http.stream("POST", "/v1/images/generations", json=body) as reply:
            assert (reply.headers["x-queue-position"], reply.headers["x-estimated-seconds"]) == ("0", "1")
            lines = reply.aiter_lines()
            seen = [line async for line in _take(lines, 3) if line]
            release.set()
            rest = [line async for line in lines]
        assert seen == [": keep-alive queued 0, about 1 s, queued 0, about 1 s"] * 2
        assert [line for line in rest if line.startswith("event:")] == [f"event: {DONE}"] * 2


async def test_a_caller_who_leaves_before_the_first_sign_leaves_no_task_behind(gateway):
    gateway.painter.script = lambda _job: asyncio.Event().wait()
    leaving = asyncio.create_task(gateway.generate(stream=True))
    await gateway.painter.until(lambda: gateway.painter.running == 1)
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    await gateway.painter.until(lambda: gateway.painter.running == 0)
    for _ in range(5):
        await asyncio.sleep(0)  # the last ones end
    merging = [task for task in asyncio.all_tasks() if "Event.wait" in str(task.get_coro())]
    assert merging == []


async def _take(lines, count):
    for _ in range(count):
        yield await anext(lines)


@pytest.mark.parametrize("n", [1, 4])
async def test_partial_images_are_base64_of_real_images(gateway, n):
    reply = await gateway.generate(stream=True, partial_images=3, num_inference_steps=5, n=n)
    images = [base64.b64decode(data["b64_json"], validate=True) for _, data in events_of(reply.text)]
    assert len(images) == 4 * n
    assert all(image.startswith(b"\x89PNG") for image in images)
