"""`POST /v1/images/generations` and `/v1/images/edits`."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from services.gateway.context import Gateway, caller_of, gateway_of
from services.gateway.errors import ApiError
from services.gateway.orders import Order, check_support, decide
from services.gateway.painting import paint_all, places
from services.gateway.parsing import checked, content_type, read_json
from services.gateway.reply import images_reply
from services.gateway.requests import GenerationRequest
from services.serving.http import while_connected

router = APIRouter(prefix="/v1/images", tags=["images"])


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


async def answer(request: Request, gateway: Gateway, order: Order) -> Response:
    """Paint `order`, and end its jobs if the caller leaves."""
    with places(gateway.painter, order.jobs):
        painted = await while_connected(request, paint_all(gateway.painter, order.jobs))
    return images_reply(order, painted, None)
