"""Stand-ins for stage replicas: real HTTP servers on free ports, with replies that a test can script."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import msgspec
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from services.gateway.jobs import Job, Painted
from services.gateway.painter import Pipeline
from services.gateway.painting import paint_one
from services.gateway.pipeline_settings import PipelineSettings
from services.wire import framing
from services.wire.ar_to_gateway import Prior
from services.wire.dit_to_gateway import Progress, Rendered, RenderEvent
from services.wire.errors import DiptychError
from services.wire.gateway_to_ar import PriorRequest
from services.wire.gateway_to_dit import RenderRequest
from services.wire.info import StageInfo
from services.wire.probe import Probe

WriteScript = Callable[[PriorRequest], Awaitable[Prior]]
PaintScript = Callable[[RenderRequest], AsyncIterator[RenderEvent]]


def _refusal(error: DiptychError) -> Response:
    return Response(framing.encode(error.body()), error.status, media_type=framing.MSGPACK)


class StandIn:
    """One replica. write, paint: the scripts; a test may replace them, and `info`, at any time."""

    def __init__(self, stage: str, port: int, capacity: int) -> None:
        self.info = StageInfo(
            instance=f"{stage}-{port}", stage=stage, ready=True, model="m", engine="sim", capacity=capacity
        )
        self.url = f"http://127.0.0.1:{port}"
        self.write: WriteScript = self.write_at_once
        self.paint: PaintScript = self.paint_at_once
        self.writes: list[PriorRequest] = []
        self.renders: list[RenderRequest] = []
        self.deleted: list[str] = []
        self.probes = 0
        self.unreachable: DiptychError | None = None
        self.running = 0
        self.most = 0

    async def write_at_once(self, request: PriorRequest) -> Prior:
        return Prior(
            request_id=request.request_id,
            ticket=f"{self.info.instance}/{request.seed}".encode(),
            text_tokens=3,
            image_tokens=0,
            prior_tokens=261,
            times={"ar": 0.01},
        )

    async def paint_at_once(self, request: RenderRequest) -> AsyncIterator[RenderEvent]:
        for step in range(request.steps):
            yield Progress(step + 1, request.steps)
        yield Rendered(image=b"image of " + request.ticket, width=64, height=64, times={"denoise": 0.01})

    async def _info(self, _request: Request) -> Response:
        return Response(msgspec.json.encode(self.info))

    async def _priors(self, request: Request) -> Response:
        message = framing.decode(await request.body(), PriorRequest)
        self.writes.append(message)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            return Response(framing.encode(await self.write(message)))
        except DiptychError as error:
            return _refusal(error)
        finally:
            self.running -= 1

    async def _renders(self, request: Request) -> Response:
        message = framing.decode(await request.body(), RenderRequest)
        self.renders.append(message)
        events = self.paint(message)
        try:
            first = await anext(events)
        except DiptychError as error:
            return _refusal(error)

        async def frames() -> AsyncIterator[bytes]:
            yield framing.frame(first)
            async for event in events:
                yield framing.frame(event)

        return StreamingResponse(frames())

    async def _delete(self, request: Request) -> Response:
        self.deleted.append(request.path_params["id"])
        return Response(status_code=204)

    async def _probe(self, request: Request) -> Response:
        self.probes += 1
        if self.unreachable is not None:
            return _refusal(self.unreachable)
        if self.info.stage == "ar":
            return Response(framing.encode(Probe(request_id=f"probe-{self.probes}", ticket=b"t")))
        framing.decode(await request.body(), Probe)
        return Response(status_code=204)

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/v1/info", self._info),
                Route("/v1/priors", self._priors, methods=["POST"]),
                Route("/v1/priors/{id}", self._delete, methods=["DELETE"]),
                Route("/v1/renders", self._renders, methods=["POST"]),
                Route("/v1/renders/{id}", self._delete, methods=["DELETE"]),
                Route("/v1/probes", self._probe, methods=["POST"]),
            ]
        )


@asynccontextmanager
async def stand_in(stage: str, capacity: int = 4) -> AsyncIterator[StandIn]:
    """A running replica; `stop_serving` is what the end of the context does."""
    listener = socket.create_server(("127.0.0.1", 0))
    replica = StandIn(stage, listener.getsockname()[1], capacity)
    server = uvicorn.Server(uvicorn.Config(replica.app(), log_config=None, lifespan="off"))
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield replica
    finally:
        server.should_exit = server.force_exit = True
        with suppress(asyncio.CancelledError):
            await task
        listener.close()


async def _eventually(true: Callable[[], object], within: float = 5.0) -> None:
    async with asyncio.timeout(within):
        while not true():
            await asyncio.sleep(0.01)


class World:
    """Replicas and pipelines of one test; all of them end with it."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack

    async def ar(self, capacity: int = 4) -> StandIn:
        return await self._stack.enter_async_context(stand_in("ar", capacity))

    async def dit(self, capacity: int = 1) -> StandIn:
        return await self._stack.enter_async_context(stand_in("dit", capacity))

    async def pipeline(self, ars: list[StandIn], dits: list[StandIn], **settings: Any) -> Pipeline:
        urls = {"ar_urls": ",".join(r.url for r in ars), "dit_urls": ",".join(r.url for r in dits)}
        made = Pipeline(PipelineSettings(**(urls | {"poll_interval": 0.05, "probe": False} | settings)))
        await made.start()
        self._stack.push_async_callback(made.stop)
        up = lambda replicas: sum(replica.info.ready for replica in replicas)  # noqa: E731
        await _eventually(lambda: len(made.ar.ready) == up(ars) and len(made.dit.ready) == up(dits))
        return made

    @staticmethod
    def job(**changes: Any) -> Job:
        fields: dict[str, Any] = {
            "request_id": "req_1",
            "tenant": "",
            "prompt": "a fox",
            "width": 64,
            "height": 64,
            "crop": (64, 64),
            "steps": 3,
            "guidance": 1.5,
            "seed": 7,
            "seed_given": True,
            "deadline": asyncio.get_running_loop().time() + 20,
        }
        return Job(**(fields | changes))

    @staticmethod
    async def image(painter: Pipeline, job: Job) -> Painted:
        """As a request does it: who has the image asks for no more events."""
        painter.reserve([job])
        return await paint_one(painter, job)

    eventually = staticmethod(_eventually)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        yield World(stack)
