"""The official `openai` SDK is the client: against the real stack, and against a scripted gateway for its errors."""

import asyncio
import base64
import io
import time

import httpx
import openai
import pytest
from PIL import Image

from services.wire.errors import EngineFailed, StageUnavailable
from tests.service.gateway.serve import serving

SMALL = {"size": "128x96", "extra_body": {"num_inference_steps": 3, "seed": 7}}


@pytest.fixture(scope="module")
def client(base_url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{base_url}/v1", api_key="any", timeout=300, max_retries=0)


def picture(size=(160, 96)) -> bytes:
    out = io.BytesIO()
    Image.linear_gradient("L").resize(size).convert("RGB").save(out, "PNG")
    return out.getvalue()


def opened(datum) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(datum.b64_json, validate=True)))


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("options", "size", "kind"),
    [
        ({}, (128, 96), "PNG"),
        ({"size": "200x136"}, (200, 136), "PNG"),
        ({"output_format": "jpeg", "output_compression": 70}, (128, 96), "JPEG"),
        ({"output_format": "webp"}, (128, 96), "WEBP"),
        ({"model": "glm-image", "user": "u", "quality": "low", "background": "opaque"}, (128, 96), "PNG"),
    ],
)
def test_generate(client, options, size, kind):
    reply = client.images.generate(prompt="a red apple", **(SMALL | options))
    image = opened(reply.data[0])
    assert (image.size, image.format) == (size, kind)
    assert reply.size == f"{size[0]}x{size[1]}"
    usage = reply.usage
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens > 0
    assert usage.input_tokens_details.text_tokens > 0
    assert usage.output_tokens_details.image_tokens == usage.output_tokens


@pytest.mark.e2e
def test_generate_n_and_reproduce_one(client):
    two = client.images.generate(prompt="a red apple", n=2, **SMALL)
    assert [datum.seed for datum in two.data] == [7, 8]
    again = client.images.generate(
        prompt="a red apple", size="128x96", extra_body={"num_inference_steps": 3, "seed": two.data[1].seed}
    )
    assert two.data[0].b64_json != two.data[1].b64_json == again.data[0].b64_json


@pytest.mark.e2e
def test_generate_url(client):
    reply = client.images.generate(prompt="a red apple", response_format="url", **SMALL)
    fetched = httpx.get(reply.data[0].url)
    assert fetched.headers["content-type"] == "image/png"
    assert Image.open(io.BytesIO(fetched.content)).size == (128, 96)


@pytest.mark.e2e
@pytest.mark.parametrize(
    "image",
    [picture(), io.BytesIO(picture()), ("a.png", picture(), "image/png"), [picture()], [("b.png", picture())]],
    ids=["bytes", "file", "tuple", "list", "list of tuples"],
)
def test_edit(client, image):
    reply = client.images.edit(image=image, prompt="make it blue", **SMALL)
    assert opened(reply.data[0]).size == (128, 96)
    assert reply.usage.input_tokens_details.image_tokens > 0


@pytest.mark.e2e
def test_stream_generate(client):
    events = list(client.images.generate(prompt="a red apple", stream=True, **SMALL))
    assert [event.type for event in events] == ["image_generation.completed"]
    plain = client.images.generate(prompt="a red apple", **SMALL)
    assert events[0].b64_json == plain.data[0].b64_json
    assert events[0].usage.total_tokens == plain.usage.total_tokens
    assert {"queue", "ar", "handoff", "denoise", "vae", "encode"} <= set(events[0].times)


@pytest.mark.e2e
def test_stream_generate_with_partial_images(client):
    asked = SMALL | {"extra_body": {"num_inference_steps": 6, "seed": 7}}
    events = list(client.images.generate(prompt="a red apple", stream=True, partial_images=2, **asked))
    partial = "image_generation.partial_image"
    assert [event.type for event in events] == [partial, partial, "image_generation.completed"]
    assert [event.partial_image_index for event in events[:2]] == [0, 1]
    assert len({event.b64_json for event in events}) == 3


@pytest.mark.e2e
def test_stream_edit(client):
    events = list(client.images.edit(image=picture(), prompt="make it blue", stream=True, **SMALL))
    assert [event.type for event in events] == ["image_edit.completed"]


@pytest.mark.e2e
def test_errors_are_what_the_sdk_expects(client):
    with pytest.raises(openai.BadRequestError) as bad:
        client.images.generate(prompt="a", size="1x1")
    assert (bad.value.param, bad.value.code, bad.value.type) == ("size", "invalid_value", "invalid_request_error")
    assert bad.value.request_id
    with pytest.raises(openai.NotFoundError) as missing:
        client.images.generate(prompt="a", model="dall-e-9")
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as masked:
        client.images.edit(image=picture(), mask=picture(), prompt="x")
    assert (masked.value.param, masked.value.code) == ("mask", "unsupported_parameter")
    with pytest.raises(openai.NotFoundError), pytest.warns(DeprecationWarning):
        client.images.create_variation(image=picture())


@pytest.mark.e2e
def test_models(client):
    assert "glm-image" in [model.id for model in client.models.list()]
    assert client.models.retrieve("glm-image").id == "glm-image"


def scripted(gateway, **options) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="any", timeout=30, **options)


async def test_a_key_is_needed_if_there_are_keys():
    async with serving(api_keys="right") as gateway:
        with pytest.raises(openai.AuthenticationError):
            await scripted(gateway).images.generate(prompt="a", size="64x64")


async def test_overload_is_retried_after_the_time_that_was_said():
    async with serving() as gateway:
        tries: list[float] = []

        def script(_job):
            tries.append(time.monotonic())
            if len(tries) < 2:
                raise StageUnavailable("no replica", retry_after=1)

        gateway.painter.script = script
        reply = await scripted(gateway).images.generate(prompt="a", size="64x64")
        assert len(reply.data) == 1
        assert tries[1] - tries[0] >= 1


async def test_what_would_fail_again_is_not_retried():
    async with serving() as gateway:

        def script(_job):
            raise EngineFailed("the same every time")

        gateway.painter.script = script
        with pytest.raises(openai.InternalServerError):
            await scripted(gateway).images.generate(prompt="a", size="64x64")
        assert len(gateway.painter.jobs) == 1


async def test_a_late_error_of_a_stream_is_raised(monkeypatch):
    monkeypatch.setattr("services.gateway.sse.PATIENCE", 0.05)
    async with serving() as gateway:
        begun = asyncio.Event()

        async def script(_job):
            await begun.wait()
            raise EngineFailed("too late for a status")

        gateway.painter.script = script
        stream = await scripted(gateway).images.generate(prompt="a", size="64x64", stream=True)
        begun.set()
        with pytest.raises(openai.APIError, match="too late"):
            async for _ in stream:
                pass
