"""The main job: a prompt through three processes to a PNG, with its tokens moved by NIXL."""

import base64
import io

import httpx
import pytest
from PIL import Image

from tests.stack import Stack

pytestmark = pytest.mark.e2e

BODY = {"prompt": 'a red apple with a label "Diptych"', "size": "200x136", "num_inference_steps": 2, "seed": 11}
URL = "/v1/images/generations"


def _generate(stack: Stack, **changes) -> httpx.Response:
    return httpx.post(f"{stack.gateway}{URL}", json=BODY | changes, timeout=120)


def _image(reply: httpx.Response, index: int = 0) -> Image.Image:
    assert reply.status_code == 200, reply.text
    return Image.open(io.BytesIO(base64.b64decode(reply.json()["data"][index]["b64_json"])))


def test_png_of_the_asked_size_and_bytes_moved_by_nixl(stack):
    before = stack.metric(stack.dit, "diptych_nixl_bytes_total")
    image = _image(_generate(stack))
    assert (image.format, image.size) == ("PNG", (200, 136))
    tokens = (224 // 32) * (160 // 32)  # the canonical size's large grid, 4 bytes each
    assert stack.metric(stack.dit, "diptych_nixl_bytes_total") - before >= tokens * 4


def test_same_seed_same_image_other_seed_other_image(stack):
    first, again, other = (_image(_generate(stack, seed=seed)).tobytes() for seed in (5, 5, 6))
    assert first == again != other


def test_n_images_have_consecutive_seeds_and_differ(stack):
    reply = _generate(stack, n=2, seed=21)
    assert [datum["seed"] for datum in reply.json()["data"]] == [21, 22]
    assert _image(reply, 0).tobytes() != _image(reply, 1).tobytes()


def test_slots_are_released_after_the_reply(stack):
    _image(_generate(stack))
    info = _eventually(lambda: _info(stack.ar), lambda info: info["handoff"]["slots_live"] == 0)
    assert info["handoff"]["slots_live"] == 0


def test_stage_times_are_in_the_server_timing_header(stack):
    header = _generate(stack).headers["server-timing"]
    for phase in ("ar", "handoff", "denoise", "encode"):
        assert f"{phase};dur=" in header


def _info(service: str) -> dict:
    return httpx.get(f"{service}/v1/info", timeout=10).json()


def _eventually(look, good, seconds: float = 10):
    import time

    deadline = time.monotonic() + seconds
    while True:
        seen = look()
        if good(seen) or time.monotonic() > deadline:
            return seen
        time.sleep(0.05)
