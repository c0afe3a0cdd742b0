"""Failures to order."""

import asyncio
import logging
import os
import random

from services.sim.core import EngineCore
from services.sim.settings import SimSettings
from services.wire.errors import EngineDied, EngineFailed

log = logging.getLogger(__name__)

EXIT_CODE = 70  # of a service that is told to die


class Faults:
    """Draws what goes wrong, job by job, from one seeded source."""

    def __init__(self, settings: SimSettings) -> None:
        self._settings = settings
        self._random = random.Random(settings.seed)  # noqa: S311  (failures to order, not secrets)
        self._starts = 0

    def at_start(self) -> None:
        """Raises EngineDied for the first `start_failures` starts."""
        self._starts += 1
        if self._starts <= self._settings.start_failures:
            raise EngineDied(f"simulated: start {self._starts} fails")

    async def in_job(self, core: EngineCore) -> None:
        """What happens to this job: nothing, mostly."""
        settings = self._settings
        if self._draw(settings.exit_rate):
            log.error("simulated: this service dies")
            os._exit(EXIT_CODE)
        if self._draw(settings.die_rate):
            log.error("simulated: the engine core dies")
            await core.kill()
            core.check()
        if self._draw(settings.hang_rate):
            log.error("simulated: this job hangs")
            await asyncio.Event().wait()
        if self._draw(settings.fail_rate):
            raise EngineFailed("simulated: the engine refuses this job")

    def invalid(self) -> bool:
        """Whether this prior gets a token out of range."""
        return self._draw(self._settings.invalid_rate)

    def _draw(self, rate: float) -> bool:
        return rate > 0 and self._random.random() < rate
