"""`GET /v1/models` and `/v1/models/{id}`."""

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request

from services.gateway.context import Gateway, gateway_of
from services.gateway.errors import ApiError

router = APIRouter(prefix="/v1/models", tags=["models"])


def _card(gateway: Gateway, name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": gateway.created, "owned_by": "diptych"}


def _names(gateway: Gateway) -> list[str]:
    return list(dict.fromkeys([gateway.settings.model, *gateway.settings.model_aliases]))


@router.get("")
async def list_models(request: Request) -> dict[str, Any]:
    """The served model, and every alias that it answers to."""
    gateway = gateway_of(request)
    return {"object": "list", "data": [_card(gateway, name) for name in _names(gateway)]}


@router.get("/{model:path}")
async def one_model(request: Request) -> dict[str, Any]:
    """One model."""
    gateway = gateway_of(request)
    name = request.path_params["model"]
    if name not in _names(gateway):
        raise ApiError(404, f"The model {name[:80]!r} does not exist here.", code="model_not_found", param="model")
    return _card(gateway, name)
