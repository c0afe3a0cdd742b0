"""What the routes share: one object on `app.state`."""

import asyncio
from dataclasses import dataclass
from typing import cast

from starlette.requests import Request

from services.gateway.jobs import Painter
from services.gateway.orders import Caller
from services.gateway.settings import GatewaySettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """The settings, the painter, and when this process began (unix seconds)."""

    settings: GatewaySettings
    painter: Painter
    created: int


def gateway_of(request: Request) -> Gateway:
    """The gateway that serves `request`."""
    return cast("Gateway", request.app.state.gateway)


def caller_of(request: Request) -> Caller:
    """Whose request this is, and until when it may take."""
    return Caller(
        request_id=request.state.request_id,
        tenant=request.state.tenant,
        deadline=asyncio.get_running_loop().time() + gateway_of(request).settings.deadline,
    )
