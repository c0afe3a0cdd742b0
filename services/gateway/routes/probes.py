"""Is it alive, can it paint, what is it, and how much has it done."""

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from services import __version__
from services.gateway.context import gateway_of
from services.gateway.errors import ApiError
from services.observe.metrics import exposition

router = APIRouter(tags=["probes"])


@router.api_route("/live", methods=["GET", "HEAD"])
async def live() -> dict[str, str]:
    """The process answers."""
    return {"status": "ok"}


async def ready(request: Request) -> Response:
    """Both stages take work, and this gateway does not drain."""
    reason = gateway_of(request).painter.unready()
    if not reason:
        return JSONResponse({"status": "ok"})
    error = ApiError(503, f"Not ready: {reason}")
    return JSONResponse({"status": "unavailable", "reason": reason, **error.body()}, 503, headers=error.headers)


router.api_route("/ready", methods=["GET", "HEAD"])(ready)
router.api_route("/health", methods=["GET", "HEAD"])(ready)


@router.get("/version")
async def version(request: Request) -> dict[str, str]:
    """What runs here."""
    return {"name": "diptych", "version": __version__, "model": gateway_of(request).settings.model}


@router.get("/v1/info")
async def info(request: Request) -> Response:
    """This gateway, and every replica that it knows: what `diptych status` prints."""
    return Response(msgspec.json.encode(gateway_of(request).painter.info()), media_type="application/json")


@router.get("/metrics")
async def metrics() -> Response:
    """Prometheus metrics."""
    body, kind = exposition()
    return Response(body, media_type=kind)
