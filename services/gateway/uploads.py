"""The two bodies that an edit may come in: a form with an image part, or JSON with an image URL."""

import io
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import IO
from urllib.parse import unquote_to_bytes

import pybase64
from python_multipart.multipart import parse_options_header
from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request

from services.gateway.errors import ApiError, bad_request
from services.gateway.parsing import checked, coerced, read_json
from services.gateway.requests import EditFields, EditRequest, ImageReference

MAX_FILES = 18  # 16 images and a mask are legal at OpenAI; we read that many in order to say what is wrong
MAX_FIELDS = 64
MAX_FIELD = 256 * 1024  # bytes: 32,000 characters are 128 KiB at most
IMAGE_PART = re.compile(r"image(\[[0-9]*\])?")
MASK_PART = re.compile(r"mask(\[[0-9]*\])?")
DATA_URL = re.compile(r"data:([^,]*),", re.IGNORECASE)
ONE_IMAGE = "GLM-Image edits exactly one image; {} were given."


@dataclass(frozen=True, slots=True)
class Upload:
    """An edit's fields and its one image: a file of `size` bytes, or `url` to fetch. `param` names it in errors."""

    fields: EditFields
    param: str
    file: IO[bytes] | None
    size: int = 0
    url: str = ""


def no_mask(param: str = "mask") -> ApiError:
    """The refusal of a mask."""
    return bad_request("GLM-Image has no inpainting: leave the mask out.", param, "unsupported_parameter")


@asynccontextmanager
async def read_form(request: Request, *, allow_unknown: bool) -> AsyncIterator[Upload]:
    """The upload of a form; its file is gone afterwards. Raises ApiError 400 or 415."""
    _, options = parse_options_header(request.headers.get("content-type", ""))
    if options.get(b"charset", b"utf-8").lower() not in {b"utf-8", b"utf8", b"us-ascii"}:
        raise ApiError(415, "Forms are read as UTF-8.")
    form = await request.form(max_files=MAX_FILES, max_fields=MAX_FIELDS, max_part_size=MAX_FIELD)
    try:
        yield _upload(form, allow_unknown=allow_unknown)
    finally:
        await form.close()


def _upload(form: FormData, *, allow_unknown: bool) -> Upload:
    images = [value for name, value in form.multi_items() if IMAGE_PART.fullmatch(name)]
    others = [(name, value) for name, value in form.multi_items() if not IMAGE_PART.fullmatch(name)]
    texts = _texts(others, allow_unknown=allow_unknown)
    fields = checked(coerced(texts, EditFields), EditFields, allow_unknown=allow_unknown)
    if not images:
        raise bad_request("Missing required parameter: 'image'.", "image", "missing_required_parameter")
    if len(images) > 1:
        raise bad_request(ONE_IMAGE.format(len(images)), "image", "too_many_images")
    if isinstance(images[0], str):
        raise bad_request("'image' must be a file: give the part a filename.", "image", "invalid_type")
    return Upload(fields, "image", images[0].file, images[0].size or 0)


def _texts(parts: list[tuple[str, UploadFile | str]], *, allow_unknown: bool) -> dict[str, str]:
    """The text parts, each at most once. Raises ApiError 400."""
    texts: dict[str, str] = {}
    for name, value in parts:
        if MASK_PART.fullmatch(name):
            raise no_mask()
        if name in texts:
            raise bad_request(f"'{name[:80]}' was given more than once.", name[:80])
        if isinstance(value, str):
            texts[name] = value
        elif name in EditFields.model_fields:
            raise bad_request(f"'{name}' must be text, not a file.", name, "invalid_type")
        elif value.size and not allow_unknown:
            raise bad_request(f"Unknown file part: '{name[:80]}'.", name[:80], "unknown_parameter")
    return texts


async def read_references(request: Request, *, allow_unknown: bool) -> Upload:
    """The upload of a JSON edit. Raises ApiError 400."""
    fields = await read_json(request)
    if fields.get("mask") is not None:
        raise no_mask()
    asked = checked(fields, EditRequest, allow_unknown=allow_unknown)
    if len(asked.images) > 1:
        raise bad_request(ONE_IMAGE.format(len(asked.images)), "images", "too_many_images")
    return _referenced(asked, asked.images[0])


def _referenced(asked: EditRequest, reference: ImageReference) -> Upload:
    param = "images[0].image_url"
    if reference.file_id is not None:
        message = "There is no file store: send the image as a data URL."
        raise bad_request(message, "images[0].file_id", "unsupported_parameter")
    if not reference.image_url:
        raise bad_request(f"Missing required parameter: '{param}'.", param, "missing_required_parameter")
    if re.match(r"https?:", reference.image_url, re.IGNORECASE):
        return Upload(asked, param, None, url=reference.image_url)
    raw = data_of(reference.image_url, param)
    return Upload(asked, param, io.BytesIO(raw), len(raw))


def data_of(url: str, param: str) -> bytes:
    """The bytes of a data URL (RFC 2397), or of bare base64. Raises ApiError 400 that names `param`."""
    match = DATA_URL.match(url)
    text = url[match.end() :] if match else url
    if match is not None and not match[1].lower().endswith(";base64"):
        return unquote_to_bytes(text)
    try:
        return pybase64.b64decode(text.encode("ascii"), validate=True)
    except ValueError as error:
        raise bad_request("The image is neither an http(s) URL nor valid base64.", param) from error
