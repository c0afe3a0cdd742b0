"""The gateway's app in this process, behind a real socket, with a painter of the test's choice."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

import httpx
import uvicorn

from services.gateway.app import create_app
from services.gateway.protocol import bounded
from services.gateway.settings import GatewaySettings
from services.serving.server import configuration, listen
from tests.service.gateway.fakes import FakePainter


class QuietServer(uvicorn.Server):
    """Leaves pytest's signal handlers alone."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@dataclass(frozen=True)
class Served:
    """A running gateway and a client of it."""

    url: str
    port: int
    painter: FakePainter
    http: httpx.AsyncClient

    async def generate(self, **fields) -> httpx.Response:
        body = {"prompt": "a red apple", "size": "64x64", "num_inference_steps": 2} | fields
        return await self.http.post("/v1/images/generations", json=body)

    async def raw(self, request: bytes) -> bytes:
        """Send bytes as they are; everything that comes back until the gateway closes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(request)
        try:
            async with asyncio.timeout(10):
                return await reader.read()
        finally:
            writer.close()


@asynccontextmanager
async def serving(painter: FakePainter | None = None, **settings) -> AsyncIterator[Served]:
    """A gateway on a free port. Storage is off unless a setting says otherwise."""
    painter = painter or FakePainter()
    bound = listen("127.0.0.1", 0, "DIPTYCH_GATEWAY_PORT")
    port = bound.getsockname()[1]
    app = create_app(GatewaySettings(**{"storage_url": "", **settings}), painter)
    server = QuietServer(bounded(configuration(app)))
    task = asyncio.create_task(server.serve(sockets=[bound]))
    url = f"http://127.0.0.1:{port}"
    try:
        async with httpx.AsyncClient(base_url=url, timeout=30) as client:
            await client.get("/live")  # answered once the app's start is done
            yield Served(url, port, painter, client)
    finally:
        server.should_exit = True
        await task
