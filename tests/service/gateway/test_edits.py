"""Edits over HTTP: both bodies, any spelling of the image part, and refusals that name what is wrong."""

import base64
import io

import httpx
import pytest
from PIL import Image

from tests.service.gateway.serve import serving

URL = "/v1/images/edits"
PARAM = "images[0].image_url"
FORM = "multipart/form-data"
IN_X = "multipart/form-data; boundary=x"
FAKE = "A" * 32 + ".png"


def png(size=(160, 96), colour="red") -> bytes:
    out = io.BytesIO()
    Image.new("RGB", size, colour).save(out, "PNG")
    return out.getvalue()


def data_url(raw: bytes, head="data:image/png;base64") -> str:
    return f"{head},{base64.b64encode(raw).decode()}"


async def form(gateway, files, **fields) -> httpx.Response:
    named = {"prompt": "make it blue", "size": "64x64", "num_inference_steps": "2"} | fields
    return await gateway.http.post(URL, data=named, files=files)


async def as_json(gateway, *urls, **fields) -> httpx.Response:
    body = {"prompt": "make it blue", "size": "64x64", "num_inference_steps": 2} | fields
    return await gateway.http.post(URL, json=body | {"images": [{"image_url": url} for url in urls]})


def part(disposition: str, body: bytes = b"") -> bytes:
    return b"--x\r\ncontent-disposition: form-data; " + disposition.encode() + b"\r\n\r\n" + body + b"\r\n"


def error_of(reply) -> tuple[int, str, str]:
    error = reply.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return reply.status_code, error["param"], error["code"]


@pytest.mark.parametrize("name", ["image", "image[]", "image[0]"])
@pytest.mark.parametrize("label", ["image/png", "application/octet-stream", "text/plain", "nonsense"])
async def test_any_spelling_and_any_label(gateway, name, label):
    reply = await form(gateway, {name: ("ünïcode\u202e.exe", png(), label)})
    assert reply.status_code == 200, reply.text
    job = gateway.painter.jobs[0]
    assert Image.open(io.BytesIO(job.image)).size == (160, 96)
    assert reply.json()["usage"]["input_tokens_details"]["image_tokens"] == 64


async def test_form_strings_become_numbers(gateway):
    reply = await form(gateway, {"image": png()}, n="2", seed="9", guidance_scale="4", output_compression="")
    assert [datum["seed"] for datum in reply.json()["data"]] == [9, 10]
    assert gateway.painter.jobs[0].guidance == 4.0


async def test_streams_of_edits_have_their_own_names(gateway):
    reply = await form(gateway, {"image": png()}, stream="true", partial_images="1", num_inference_steps="3")
    names = [line for line in reply.text.splitlines() if line.startswith("event:")]
    assert names == ["event: image_edit.partial_image", "event: image_edit.completed"]


@pytest.mark.parametrize(
    ("size", "expected"),
    [((160, 96), (1312, 800)), ((96, 160), (800, 1312)), ((500, 500), (1024, 1024)), ((2000, 100), (2048, 512))],
)
async def test_auto_size_keeps_the_aspect_at_a_megapixel(gateway, size, expected):
    reply = await form(gateway, {"image": png(size)}, size="auto", num_inference_steps="1")
    assert reply.json()["size"] == f"{expected[0]}x{expected[1]}"
    assert gateway.painter.jobs[0].crop == expected


async def test_json_and_form_hand_on_the_same_image(gateway):
    await form(gateway, {"image": png()})
    await as_json(gateway, data_url(png()))
    first, second = gateway.painter.jobs
    assert first.image == second.image


@pytest.mark.parametrize(
    "url",
    [
        data_url(png(), "DATA:image/png;charset=utf-8;BASE64"),
        data_url(png(), "data:;base64"),
        base64.b64encode(png()).decode(),
        "data:image/png," + "".join(f"%{byte:02x}" for byte in png()),
    ],
)
async def test_data_urls_as_the_rfc_has_them(gateway, url):
    reply = await as_json(gateway, url)
    assert reply.status_code == 200, reply.text


@pytest.mark.parametrize(
    ("files", "fields", "expected"),
    [
        ([], {"nothing": ""}, (400, "image", "missing_required_parameter")),
        ([("image", b"")], {}, (400, "image", "invalid_image")),
        ([("image", b"no image")], {}, (400, "image", "unsupported_file_mimetype")),
        ([("image", png()), ("image[]", png())], {}, (400, "image", "too_many_images")),
        ([("image", png()), ("mask", png())], {}, (400, "mask", "unsupported_parameter")),
        ([("image", png()), ("mask[]", png())], {}, (400, "mask", "unsupported_parameter")),
        ([("image", png()), ("picture", png())], {}, (400, "picture", "unknown_parameter")),
        ([("image", png()), ("user", png())], {}, (400, "user", "invalid_type")),
        ([("image", png())], {"n": "two"}, (400, "n", "invalid_type")),
        ([("image", png())], {"n": "1.0"}, (400, "n", "invalid_type")),
        ([("image", png())], {"stream": "yes"}, (400, "stream", "invalid_type")),
        ([("image", png())], {"guidance_scale": "nan"}, (400, "guidance_scale", "invalid_type")),
        ([("image", png())], {"guidance_scale": "1e999"}, (400, "guidance_scale", "invalid_value")),
        ([("image", png())], {"prompt": ""}, (400, "prompt", "string_below_min_length")),
        ([("image", png())], {"promt": "x"}, (400, "promt", "unknown_parameter")),
        ([("image", png())], {"n": ["1", "2"]}, (400, "n", "invalid_value")),
        ([("image", png())], {"input_fidelity": "high"}, (400, "input_fidelity", "unsupported_parameter")),
        ([("image", png())], {"model": "dall-e-2"}, (404, "model", "model_not_found")),
    ],
)
async def test_what_is_wrong_with_a_form_is_named(gateway, files, fields, expected):
    reply = await form(gateway, files or {"empty": b""}, **fields)
    assert error_of(reply) == expected
    assert gateway.painter.jobs == []


