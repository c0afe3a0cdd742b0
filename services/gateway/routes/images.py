"""`POST /v1/images/generations` and `/v1/images/edits`."""

import re

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from services.gateway.context import Gateway, caller_of, gateway_of
from services.gateway.errors import ApiError, bad_request
from services.gateway.jobs import Painted
from services.gateway.orders import Caller, InputImage, Order, check_support, decide
from services.gateway.painting import before, paint_all, places
from services.gateway.parsing import checked, content_type, read_json
from services.gateway.reply import images_reply
from services.gateway.requests import GenerationRequest
from services.gateway.sse import EventStream
from services.gateway.uploads import Upload, read_form, read_references
from services.serving.http import while_connected
from services.wire.errors import Cancelled

router = APIRouter(prefix="/v1/images", tags=["images"])

_HOST = re.compile(r"[A-Za-z0-9._:\[\]-]{1,255}")


@router.post("/generations")
async def generate(request: Request) -> Response:
    """Paint `n` images from a prompt: all of them, or an error."""
    gateway = gateway_of(request)
    caller = caller_of(request)
    if content_type(request) != "application/json":
        raise ApiError(415, "Send JSON: content-type: application/json.")
    fields = await read_json(request)
    asked = checked(fields, GenerationRequest, allow_unknown=gateway.settings.allow_unknown_parameters)
    check_support(asked, gateway.settings)
    return await answer(request, gateway, decide(asked, gateway.settings, caller))


@router.post("/edits")
async def edit(request: Request) -> Response:
    """Paint `n` variants of an image that follow a prompt."""
    gateway = gateway_of(request)
    caller = caller_of(request)
    unknown = gateway.settings.allow_unknown_parameters
    kind = content_type(request)
    if kind == "multipart/form-data":
        async with read_form(request, allow_unknown=unknown) as upload:
            order = await edit_order(gateway, caller, upload)
    elif kind == "application/json":
        order = await edit_order(gateway, caller, await read_references(request, allow_unknown=unknown))
    else:
        raise ApiError(415, "Send a form (multipart/form-data), or JSON (application/json).")
    return await answer(request, gateway, order)


async def edit_order(gateway: Gateway, caller: Caller, upload: Upload) -> Order:
    """The order of an edit, its image read. Raises ApiError."""
    check_support(upload.fields, gateway.settings)
    async with before(caller.deadline):
        image = await _image(gateway, upload)
    return decide(upload.fields, gateway.settings, caller, image)


async def _image(gateway: Gateway, upload: Upload) -> InputImage:
    if upload.file is not None:
        return await gateway.reader.read(upload.file, upload.size, upload.param)
    if gateway.fetcher is None:
        message = "This gateway fetches no URLs: send the image as a data URL."
        raise bad_request(message, upload.param, "unsupported_parameter")
    file, size = await gateway.fetcher.fetch(upload.url, upload.param)
    with file:
        return await gateway.reader.read(file, size, upload.param)


async def answer(request: Request, gateway: Gateway, order: Order) -> Response:
    """Paint `order`, and end its jobs if the caller leaves."""
    if order.stream:
        return EventStream(gateway.painter, order, gateway.settings.keep_alive)
    with places(gateway.painter, order.jobs):
        try:
            painted = await while_connected(request, paint_all(gateway.painter, order.jobs))
        except Cancelled as error:
            if await request.is_disconnected():
                raise ApiError(499, "The caller left.", code="client_closed_request") from error
            raise
    urls = await _stored(request, gateway, order, painted) if order.as_url else None
    return images_reply(order, painted, urls)


async def _stored(request: Request, gateway: Gateway, order: Order, painted: list[Painted]) -> list[str]:
    if gateway.storage is None:
        raise ApiError(503, "This gateway stores no results.")
    base = gateway.settings.public_base_url.rstrip("/") or _own_base(request)
    try:
        names = [await gateway.storage.put(image.image, order.format) for image in painted]
    except OSError as error:
        raise ApiError(503, "The storage of results does not take the images now.") from error
    return [f"{base}/v1/files/images/{name}" for name in names]


def _own_base(request: Request) -> str:
    """How this caller reached the gateway: its Host header if that looks like one, else the socket's address."""
    host = request.headers.get("host", "")
    if not _HOST.fullmatch(host):
        address, port = request.scope.get("server") or ("127.0.0.1", None)
        host = f"{address}:{port}" if port else str(address)
    return f"{request.url.scheme}://{host}"
