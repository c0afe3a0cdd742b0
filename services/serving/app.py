"""The HTTP shell of a stage service: probes, `/metrics`, `/v1/info`, typed errors, the engine's life, drain."""

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NoReturn, Protocol

import msgspec
from fastapi import FastAPI
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, generate_latest
from starlette.responses import Response

from services.observe.handoff import HANDOFF
from services.observe.tracing import TRACING
from services.serving.http import error_reply
from services.serving.ledger import JobLedger
from services.serving.pulse import Pulse
from services.serving.server import DrainingServer, configuration, end_now, listen
from services.serving.supervisor import EngineSupervisor
from services.wire.errors import DiptychError
from services.wire.info import StageInfo

log = logging.getLogger(__name__)

Failure = Callable[[BaseException], None]


class StageService(Protocol):
    """What the shell needs of the AR or the DiT service."""

    @property
    def supervisor(self) -> EngineSupervisor[Any]: ...
    @property
    def ledger(self) -> JobLedger: ...
    def info(self) -> StageInfo: ...
    async def drain(self) -> None: ...
    def close(self) -> None: ...


def _json(message: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(message), status_code=status, media_type="application/json")


def create_app(service: StageService, on_failure: Failure | None = None, *, step_timeout: float = math.inf) -> FastAPI:
    """The app of one stage service. on_failure: called when the engine cannot be kept alive any more.

    step_timeout: seconds after which a standing event loop ends the process.
    """

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        hide = HANDOFF.add(service.info().stage, lambda: service.info().handoff)
        pulse = Pulse(step_timeout)
        pulse.start()
        engine = asyncio.create_task(service.supervisor.run())
        engine.add_done_callback(lambda task: _report(task, on_failure))
        try:
            yield
        finally:
            service.supervisor.stop()
            await asyncio.gather(engine, return_exceptions=True)
            pulse.stop()
            hide()
            TRACING.stop()
            service.close()

    app = FastAPI(title="Diptych stage", lifespan=lifespan, openapi_url=None, docs_url=None, redoc_url=None)
    app.add_exception_handler(DiptychError, error_reply)
    app.add_exception_handler(Exception, error_reply)

    @app.get("/live")
    async def live() -> Response:
        return _json({"status": "ok"})

    @app.get("/ready")
    @app.get("/health")
    async def ready() -> Response:
        info = service.info()
        return _json(
            {"status": "ready" if info.ready else "unavailable", "reason": info.reason}, 200 if info.ready else 503
        )

    @app.get("/v1/info")
    async def info() -> Response:
        return _json(service.info())

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(generate_latest(REGISTRY), media_type=CONTENT_TYPE_LATEST)

    return app


def _report(task: "asyncio.Task[None]", on_failure: Failure | None) -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None and on_failure is not None:
        on_failure(error)


def serve(
    build: Callable[[Failure], FastAPI],
    drain: Callable[[], Awaitable[None]],
    *,
    host: str,
    port: int,
    setting: str,
    drain_timeout: float,
) -> NoReturn:
    """Run an app until it is told to stop, and end the process.

    build: makes the app, given what to call when the service cannot go on. setting: the variable that names the port.
    drain_timeout: seconds that a first signal waits for `drain`. Raises ConfigError if the port is taken.
    """
    socket = listen(host, port, setting)
    server: DrainingServer

    def fail(error: BaseException) -> None:
        server.fail(error)

    async def drain_in_time() -> None:
        try:
            async with asyncio.timeout(drain_timeout):
                await drain()
        except TimeoutError:
            log.warning("not drained within %g s: stopping all the same", drain_timeout)

    server = DrainingServer(configuration(build(fail)), drain_in_time)
    server.run(sockets=[socket])
    end_now(
        server.exit_code
    )  # all is closed; the interpreter's own end takes seconds, or for ever if an engine's thread hangs
