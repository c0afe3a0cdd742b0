"""Running the jobs of one order: all of them or an error, and none left behind."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import cast

from services.gateway.jobs import Job, JobEvent, Painted, Painter, Retried
from services.wire.errors import DeadlineExceeded, ProtocolError


@contextmanager
def places(painter: Painter, jobs: list[Job]) -> Iterator[None]:
    """The places of `jobs` in the queue: all taken at once, and free at the end whatever happened.

    Raises Overloaded.
    """
    painter.reserve(jobs)
    try:
        yield
    finally:
        painter.forget(jobs)


@asynccontextmanager
async def before(deadline: float, failures: Sequence[str] = ()) -> AsyncIterator[None]:
    """Raises DeadlineExceeded when the body is not done at `deadline` (event-loop time); it tells the last failure."""
    scope = asyncio.timeout_at(deadline)
    try:
        async with scope:
            yield
    except TimeoutError as late:
        if not scope.expired():
            raise
        last = f"; the last failure was: {failures[-1]}" if failures else ""
        raise DeadlineExceeded(f"the request's time budget ran out{last}") from late


def events_of(painter: Painter, job: Job) -> "aclosing[AsyncGenerator[JobEvent, None]]":
    """The events of `job`, as a context whose end cancels it if it is not done."""
    return aclosing(cast("AsyncGenerator[JobEvent, None]", painter.paint(job)))


async def paint_one(painter: Painter, job: Job) -> Painted:
    """The image of `job`. Raises DiptychError."""
    failures: list[str] = []
    async with before(job.deadline, failures), events_of(painter, job) as events:
        async for event in events:
            if isinstance(event, Painted):
                return event
            if isinstance(event, Retried):
                failures.append(event.reason)
    raise ProtocolError("the job ended without an image")


async def paint_all(painter: Painter, jobs: list[Job]) -> list[Painted]:
    """The images of `jobs`, in order, painted at the same time. The first failure cancels the others."""
    tasks = [asyncio.create_task(paint_one(painter, job)) for job in jobs]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
