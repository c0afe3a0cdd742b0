"""The contract of the Images API, case by case, against the real stack."""

import base64
import io

import httpx
import pytest
from PIL import Image

pytestmark = pytest.mark.e2e

GENERATIONS, EDITS = "/v1/images/generations", "/v1/images/edits"
QUICK = {"prompt": "a", "size": "128x128", "num_inference_steps": 2}
FORM = {"prompt": "make it blue", "size": "128x128", "num_inference_steps": "2"}


@pytest.fixture(scope="module")
def http(base_url: str):
    with httpx.Client(base_url=base_url, timeout=300) as client:
        yield client


def upload(kind: str) -> tuple[str, bytes, str]:
    """(file name, bytes, declared type) of a small gradient, 160x96."""
    image = Image.linear_gradient("L").resize((160, 96)).convert("RGB")
    saved, options, form, label = image, {}, "PNG", "image/png"
    if kind == "rgba":
        saved = image.copy()
        saved.putalpha(128)
    elif kind == "palette":
        saved = image.convert("P")
    elif kind == "turned":
        exif = Image.Exif()
        exif[0x0112] = 6
        form, label, options = "JPEG", "image/jpeg", {"exif": exif}
    out = io.BytesIO()
    saved.save(out, form, **options)
    raw = out.getvalue()
    if kind == "truncated":
        raw = raw[: len(raw) // 2]
    if kind == "text":
        raw = b"this is not an image"
    return "upload", raw, "application/octet-stream" if kind == "unlabelled" else label


def images(reply: httpx.Response, http: httpx.Client) -> list[Image.Image]:
    assert reply.status_code == 200, reply.text
    raws = [
        base64.b64decode(datum["b64_json"]) if "b64_json" in datum else http.get(datum["url"]).content
        for datum in reply.json()["data"]
    ]
    return [Image.open(io.BytesIO(raw)) for raw in raws]


def error(reply: httpx.Response) -> tuple[int, str | None, str]:
    assert reply.headers["content-type"].startswith("application/json")
    found = reply.json()["error"]
    assert set(found) == {"message", "type", "param", "code"}
    return reply.status_code, found["param"], found["code"]


@pytest.mark.parametrize(
    ("fields", "size", "kind"),
    [
        ({}, (128, 128), "PNG"),
        ({"size": "128X96"}, (128, 96), "PNG"),
        ({"size": "200x136"}, (200, 136), "PNG"),
        ({"size": "144x112"}, (144, 112), "PNG"),
        ({"size": "auto", "num_inference_steps": 1}, (1024, 1024), "PNG"),
        ({"size": None, "n": None, "quality": None, "stream": None, "num_inference_steps": 1}, (1024, 1024), "PNG"),
        ({"output_format": "jpeg", "output_compression": 80}, (128, 128), "JPEG"),
        ({"output_format": "webp"}, (128, 128), "WEBP"),
        ({"response_format": "url"}, (128, 128), "PNG"),
        ({"prompt": '一只猫 🐈 с надписью "Привет"'}, (128, 128), "PNG"),
        ({"prompt": "the cat's hat isn't the dog's"}, (128, 128), "PNG"),
        (
            {"user": "u1", "moderation": "low", "style": "vivid", "quality": "low", "background": "opaque"},
            (128, 128),
            "PNG",
        ),
        ({"guidance_scale": 1.0}, (128, 128), "PNG"),
    ],
)
def test_a_generation_is_what_was_asked_for(http, fields, size, kind):
    [image] = images(http.post(GENERATIONS, json=QUICK | fields), http)
    assert (image.size, image.format) == (size, kind)


def test_n_images_differ_and_carry_their_seeds(http):
    reply = http.post(GENERATIONS, json=QUICK | {"n": 2, "seed": 7})
    first, second = images(reply, http)
    assert first.tobytes() != second.tobytes()
    assert [datum["seed"] for datum in reply.json()["data"]] == [7, 8]


def test_a_negative_prompt_changes_the_image(http):
    asked = QUICK | {"seed": 5, "guidance_scale": 4.0}
    [without] = images(http.post(GENERATIONS, json=asked), http)
    [negated] = images(http.post(GENERATIONS, json=asked | {"negative_prompt": '"TEXT" blurry'}), http)
    assert without.tobytes() != negated.tobytes()


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": "   "}, "prompt"),
        ({"prompt": None}, "prompt"),
        ({"prompt": "x" * 32_001}, "prompt"),
        ({"n": 0}, "n"),
        ({"n": 11}, "n"),
        ({"size": "0x0"}, "size"),
        ({"size": "-256x256"}, "size"),
        ({"size": "256*256"}, "size"),
        ({"size": "100000x10000"}, "size"),
        ({"size": "64x2048"}, "size"),
        ({"size": 256}, "size"),
        ({"output_format": "gif"}, "output_format"),
        ({"output_format": "jpeg", "output_compression": 101}, "output_compression"),
        ({"response_format": "file"}, "response_format"),
        ({"background": "transparent"}, "background"),
        ({"sise": "256x256"}, "sise"),
        ({"seed": 2**63}, "seed"),
        ({"seed": -1}, "seed"),
        ({"num_inference_steps": 0}, "num_inference_steps"),
        ({"stream": True, "partial_images": 4}, "partial_images"),
        ({"stream": True, "prompt": ""}, "prompt"),
    ],
)
def test_a_wrong_field_is_a_400_that_names_it(http, fields, param):
    assert error(http.post(GENERATIONS, json=QUICK | fields))[:2] == (400, param)