async def test_an_image_as_text_is_refused(gateway):
    reply = await form(gateway, {"other": b""}, image="data:image/png;base64,AAAA")
    assert error_of(reply) == (400, "image", "invalid_type")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({}, (400, "images", "missing_required_parameter")),
        ({"images": []}, (400, "images", "array_below_min_length")),
        ({"images": "x"}, (400, "images", "invalid_type")),
        ({"images": ["x"]}, (400, "images[0]", "invalid_type")),
        ({"images": [{}]}, (400, PARAM, "missing_required_parameter")),
        ({"images": [{"image_url": 7}]}, (400, PARAM, "invalid_type")),
        ({"images": [{"url": "x"}]}, (400, "images[0].url", "unknown_parameter")),
        ({"images": [{"file_id": "f"}]}, (400, "images[0].file_id", "unsupported_parameter")),
        ({"images": [{"image_url": "data:image/png;base64,!!"}]}, (400, PARAM, "invalid_value")),
        (
            {"images": [{"image_url": "data:image/png;base64,AAAA"}]},
            (400, PARAM, "unsupported_file_mimetype"),
        ),
        ({"images": [{"image_url": "é"}]}, (400, PARAM, "invalid_value")),
        ({"images": [{"image_url": "http://127.0.0.1:1/x"}]}, (400, PARAM, "unsupported_parameter")),
        ({"images": [{"image_url": "x"}] * 2}, (400, "images", "too_many_images")),
        ({"images": [{"image_url": "x"}], "mask": {"image_url": "x"}}, (400, "mask", "unsupported_parameter")),
        ({"image": "x"}, (400, "image", "unknown_parameter")),
    ],
)
async def test_what_is_wrong_with_json_is_named(gateway, body, expected):
    reply = await gateway.http.post(URL, json={"prompt": "x"} | body)
    assert error_of(reply) == expected


@pytest.mark.parametrize(
    ("kind", "body", "status"),
    [
        (FORM, b"", 400),
        (f"{FORM}; boundary=", b"", 400),
        (f"{IN_X}; charset=utf-7", b"--x--", 415),
        (f"{IN_X}; charset=idna", b"--x--", 415),
        (IN_X, b"no boundary at all", 400),
        (IN_X, b"--x\r\nA: b\r\n\r\nc\r\n--x--", 400),
        (IN_X, b"--x\r\n" + b"A: b\r\n" * 1000, 400),
        (IN_X, b"--x\r\nA: " + b"b" * 100_000, 400),
        (IN_X, part('name="image"; filename="a"', b"x"), 400),
        (IN_X * 50, b"--x--", 400),
        (IN_X, part('name="prompt"', b"x" * 300_000), 400),
        (IN_X, part('name="a"') * 100 + b"--x--", 400),
    ],
)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a cut form's file ends with its parser
async def test_malformed_forms_are_a_4xx(gateway, kind, body, status):
    reply = await gateway.http.post(URL, content=body, headers={"content-type": kind})
    assert error_of(reply)[0] == status


async def test_results_can_be_stored_and_fetched(gateway):
    reply = await form(gateway, {"image": png()}, response_format="url", output_format="webp", n="2")
    first, second = (datum["url"] for datum in reply.json()["data"])
    assert first != second
    assert first.startswith(f"{gateway.url}/v1/files/images/")
    image = await gateway.http.get(first)
    assert image.headers["content-type"] == "image/webp"
    assert "immutable" in image.headers["cache-control"]
    assert image.headers["x-content-type-options"] == "nosniff"
    assert Image.open(io.BytesIO(image.content)).size == (64, 64)
    head = await gateway.http.head(first)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == image.headers["content-length"]


@pytest.mark.parametrize("name", ["x", "..%2f..%2fetc%2fpasswd", f"6b0e552f-{FAKE}", f"00000000-{FAKE}"])
async def test_unknown_and_expired_names_are_a_404(gateway, name):
    reply = await gateway.http.get(f"/v1/files/images/{name}")
    assert reply.status_code == 404
    assert reply.json()["error"]["code"] == "not_found"


async def test_urls_use_the_public_address_if_one_is_set(tmp_path):
    async with serving(storage_url=str(tmp_path), public_base_url="https://img.example/") as gateway:
        reply = await gateway.generate(response_format="url")
        assert reply.json()["data"][0]["url"].startswith("https://img.example/v1/files/images/")


async def test_without_storage_urls_are_refused_before_painting():
    async with serving() as gateway:
        reply = await gateway.generate(response_format="url")
        assert error_of(reply) == (400, "response_format", "unsupported_parameter")
        assert gateway.painter.jobs == []


async def test_an_insane_host_header_does_not_end_up_in_a_url(gateway):
    body = b'{"prompt":"a","size":"64x64","num_inference_steps":1,"response_format":"url"}'
    head = b'POST /v1/images/generations HTTP/1.1\r\nhost: evil"><script>\r\ncontent-type: application/json\r\n'
    reply = await gateway.raw(head + b"connection: close\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
    assert b"script" not in reply
    assert f"http://127.0.0.1:{gateway.port}/v1/files".encode() in reply
