"""The engine core of a simulator: a process of its own, so that it can be killed or stopped like a real one."""

import asyncio
from asyncio.subprocess import DEVNULL, PIPE, Process

from services.wire.errors import EngineDied

ECHO = "cat"  # returns each line; ends by itself when this service is gone, since its input then ends


class EngineCore:
    """A child that answers each `beat`. Killed, it makes `beat` raise; stopped, it makes `beat` wait."""

    def __init__(self) -> None:
        self._process: Process | None = None
        self._turn = asyncio.Lock()
        self._ended: asyncio.Task[int] | None = None
        self._owed = 0  # answers that a cancelled beat left in the pipe

    async def start(self) -> None:
        """Start the child."""
        self._process = await asyncio.create_subprocess_exec(ECHO, stdin=PIPE, stdout=PIPE, stderr=DEVNULL)
        self._ended = asyncio.create_task(self._process.wait(), name="sim-core")

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def check(self) -> None:
        """Raises EngineDied if the child is not there."""
        if self._process is None:
            raise EngineDied("the simulated engine core was never started")
        if self._process.returncode is not None:
            raise EngineDied(f"the simulated engine core ended with {self._process.returncode}")

    async def pause(self, seconds: float) -> None:
        """Let time pass. Raises EngineDied as soon as the child is gone."""
        self.check()
        if seconds > 0 and self._ended is not None:
            await asyncio.wait({self._ended}, timeout=seconds)
            self.check()

    async def beat(self) -> None:
        """One sign of life. Raises EngineDied if the child dies meanwhile."""
        async with self._turn:
            self.check()
            process = self._process
            if process is None or process.stdin is None or process.stdout is None:
                raise EngineDied("the simulated engine core has no pipes")
            try:
                if process.stdin.is_closing():  # a write would raise what the event loop likes
                    raise BrokenPipeError
                process.stdin.write(b"\n")
                await process.stdin.drain()
                self._owed += 1
                while self._owed:
                    if not await process.stdout.readline():
                        raise BrokenPipeError
                    self._owed -= 1
            except (BrokenPipeError, ConnectionResetError) as error:
                await self._reaped()
                raise EngineDied("the simulated engine core died") from error

    async def _reaped(self) -> None:
        """Pipes close before the exit is known: from here on `check` knows it, too."""
        if self._ended is not None:
            await asyncio.wait({self._ended})

    async def kill(self) -> None:
        """End the child, if it is there, and reap it."""
        if self._process is None or self._ended is None:
            return
        if self._process.returncode is None:
            self._process.kill()
        await self._ended
        if self._process.stdin is not None:
            self._process.stdin.close()
