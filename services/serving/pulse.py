"""A watchdog for the event loop itself: a service whose loop stands still can neither answer nor recover."""

import asyncio
import faulthandler
import logging
import math
import os
import sys
import threading
import time

log = logging.getLogger(__name__)

EXIT_CODE = 70  # EX_SOFTWARE: the process supervisor restarts it
BEAT = 0.5  # seconds


class Pulse:
    """Ends the process, with all stacks on stderr, when its event loop did not run for `limit` seconds.

    A process that was stopped (SIGSTOP, a paused container) does not count: the watching thread stood still, too.
    """

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._beaten = time.monotonic()
        self._over = threading.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Watch the running loop."""
        if math.isinf(self._limit):
            return
        self._task = asyncio.create_task(self._beat(), name="pulse")
        threading.Thread(target=self._watch, name="pulse", daemon=True).start()

    def stop(self) -> None:
        """Stop watching."""
        self._over.set()
        if self._task is not None:
            self._task.cancel()

    async def _beat(self) -> None:
        while True:
            self._beaten = time.monotonic()
            await asyncio.sleep(BEAT)

    def _watch(self) -> None:
        looked = time.monotonic()
        while not self._over.wait(BEAT):
            now = time.monotonic()
            if now - looked > 4 * BEAT:  # this thread stood still as well: the loop gets the same time back
                self._beaten += now - looked
            looked = now
            if now - self._beaten > self._limit:
                log.critical("the event loop stood still for %g s: ending this process", self._limit)
                faulthandler.dump_traceback(sys.stderr)
                os._exit(EXIT_CODE)
