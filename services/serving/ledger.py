"""The jobs of a stage service: a bound on how many, one task each, abort by id, fail all, and the wait of a drain."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from services.observe import metrics
from services.observe.context import enter_request
from services.wire.errors import Cancelled, DeadlineExceeded, DiptychError, InvalidRequest, Overloaded

RETRY_AFTER = 2.0  # seconds: about one small image


class JobLedger:
    """Counts running jobs. limit: jobs in the service at once, running or waiting. stage: for the metrics."""

    def __init__(self, limit: int, stage: str = "") -> None:
        self._limit = limit
        self._stage = stage
        self._tasks: dict[str, asyncio.Task[object]] = {}
        self._endings: dict[str, DiptychError] = {}  # why a job was cancelled from outside of its task
        self._idle = asyncio.Event()
        self._idle.set()
        self.draining = False

    def __len__(self) -> int:
        return len(self._tasks)

    @asynccontextmanager
    async def job(self, request_id: str, budget: float) -> AsyncIterator[None]:
        """Run the current task as this job, for at most `budget` seconds.

        Raises Overloaded (full or draining), InvalidRequest (the id runs already), DeadlineExceeded, Cancelled
        (after `abort`), or what `fail_all` was given.
        """
        task = self._admit(request_id)
        enter_request(request_id)
        outcome = "ok"
        try:
            async with asyncio.timeout(budget):
                yield
        except DiptychError as error:
            outcome = error.code
            raise
        except TimeoutError as error:
            outcome = DeadlineExceeded.code
            raise DeadlineExceeded(f"not done within the {budget:g} s that were left for this request") from error
        except asyncio.CancelledError:
            ending = self._endings.get(request_id)
            outcome = ending.code if ending else Cancelled.code
            if ending is not None and task.uncancel() == 0:
                raise type(ending)(ending.message) from None
            raise
        finally:
            self._endings.pop(request_id, None)
            del self._tasks[request_id]
            self._count(outcome)
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
        metrics.STAGE_RUNNING.labels(self._stage).set(len(self._tasks))
        self._idle.clear()
        return task

    def abort(self, request_id: str) -> bool:
        """Cancel a running job; False if there is none of this id."""
        if request_id not in self._tasks:
            return False
        self._end(request_id, Cancelled("aborted by the caller"))
        return True

    def fail_all(self, error: DiptychError) -> None:
        """End every running job with `error`: the engine is gone, or hangs."""
        for request_id in list(self._tasks):
            self._end(request_id, error)

    def _end(self, request_id: str, error: DiptychError) -> None:
        if request_id not in self._endings:
            self._endings[request_id] = error
            self._tasks[request_id].cancel()

    def _count(self, outcome: str) -> None:
        metrics.STAGE_JOBS.labels(self._stage, outcome).inc()
        metrics.STAGE_RUNNING.labels(self._stage).set(len(self._tasks))

    async def drain(self) -> None:
        """Refuse new jobs and wait until the running ones are done."""
        self.draining = True
        await self._idle.wait()
