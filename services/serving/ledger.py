"""The jobs of a stage service: a bound on how many, one task each, abort by id, and the wait of a drain."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from services.wire.errors import Cancelled, DeadlineExceeded, InvalidRequest, Overloaded

RETRY_AFTER = 2.0  # seconds: about one small image


class JobLedger:
    """Counts running jobs. limit: jobs in the service at once, running or waiting for the engine."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._tasks: dict[str, asyncio.Task[object]] = {}
        self._aborted: set[str] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self.draining = False

    def __len__(self) -> int:
        return len(self._tasks)

    @asynccontextmanager
    async def job(self, request_id: str, budget: float) -> AsyncIterator[None]:
        """Run the current task as this job, for at most `budget` seconds.

        Raises Overloaded (full or draining), InvalidRequest (the id runs already), DeadlineExceeded, Cancelled
        (after `abort`).
        """
        task = self._admit(request_id)
        try:
            async with asyncio.timeout(budget):
                yield
        except TimeoutError as error:
            raise DeadlineExceeded(f"not done within the {budget:g} s that were left for this request") from error
        except asyncio.CancelledError:
            if request_id in self._aborted and task.uncancel() == 0:
                raise Cancelled("aborted by the caller") from None
            raise
        finally:
            self._aborted.discard(request_id)
            del self._tasks[request_id]
            if not self._tasks:
                self._idle.set()

    def _admit(self, request_id: str) -> "asyncio.Task[object]":
        if self.draining:
            raise Overloaded("this replica is draining", retry_after=RETRY_AFTER)
        if request_id in self._tasks:
            raise InvalidRequest(f"request {request_id!r} runs already", param="request_id")
        if len(self._tasks) >= self._limit:
            raise Overloaded(f"{len(self._tasks)} jobs wait already", retry_after=RETRY_AFTER)
        task = asyncio.current_task()
        if task is None:  # only a coroutine outside of a task could get here
            raise Overloaded("no task to run this job in")
        self._tasks[request_id] = task
        self._idle.clear()
        return task

    def abort(self, request_id: str) -> bool:
        """Cancel a running job; False if there is none of this id."""
        task = self._tasks.get(request_id)
        if task is None:
            return False
        self._aborted.add(request_id)
        task.cancel()
        return True

    async def drain(self) -> None:
        """Refuse new jobs and wait until the running ones are done."""
        self.draining = True
        await self._idle.wait()
