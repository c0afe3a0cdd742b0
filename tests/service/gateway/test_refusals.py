"""Bad input: a 4xx in the one error shape, that names the field, before anything is painted."""

import asyncio

import pytest

from services.gateway.settings import GatewaySettings
from tests.service.gateway.serve import serving

URL = "/v1/images/generations"


def error_of(reply) -> dict:
    assert reply.headers["content-type"] == "application/json"
    error = reply.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert all(isinstance(error[key], str) for key in ("message", "type", "code"))
    return error


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"prompt": None}, "prompt", "missing_required_parameter"),
        ({"prompt": ""}, "prompt", "string_below_min_length"),
        ({"prompt": " \n\t "}, "prompt", "invalid_value"),
        ({"prompt": "x" * 32_001}, "prompt", "string_above_max_length"),
        ({"prompt": ["a"]}, "prompt", "invalid_type"),
        ({"n": 0}, "n", "integer_below_min_value"),
        ({"n": 11}, "n", "integer_above_max_value"),
        ({"n": "2"}, "n", "invalid_type"),
        ({"n": True}, "n", "invalid_type"),
        ({"n": 1.5}, "n", "invalid_type"),
        ({"size": 256}, "size", "invalid_type"),
        ({"size": "256*256"}, "size", "invalid_value"),
        ({"size": "٢٥٦x256"}, "size", "invalid_value"),
        ({"size": "63x64"}, "size", "invalid_value"),
        ({"size": "2049x2048"}, "size", "invalid_value"),
        ({"size": "64x257"}, "size", "invalid_value"),
        ({"seed": -1}, "seed", "integer_below_min_value"),
        ({"seed": 2**63}, "seed", "integer_above_max_value"),
        ({"seed": 2**200}, "seed", "integer_above_max_value"),
        ({"num_inference_steps": 0}, "num_inference_steps", "integer_below_min_value"),
        ({"num_inference_steps": 201}, "num_inference_steps", "integer_above_max_value"),
        ({"guidance_scale": -0.5}, "guidance_scale", "decimal_below_min_value"),
        ({"guidance_scale": 20.5}, "guidance_scale", "decimal_above_max_value"),
        ({"output_format": "gif"}, "output_format", "invalid_value"),
        ({"output_compression": 101}, "output_compression", "integer_above_max_value"),
        ({"response_format": "file"}, "response_format", "invalid_value"),
        ({"background": "transparent"}, "background", "unsupported_parameter"),
        ({"negative_prompt": "blur", "guidance_scale": 1.0}, "negative_prompt", "invalid_value"),
        ({"partial_images": 4, "stream": True}, "partial_images", "integer_above_max_value"),
        ({"partial_images": 2}, "partial_images", "invalid_value"),
        ({"stream": "true"}, "stream", "invalid_type"),
        ({"stream": True, "response_format": "url"}, "response_format", "unsupported_parameter"),
        ({"quality": "ultra"}, "quality", "invalid_value"),
        ({"image": "x"}, "image", "unknown_parameter"),
        ({"model": "dall-e-9"}, "model", "model_not_found"),
    ],
)
async def test_a_wrong_field_is_named(gateway, fields, param, code):
    reply = await gateway.generate(**fields)
    error = error_of(reply)
    assert (error["param"], error["code"]) == (param, code)
    assert reply.status_code == (404 if code == "model_not_found" else 400)
    assert error["type"] == "invalid_request_error"
    assert gateway.painter.jobs == []


async def test_an_unknown_field_is_refused_with_the_nearest_name(gateway):
    error = error_of(await gateway.generate(sise="64x64"))
    assert error["message"] == "Unknown parameter: 'sise'. Did you mean 'size'?"


async def test_unknown_fields_can_be_allowed():
    async with serving(allow_unknown_parameters=True) as gateway:
        assert (await gateway.generate(sise="64x64")).status_code == 200


async def test_null_is_absent(gateway):
    names = ("n", "quality", "seed", "stream", "partial_images", "style", "user", "negative_prompt", "sise")
    reply = await gateway.generate(**dict.fromkeys(names))
    assert reply.status_code == 200


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "empty"),
        (b"{", "not JSON"),
        (b"[]", "object"),
        (b'{"prompt":"a","guidance_scale":NaN}', "not JSON"),
        (b'{"prompt":"a","guidance_scale":-Infinity}', "not JSON"),
        (b'{"prompt":"a","guidance_scale":1e999}', "finite"),
        (b'{"prompt":"\xff"}', "not JSON"),
        (b'{"prompt":"\\ud800"}', "not JSON"),
        (b'{"prompt":' + b"[" * 100_000, "not JSON"),
        (b'{"prompt":"a","seed":' + b"9" * 5000 + b"}", ""),
    ],
)
async def test_what_is_not_json_is_a_400(gateway, body, message):
    reply = await gateway.http.post(URL, content=body, headers={"content-type": "application/json; charset=utf-8"})
    assert reply.status_code == 400
    assert message in error_of(reply)["message"]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "", "multipart/form-data"])
async def test_other_content_types_are_a_415(gateway, kind):
    for url in (URL, "/v1/images/edits"):
        if kind == "multipart/form-data" and url.endswith("edits"):
            continue
        reply = await gateway.http.post(url, content=b"x", headers={"content-type": kind})
        assert (reply.status_code, error_of(reply)["code"]) == (415, "unsupported_content_type")


