"""The DiT service's routes."""

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from services.dit.service import DitService
from services.serving.app import Failure, create_app
from services.serving.http import EventReply, read_message
from services.wire.gateway_to_dit import RenderRequest


def dit_app(service: DitService, *, max_body: int, on_failure: Failure | None = None) -> FastAPI:
    """The app around `service`. max_body: bytes of one message at most."""
    app = create_app(service, on_failure)

    @app.post("/v1/renders")
    async def render(request: Request) -> Response:
        message = await read_message(request, RenderRequest, max_body)
        return EventReply(service.render(message))

    @app.delete("/v1/renders/{request_id}")
    async def abort_render(request_id: str) -> Response:
        service.ledger.abort(request_id)
        return Response(status_code=204)

    return app
