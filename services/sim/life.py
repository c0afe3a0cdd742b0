"""What both simulator engines share: start, abort, health, stop."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from services.serving.identity import identify
from services.sim.core import EngineCore
from services.sim.faults import Faults
from services.sim.settings import SimSettings
from services.wire.errors import Cancelled
from services.wire.info import StageInfo

log = logging.getLogger(__name__)


class SimEngine:
    """An engine without a model. faults: shared by all engines that one service builds, so that draws go on."""

    name = "sim"

    def __init__(self, settings: SimSettings, faults: Faults) -> None:
        self.settings = settings
        self.faults = faults
        self.core = EngineCore()
        self._jobs: dict[str, asyncio.Task[object] | None] = {}
        self._aborted: set[str] = set()
        self._places: asyncio.Semaphore | None = None
        self._alive_at = time.monotonic()

    def __len__(self) -> int:
        return len(self._jobs)

    async def start(self) -> None:
        """Start the core. Raises EngineDied as often as `start_failures` says."""
        self.faults.at_start()
        await self.core.start()
        await asyncio.sleep(self.settings.start_seconds)
        await self.core.beat()

    async def check_health(self) -> None:
        """Raises EngineDied if the core is gone."""
        self.core.check()

    async def stop(self) -> None:
        """End the core."""
        await self.core.kill()

    async def abort(self, request_id: str) -> None:
        """End a job; nothing if there is none of this id."""
        task = self._jobs.get(request_id)
        if task is not None:
            self._aborted.add(request_id)
            task.cancel()

    def alive(self) -> None:
        """The engine made a step."""
        self._alive_at = time.monotonic()

    def stalled(self) -> float:
        """Seconds since the last step while there is work; 0 when idle."""
        return time.monotonic() - self._alive_at if self._jobs else 0.0

    @asynccontextmanager
    async def running(self, request_id: str) -> AsyncIterator[None]:
        """One job, in the current task. Raises Cancelled after `abort`, EngineDied when the core goes meanwhile."""
        if not self._jobs:
            self.alive()
        self._jobs[request_id] = asyncio.current_task()
        try:
            yield
        except asyncio.CancelledError:
            if request_id in self._aborted:
                raise Cancelled("aborted") from None
            raise
        finally:
            self._aborted.discard(request_id)
            self._jobs.pop(request_id, None)

    @asynccontextmanager
    async def _batch(self, places: int) -> AsyncIterator[None]:
        if self._places is None:
            self._places = asyncio.Semaphore(places)
        async with self._places:
            yield


def simulated(stage: str, capacity: int) -> StageInfo:
    """The identity of a service with a simulator inside: both its model and its engine are called `sim`."""
    log.warning("engine=sim: this %s service paints nothing real", stage)
    return identify(stage, model="sim", fingerprint="sim", engine="sim", capacity=capacity)