async def test_encoded_bodies_are_a_415(gateway):
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    assert (await gateway.http.post(URL, content=b"x", headers=headers)).status_code == 415


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("//v1/images/generations", "/v1/images/generations"),
        ("/v1//images/generations", "/v1/images/generations"),
        ("/v1/v1/images/generations", "/v1/images/generations"),
        ("/v1/images/generations/", "/v1/images/generations"),
        ("/images/generations", "/v1/images/generations"),
        ("/v1/images/variations", "/v1/images/edits"),
        ("/v1/chat/completions", "/openapi.json"),
    ],
)
async def test_a_wrong_path_is_a_404_that_names_the_right_one(gateway, path, hint):
    reply = await gateway.http.post(f"{gateway.url}{path}", json={"prompt": "a"})
    assert (reply.status_code, error_of(reply)["code"]) == (404, "not_found")
    assert hint in reply.json()["error"]["message"]


@pytest.mark.parametrize(("method", "path"), [("GET", URL), ("DELETE", "/v1/models"), ("POST", "/health")])
async def test_a_wrong_method_is_a_405_that_says_which_is_right(gateway, method, path):
    reply = await gateway.http.request(method, path)
    assert (reply.status_code, error_of(reply)["code"]) == (405, "method_not_allowed")
    assert reply.headers["allow"]


async def test_bodies_are_counted_whatever_length_they_declare():
    async with serving(max_json_bytes=1000) as gateway:
        declared = await gateway.generate(prompt="x" * 2000)

        async def pieces():
            for _ in range(4):
                yield b"x" * 500

        counted = await gateway.http.post(URL, content=pieces(), headers={"content-type": "application/json"})
        for reply in (declared, counted):
            assert (reply.status_code, error_of(reply)["code"]) == (413, "request_too_large")


async def test_a_refused_upload_is_drained_so_that_its_sender_sees_why(gateway):
    reply = await gateway.http.post("/v1/images/edits", data={"prompt": "x"}, files={"image": bytes(60 * 2**20)})
    assert (reply.status_code, error_of(reply)["code"]) == (413, "request_too_large")


async def test_a_refused_upload_that_never_ends_is_cut_off(gateway, monkeypatch):
    monkeypatch.setattr("services.gateway.protocol.BoundedHttp.linger_seconds", 0.1)
    head = f"POST {URL} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 99999999\r\n\r\n"
    assert (await gateway.raw(head.encode())).startswith(b"HTTP/1.1 413")


async def test_a_body_that_stalls_is_a_408():
    async with serving(body_timeout=0.2) as gateway:
        head = f"POST {URL} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{{"
        assert b"HTTP/1.1 408" in await gateway.raw(head.encode())


async def test_json_bodies_in_flight_have_a_budget():
    async with serving(max_buffered_bytes=3000) as gateway:
        release = asyncio.Event()
        gateway.painter.script = lambda _job: release.wait()
        first = asyncio.create_task(gateway.generate(prompt="x" * 2000))
        await gateway.painter.until(lambda: gateway.painter.running == 1)
        assert (await gateway.generate(prompt="x" * 2000)).status_code == 503
        release.set()
        assert (await first).status_code == 200
        assert (await gateway.generate(prompt="x" * 2000)).status_code == 200


async def test_requests_in_flight_have_a_bound():
    async with serving(max_requests=1) as gateway:
        release = asyncio.Event()
        gateway.painter.script = lambda _job: release.wait()
        first = asyncio.create_task(gateway.generate())
        await gateway.painter.until(lambda: gateway.painter.running == 1)
        refused = await gateway.generate()
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
        assert (await gateway.http.get("/live")).status_code == 200
        release.set()
        assert (await first).status_code == 200


async def test_malformed_http_and_endless_headers_get_the_error_shape(gateway):
    assert b'"code":"invalid_http"' in await gateway.raw(b"nonsense\r\n\r\n")
    endless = await gateway.raw(b"GET /live HTTP/1.1\r\n" + b"a: b\r\n" * 12_000)
    assert endless.startswith(b"HTTP/1.1 431")


async def test_slow_headers_get_a_408(gateway, monkeypatch):
    monkeypatch.setattr("services.gateway.protocol.BoundedHttp.header_seconds", 0.1)
    assert (await gateway.raw(b"GET /live HTTP/1.1\r\n")).startswith(b"HTTP/1.1 408")


async def test_an_upgrade_is_ignored(gateway):
    head = "GET /live HTTP/1.1\r\nhost: x\r\nconnection: upgrade, close\r\nupgrade: websocket\r\n"
    reply = await gateway.raw(f"{head}sec-websocket-version: 13\r\nsec-websocket-key: eA==\r\n\r\n".encode())
    assert reply.startswith(b"HTTP/1.1 200")


def test_settings_take_lists_and_maps_as_text():
    settings = GatewaySettings(model_aliases="a, b,", quality_steps="low=3, high=9", api_keys="k1, k2")
    assert settings.model_aliases == ("a", "b")
    assert settings.quality_steps == {"low": 3, "high": 9}
    assert settings.keys() == ("k1", "k2")