@pytest.mark.parametrize(
    ("method", "path", "body", "kind", "status"),
    [
        ("POST", GENERATIONS, b'{"prompt":"a","guidance_scale":NaN}', "application/json", 400),
        ("POST", GENERATIONS, b'{"prompt":', "application/json", 400),
        ("POST", GENERATIONS, b"", "application/json", 400),
        ("POST", GENERATIONS, b"hello", "text/plain", 415),
        ("GET", GENERATIONS, b"", "application/json", 405),
        ("POST", "/v1/v1/images/generations", b'{"prompt":"a"}', "application/json", 404),
        ("POST", "/v1/images/variations", b'{"prompt":"a"}', "application/json", 404),
        ("POST", GENERATIONS, b'{"prompt":"a","model":"dall-e-9"}', "application/json", 404),
    ],
)
def test_a_wrong_call_has_its_status_and_the_error_shape(http, method, path, body, kind, status):
    reply = http.request(method, path, content=body, headers={"content-type": kind})
    assert error(reply)[0] == status


@pytest.mark.parametrize(
    ("fields", "partial"),
    [({"partial_images": 2, "num_inference_steps": 6}, 2), ({}, 0)],
)
def test_streams_have_the_documented_events(http, fields, partial):
    text = http.post(GENERATIONS, json=QUICK | {"stream": True} | fields).text
    names = [line.removeprefix("event: ") for line in text.splitlines() if line.startswith("event:")]
    assert names == ["image_generation.partial_image"] * partial + ["image_generation.completed"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [("image", "png"), ("image[]", "png"), ("image", "unlabelled"), ("image", "rgba"), ("image", "palette")],
)
def test_an_edit_takes_any_spelling_and_kind(http, name, kind):
    [image] = images(http.post(EDITS, data=FORM, files={name: upload(kind)}), http)
    assert image.size == (128, 128)


def test_an_edit_of_a_turned_photo_is_upright(http):
    form = FORM | {"size": "auto", "num_inference_steps": "1"}
    [image] = images(http.post(EDITS, data=form, files={"image": upload("turned")}), http)
    assert image.height > image.width


def test_an_edit_as_json_with_a_data_url(http):
    url = f"data:image/png;base64,{base64.b64encode(upload('png')[1]).decode()}"
    [image] = images(http.post(EDITS, json=QUICK | {"images": [{"image_url": url}]}), http)
    assert image.size == (128, 128)


@pytest.mark.parametrize(
    ("files", "fields", "param"),
    [
        ([("image[]", "png"), ("image[]", "png")], {}, "image"),
        ([("image", "png"), ("mask", "rgba")], {}, "mask"),
        ([], {}, "image"),
        ([("image", "text")], {}, "image"),
        ([("image", "truncated")], {}, "image"),
        ([("image", "png")], {"n": "two"}, "n"),
    ],
)
def test_a_wrong_edit_is_a_400_that_names_it(http, files, fields, param):
    parts = [(name, upload(kind)) for name, kind in files] or {"nothing": ("", b"")}
    assert error(http.post(EDITS, data={"prompt": "x"} | fields, files=parts))[:2] == (400, param)


def test_urls_are_not_fetched_unless_enabled(http):
    body = {"prompt": "x", "images": [{"image_url": "http://127.0.0.1:1/x.png"}]}
    assert error(http.post(EDITS, json=body))[0] == 400
