"""The events of several jobs as one stream of pictures."""

import asyncio
from collections.abc import Sequence
from typing import Any

from services.gateway.jobs import Job, Painted, Painter, Partial, Queued, Retried, Step
from services.gateway.painting import before, events_of
from services.wire.errors import ProtocolError


class Merged:
    """Runs `jobs` at the same time. Pictures wait in a queue with one place a job, so that a slow reader makes the
    gateway hold two images a job at most; steps only leave a trace in `progress`. Leaving the context ends all jobs.
    """

    def __init__(self, painter: Painter, jobs: Sequence[Job]) -> None:
        self._painter = painter
        self._jobs = jobs
        self._pictures: asyncio.Queue[tuple[Job, Partial | Painted]] = asyncio.Queue(len(jobs))
        self._alive = asyncio.Event()
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._latest: dict[int, Queued | Step] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "Merged":
        self._tasks = [asyncio.create_task(self._follow(index, job)) for index, job in enumerate(self._jobs)]
        for task in self._tasks:
            task.add_done_callback(self._ended)
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if not self._failed.cancel():
            self._failed.exception()  # seen: asyncio need not warn

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None and not self._failed.done():
            self._failed.set_exception(error)

    async def first_sign(self, patience: float) -> None:
        """Return at the first step or picture, or after `patience` seconds. Raises what a job raised until then."""
        alive = asyncio.create_task(self._alive.wait())
        waited: set[asyncio.Future[Any]] = {alive, self._failed}
        try:
            await asyncio.wait(waited, timeout=patience, return_when="FIRST_COMPLETED")
        finally:
            alive.cancel()
        if self._failed.done():
            self._failed.result()

    async def next(self, timeout: float) -> tuple[Job, Partial | Painted] | None:
        """The next picture, or None after `timeout` seconds. Raises what a job raised."""
        picture = asyncio.create_task(self._pictures.get())
        waited: set[asyncio.Future[Any]] = {picture, self._failed}
        try:
            await asyncio.wait(waited, timeout=timeout, return_when="FIRST_COMPLETED")
            if self._failed.done():
                self._failed.result()
            return picture.result() if picture.done() else None
        finally:
            picture.cancel()

    def place(self) -> Queued | None:
        """The place of the job that is last in the queue; None if all have had their turn."""
        waiting = [event for event in self._latest.values() if isinstance(event, Queued)]
        return max(waiting, key=lambda event: event.position, default=None)

    def progress(self) -> str:
        """How far the jobs are, for people: `step 12/50`, or their place in the queue."""
        return ", ".join(_words(self._latest[index]) for index in sorted(self._latest))

    async def _follow(self, index: int, job: Job) -> None:
        painted = False
        failures: list[str] = []
        async with before(job.deadline, failures), events_of(self._painter, job) as events:
            async for event in events:
                if isinstance(event, Retried):
                    failures.append(event.reason)
                    continue
                if isinstance(event, Queued | Step):
                    self._latest[index] = event
                else:
                    painted = painted or isinstance(event, Painted)
                    await self._pictures.put((job, event))
                if not isinstance(event, Queued):
                    self._alive.set()
        if not painted:
            raise ProtocolError("the job ended without an image")


def _words(event: Queued | Step) -> str:
    if isinstance(event, Step):
        return f"step {event.step}/{event.total}"
    return f"queued {event.position}, about {event.estimate:.0f} s"
