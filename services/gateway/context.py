"""What the routes share: one object on `app.state`."""

import asyncio
from dataclasses import dataclass
from typing import cast

from starlette.requests import Request

from services.gateway.image_input import ImageReader
from services.gateway.jobs import Painter
from services.gateway.orders import Caller
from services.gateway.settings import GatewaySettings
from services.gateway.storage import Storage
from services.gateway.url_fetch import UrlFetcher


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """What answers a request. created: unix seconds of the start. storage, fetcher: None if off."""

    settings: GatewaySettings
    painter: Painter
    created: int
    reader: ImageReader
    storage: Storage | None
    fetcher: UrlFetcher | None


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
