"""The gateway's app: routes, and around them, from the inside out: body caps, keys, the error net, CORS, identity."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from services import __version__
from services.gateway import errors
from services.gateway.auth import KeyGate, Keys
from services.gateway.context import Gateway
from services.gateway.jobs import Painter
from services.gateway.middleware import BodyCap, Cors, ErrorNet, Identity
from services.gateway.routes import images, models, probes
from services.gateway.settings import GatewaySettings

EXPOSED = ["x-request-id", "openai-processing-ms", "retry-after", "x-should-retry"]


def create_app(settings: GatewaySettings, painter: Painter) -> FastAPI:
    """The app. It starts and stops `painter` with itself."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        await painter.start()
        try:
            yield
        finally:
            await painter.stop()

    app = FastAPI(
        title="Diptych",
        version=__version__,
        lifespan=lifespan,
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )
    app.state.gateway = Gateway(settings=settings, painter=painter, created=int(time.time()))
    for router in (images.router, models.router, probes.router):
        app.include_router(router)
    errors.install(app)
    app.add_middleware(BodyCap, settings=settings)
    app.add_middleware(KeyGate, keys=Keys(settings.keys()))
    app.add_middleware(ErrorNet)
    if settings.cors_origins:
        app.add_middleware(
            Cors,
            allow_origins=settings.cors_origins,
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            expose_headers=EXPOSED,
            max_age=600,
        )
    app.add_middleware(Identity)
    return app
