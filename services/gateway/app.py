"""The gateway's app: routes, and around them, from the inside out: body caps, keys, the error net, CORS, identity."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from services import __version__
from services.gateway import errors
from services.gateway.auth import KeyGate, Keys
from services.gateway.context import Gateway
from services.gateway.image_input import ImageReader
from services.gateway.jobs import Painter
from services.gateway.middleware import BodyCap, Cors, ErrorNet, Identity
from services.gateway.routes import files, images, models, probes
from services.gateway.routes.playground import playground_routes, read_pages
from services.gateway.routes.reference import reference_routes
from services.gateway.settings import GatewaySettings
from services.gateway.storage import Storage
from services.gateway.url_fetch import UrlFetcher

EXPOSED = [
    "x-request-id",
    "openai-processing-ms",
    "retry-after",
    "x-should-retry",
    "server-timing",
    "x-queue-position",
    "x-estimated-seconds",
]


def create_app(settings: GatewaySettings, painter: Painter) -> FastAPI:
    """The app. It starts and stops `painter` with itself."""

    storage = (
        Storage(settings.storage_url, settings.storage_seconds, settings.storage_bytes)
        if settings.storage_url
        else None
    )
    reader = ImageReader(settings)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        await painter.start()
        sweeper = asyncio.create_task(storage.keep_sweeping()) if storage else None
        try:
            yield
        finally:
            if sweeper is not None:
                sweeper.cancel()
            reader.close()
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
    app.state.gateway = Gateway(
        settings=settings,
        painter=painter,
        created=int(time.time()),
        reader=reader,
        storage=storage,
        fetcher=UrlFetcher(settings.max_image_bytes, settings.fetch_timeout) if settings.fetch_urls else None,
    )
    for router in (images.router, models.router, files.router, probes.router, reference_routes()):
        app.include_router(router)
    if settings.playground:
        app.include_router(playground_routes(read_pages()))
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
