"""The DiT service's routes."""

from math import inf

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from services.dit.service import DitService
from services.serving.app import Failure, create_app
from services.serving.http import EventReply, read_message
from services.wire.gateway_to_dit import RenderRequest
from services.wire.probe import Probe


def dit_app(
    service: DitService, *, max_body: int, on_failure: Failure | None = None, step_timeout: float = inf
) -> FastAPI:
    """The app around `service`. max_body: bytes of one message at most. step_timeout: see `create_app`."""
    app = create_app(service, on_failure, step_timeout=step_timeout)

    @app.post("/v1/renders")
    async def render(request: Request) -> Response:
        message = await read_message(request, RenderRequest, max_body)
        return EventReply(service.render(message))

    @app.delete("/v1/renders/{request_id}")
    async def abort_render(request_id: str) -> Response:
        service.ledger.abort(request_id)
        return Response(status_code=204)

    @app.post("/v1/probes")
    async def probe(request: Request) -> Response:
        await service.probe(await read_message(request, Probe, max_body))
        return Response(status_code=204)

    return app
