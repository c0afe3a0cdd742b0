"""Owns the one engine of a stage service: starts it, watches it, restarts it when it dies, stops it."""

import asyncio
import logging
import math
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from services.serving.engine import StageEngine
from services.wire.errors import ConfigError, DiptychError, EngineDied, StageUnavailable

log = logging.getLogger(__name__)

Engine = TypeVar("Engine", bound=StageEngine)

STOP_TIMEOUT = 30.0  # seconds for an engine's processes to go
MAX_BACKOFF = 30.0  # seconds between restarts at most
SETTLED = 60.0  # seconds of health after which earlier restarts no longer count


class EngineSupervisor(Generic[Engine]):
    """The engine's life: `starting` -> `ready` -> (`restarting` -> `ready`)* -> `stopped` or `failed`.

    build: makes a fresh, unstarted engine. `run` returns when stopped and raises the last error when it gives up.
    """

    def __init__(
        self,
        build: Callable[[], Engine],
        *,
        start_timeout: float,
        health_interval: float,
        max_restarts: int,
    ) -> None:
        self._build = build
        self._start_timeout = start_timeout
        self._health_interval = health_interval
        self._max_restarts = max_restarts
        self._engine: Engine | None = None
        self._died = asyncio.Event()
        self._stopping = asyncio.Event()
        self.state = "starting"
        self.reason = "the engine is starting"
        self.restarts = 0
        self._lived = 0.0  # seconds that the last engine was ready; -inf if it never was

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
            failures = 1 if self._lived > SETTLED else failures + 1
            if failures > self._max_restarts:
                self.state, self.reason = "failed", f"gave up after {failures} failures: {error}"
                raise error
            await self._pause(min(MAX_BACKOFF, 0.5 * 2**failures))
        self.state, self.reason = "stopped", "the service is stopping"

    async def _one_life(self) -> DiptychError | None:
        engine, ready_at = self._build(), math.inf
        try:
            await self._start(engine)
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
            await self._stop_engine(engine)
        return None

    async def _start(self, engine: Engine) -> None:
        try:
            async with asyncio.timeout(self._start_timeout):
                await engine.start()
        except TimeoutError as error:
            raise EngineDied(f"the engine was not ready within {self._start_timeout:g} s") from error
        self._died.clear()
        self._engine = engine
        self.state, self.reason = "ready", ""
        log.info("engine ready")

    async def _watch(self, engine: Engine) -> None:
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            while not self._stopping.is_set():
                await engine.check_health()
                died = asyncio.ensure_future(self._died.wait())
                await asyncio.wait({died, stopping}, timeout=self._health_interval, return_when="FIRST_COMPLETED")
                died.cancel()
                self._died.clear()
        finally:
            stopping.cancel()

    def _lost(self, error: DiptychError) -> None:
        self._engine = None
        self.restarts += 1
        self.state, self.reason = "restarting", f"the engine is restarting: {error}"
        log.error("engine lost, restarting: %s", error)

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return

    async def _stop_engine(self, engine: Engine) -> None:
        try:
            async with asyncio.timeout(STOP_TIMEOUT):
                await engine.stop()
        except TimeoutError:
            log.exception("the engine did not stop within %g s", STOP_TIMEOUT)
