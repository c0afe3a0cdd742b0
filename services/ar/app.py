"""The AR service's routes."""

from math import inf

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from services.ar.service import ArService
from services.serving.app import Failure, create_app
from services.serving.http import packed, read_message, while_connected
from services.wire.gateway_to_ar import PriorRequest


def ar_app(
    service: ArService, *, max_body: int, on_failure: Failure | None = None, step_timeout: float = inf
) -> FastAPI:
    """The app around `service`. max_body: bytes of one message at most. step_timeout: see `create_app`."""
    app = create_app(service, on_failure, step_timeout=step_timeout)

    @app.post("/v1/priors")
    async def write_priors(request: Request) -> Response:
        message = await read_message(request, PriorRequest, max_body)
        return packed(await while_connected(request, service.write(message)))

    @app.delete("/v1/priors/{request_id}")
    async def release_priors(request_id: str) -> Response:
        service.abort(request_id)
        return Response(status_code=204)

    @app.post("/v1/probes")
    async def probe() -> Response:
        return packed(await service.probe())

    return app
