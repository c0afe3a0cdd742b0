"""Owns the one engine of a stage service: starts it, watches it, restarts it when it dies or hangs, stops it."""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from services.observe import metrics
from services.serving.engine import StageEngine, Watched
from services.wire.errors import ConfigError, DiptychError, EngineDied, EngineFailed, StageUnavailable

log = logging.getLogger(__name__)

Engine = TypeVar("Engine", bound=StageEngine)

STOP_TIMEOUT = 60.0  # seconds for an engine's processes to go; the engines themselves give up sooner
MAX_BACKOFF = 30.0  # seconds between restarts at most
SETTLED = 60.0  # seconds of health after which earlier restarts no longer count


class EngineSupervisor(Generic[Engine]):
    """The engine's life: `starting` -> `ready` -> (`restarting` -> `ready`)* -> `stopped` or `failed`.

    build: makes a fresh, unstarted engine. step_timeout: seconds that an engine with work may go without a step, and
    that a health check may take. warm_up: run on a started engine before it gets work. on_lost: told why the running
    jobs cannot end well. `run` returns when stopped and raises the last error when it gives up.
    """

    def __init__(
        self,
        build: Callable[[], Engine],
        *,
        start_timeout: float,
        health_interval: float,
        max_restarts: int,
        step_timeout: float = math.inf,
        stage: str = "",
    ) -> None:
        self._build = build
        self._start_timeout = start_timeout
        self._health_interval = health_interval
        self._max_restarts = max_restarts
        self._step_timeout = step_timeout
        self._stage = stage
        self._engine: Engine | None = None
        self._died = asyncio.Event()
        self._stopping = asyncio.Event()
        self._lived = 0.0  # seconds that the last engine was ready; -inf if it never was
        self.warm_up: Callable[[Engine], Awaitable[None]] | None = None
        self.on_lost: Callable[[DiptychError], object] | None = None
        self.state = "starting"
        self.reason = "the engine is starting"
        self.restarts = 0
        self.worked = False  # the current engine ended a job well: if it dies, that is no crash loop

    @property
    def ready(self) -> bool:
        return self._engine is not None

    @property
    def engine(self) -> Engine:
        """The running engine. Raises StageUnavailable while there is none."""
        if self._engine is None:
            raise StageUnavailable(self.reason, retry_after=5)
        return self._engine

    def report(self, error: DiptychError) -> None:
        """A job saw the engine die: look at once instead of at the next poll."""
        if isinstance(error, EngineDied):
            self._died.set()

    def stop(self) -> None:
        """Ask `run` to stop the engine and return."""
        self._stopping.set()

    async def run(self) -> None:
        """Keep an engine alive until `stop`. Raises the last error after `max_restarts` failures in a row."""
        failures = 0
        while not self._stopping.is_set():
            error = await self._one_life()
            if error is None:
                break
            failures = 1 if self.worked or self._lived > SETTLED else failures + 1
            if failures > self._max_restarts:
                self.state, self.reason = "failed", f"gave up after {failures} failures: {error}"
                raise error
            await self._pause(min(MAX_BACKOFF, 0.5 * 2**failures))
        self.state, self.reason = "stopped", "the service is stopping"

    async def _one_life(self) -> DiptychError | None:
        engine, ready_at = self._build(), math.inf
        try:
            if not await self._start(engine):
                return None
            ready_at = time.monotonic()
            await self._watch(engine)
        except ConfigError as error:
            self.state, self.reason = "failed", error.message
            raise
        except DiptychError as error:
            self._lost(error)
            return error
        finally:
            self._lived = time.monotonic() - ready_at
            self._engine = None
            metrics.ENGINE_READY.labels(self._stage).set(0)
            await self._stop_engine(engine)
        return None

    async def _start(self, engine: Engine) -> bool:
        """Start and warm the engine; False if `stop` was called meanwhile."""
        metrics.ENGINE_STARTS.labels(self._stage).inc()
        starting = asyncio.ensure_future(self._start_and_warm(engine))
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({starting, stopping}, timeout=self._start_timeout, return_when="FIRST_COMPLETED")
            if starting.done():
                starting.result()
            elif not stopping.done():
                raise EngineDied(f"the engine was not ready within {self._start_timeout:g} s")
        finally:
            stopping.cancel()
            starting.cancel()
            await asyncio.gather(starting, stopping, return_exceptions=True)
        if self._stopping.is_set():
            return False
        self._died.clear()
        self.worked = False
        self._engine = engine
        self.state, self.reason = "ready", ""
        metrics.ENGINE_READY.labels(self._stage).set(1)
        log.info("engine ready")
        return True

    async def _start_and_warm(self, engine: Engine) -> None:
        await engine.start()
        if self.warm_up is None:
            return
        self.reason = "the engine is warming up"
        try:
            await self.warm_up(engine)
        except EngineFailed as error:
            raise EngineDied(f"the engine cannot do its warm-up job: {error}") from error

    async def _watch(self, engine: Engine) -> None:
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            while not self._stopping.is_set():
                await self._check(engine)
                died = asyncio.ensure_future(self._died.wait())
                await asyncio.wait({died, stopping}, timeout=self._health_interval, return_when="FIRST_COMPLETED")
                died.cancel()
                self._died.clear()
        finally:
            stopping.cancel()

    async def _check(self, engine: Engine) -> None:
        try:
            async with asyncio.timeout(None if math.isinf(self._step_timeout) else self._step_timeout):
                await engine.check_health()
        except TimeoutError as error:
            raise EngineDied(f"the engine did not answer a health check within {self._step_timeout:g} s") from error
        watched: object = engine
        if isinstance(watched, Watched) and (stalled := watched.stalled()) > self._step_timeout:
            raise EngineDied(f"the engine hangs: no step for {stalled:.1f} s (DIPTYCH_STEP_TIMEOUT)")

    def _lost(self, error: DiptychError) -> None:
        self._engine = None
        self.restarts += 1
        self.state, self.reason = "restarting", f"the engine is restarting: {error}"
        metrics.ENGINE_DEATHS.labels(self._stage).inc()
        log.error("engine lost, restarting: %s", error)
        if self.on_lost is not None:
            self.on_lost(EngineDied(f"the engine died under this job: {error}"))

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return

    async def _stop_engine(self, engine: Engine) -> None:
        """Raises EngineDied, which ends the service, if the engine cannot be stopped: two would share its devices."""
        try:
            async with asyncio.timeout(STOP_TIMEOUT):
                await engine.stop()
        except TimeoutError as error:
            raise EngineDied(f"the engine did not stop within {STOP_TIMEOUT:g} s") from error
