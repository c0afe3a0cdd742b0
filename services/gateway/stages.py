"""One job at one stage: pick a replica, call it, and call another one if that is safe."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass

from services.gateway.admission import Place, work_of
from services.gateway.estimates import Estimates
from services.gateway.jobs import Job, JobEvent, Painted, Partial, Retried, Step
from services.gateway.pipeline_settings import PipelineSettings
from services.gateway.pool import Pool
from services.gateway.replica import Replica
from services.gateway.retries import RetryBudget
from services.gateway.stage_client import GRACE
from services.observe.tracing import TRACING, Span
from services.wire.ar_to_gateway import Prior
from services.wire.dit_to_gateway import Failed, Preview, Progress, Rendered, RenderEvent
from services.wire.errors import (
    DeadlineExceeded,
    DiptychError,
    ProtocolError,
    Remedy,
    from_body,
)
from services.wire.gateway_to_ar import PriorRequest
from services.wire.gateway_to_dit import RenderRequest

log = logging.getLogger(__name__)

Later = Callable[[Coroutine[object, object, None]], None]

PAUSE = 0.1  # seconds before the second try; doubles
SAME_TICKET_TRIES = 2  # a ticket that failed twice in transfer is worth new priors


@dataclass(frozen=True, slots=True)
class WrittenPrior:
    """A prior, where it lies, and under which id."""

    prior: Prior
    replica: Replica
    run: str
    seconds: float


def budget_of(job: Job) -> float:
    """Seconds left. Raises DeadlineExceeded if there are none."""
    left = job.deadline - asyncio.get_running_loop().time()
    if left <= 0:
        raise DeadlineExceeded("the request's time ran out")
    return left


@contextmanager
def _span(stage: str, place: Place, replica: Replica) -> Iterator[Span]:
    """One call to a replica, as a span of the job."""
    with TRACING.span(stage, place.trace) as span:
        span.note(replica=replica.url)
        try:
            yield span
        except DiptychError as error:
            span.failed(error.code)
            raise


class _Tries:
    """The tries of one job at one stage."""

    def __init__(
        self, stage: str, job: Job, budget: RetryBudget, settings: PipelineSettings, avoid: frozenset[str] = frozenset()
    ) -> None:
        self.number = 0
        self.avoid = set(avoid)
        self._stage = stage
        self._job = job
        self._budget = budget
        self._settings = settings
        self._in_transfer = 0

    def wait_until(self) -> float:
        """Event-loop time until which to wait for a replica."""
        return min(self._job.deadline, asyncio.get_running_loop().time() + self._settings.replica_wait)

    async def after(self, error: DiptychError, replica: Replica) -> None:
        """Return if the call may be made again; raise `error` if not."""
        if error.remedy is Remedy.SAME_TICKET:
            self._in_transfer += 1
        again = error.remedy in (Remedy.OTHER_REPLICA, Remedy.SAME_TICKET, Remedy.LATER)
        if not again or self._in_transfer >= SAME_TICKET_TRIES or self.number + 1 >= self._settings.max_attempts:
            raise error
        if budget_of(self._job) < PAUSE or not self._budget.spend(self._stage, error):
            raise error
        log.warning("%s: trying again after %s from %s: %s", self._job.request_id, error.code, replica.url, error)
        if error.remedy is not Remedy.LATER:
            self.avoid.add(replica.instance)
        await asyncio.sleep(min(PAUSE * 2**self.number, budget_of(self._job)))
        self.number += 1


class Priors:
    """Runs the AR stage."""

    def __init__(
        self, pool: Pool, budget: RetryBudget, settings: PipelineSettings, estimates: Estimates, later: Later
    ) -> None:
        self._pool = pool
        self._budget = budget
        self._settings = settings
        self._estimates = estimates
        self._later = later

    async def write(self, place: Place, run: str, seed: int, avoid: frozenset[str] = frozenset()) -> WrittenPrior:
        """Prior tokens for this job, from `seed`, at any replica; at those in `avoid` only if there are no others.

        Releases what failed tries left behind.
        """
        tries = _Tries("ar", place.job, self._budget, self._settings, avoid)
        self._budget.earn()
        while True:
            replica: Replica | None = None
            try:
                async with self._pool.replica(1.0, tries.wait_until(), frozenset(tries.avoid)) as replica:
                    with _span("ar", place, replica) as span:
                        return await self._call(replica, place.job, f"{run}.{tries.number}", seed, span.traceparent)
            except DiptychError as error:
                failed = error
            if replica is None:  # no replica had a place in time: nothing was tried
                raise failed
            await tries.after(failed, replica)

    async def _call(self, replica: Replica, job: Job, run: str, seed: int, trace: str | None) -> WrittenPrior:
        request = PriorRequest(
            request_id=run,
            prompt=job.prompt,
            width=job.width,
            height=job.height,
            seed=seed,
            budget=budget_of(job),
            image=job.image,
            traceparent=trace,
        )
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout_at(job.deadline + GRACE):
                prior = await replica.unless_lost(replica.watch(), replica.client.write(request))
        except BaseException as error:
            self._later(replica.client.forget(f"/v1/priors/{run}"))
            if isinstance(error, TimeoutError):
                raise DeadlineExceeded(f"{replica.url} did not write the priors in time") from error
            raise
        seconds = loop.time() - began
        self._estimates.wrote(seconds)
        return WrittenPrior(prior, replica, run, seconds)


class Renders:
    """Runs the DiT stage."""

    def __init__(
        self, pool: Pool, budget: RetryBudget, settings: PipelineSettings, estimates: Estimates, later: Later
    ) -> None:
        self._pool = pool
        self._budget = budget
        self._settings = settings
        self._estimates = estimates
        self._later = later

    async def render(
        self, place: Place, run: str, seed: int, written: WrittenPrior, placed: Callable[[], None]
    ) -> AsyncGenerator[JobEvent, None]:
        """Steps, partial images and at last the image; the same ticket elsewhere if a replica fails before any
        partial image was shown. placed: called when a replica has room. Raises HandoffError if new priors are needed.
        """
        job = place.job
        tries = _Tries("dit", job, self._budget, self._settings)
        self._budget.earn()
        shown = False
        painted: Painted | None = None
        while painted is None:
            replica: Replica | None = None
            try:
                async with self._pool.replica(work_of(job), tries.wait_until(), frozenset(tries.avoid)) as replica:
                    placed()
                    with _span("dit", place, replica) as span:
                        call = self._call(replica, job, f"{run}.{tries.number}", seed, written, span.traceparent)
                        async with aclosing(call) as events:
                            async for event in events:
                                if isinstance(event, Painted):
                                    painted = event
                                    continue
                                shown = shown or isinstance(event, Partial)
                                yield event
                continue
            except DiptychError as error:
                failed = error
            if shown or replica is None:
                raise failed
            await tries.after(failed, replica)
            yield Retried(str(failed))
        yield painted  # last, and outside of the replica's place: who has the image leaves, and a leaving is no success

    async def _call(
        self, replica: Replica, job: Job, run: str, seed: int, written: WrittenPrior, trace: str | None
    ) -> AsyncGenerator[JobEvent, None]:
        request = RenderRequest(
            request_id=run,
            ticket=written.prior.ticket,
            prompt=job.prompt,
            width=job.width,
            height=job.height,
            crop=job.crop,
            steps=job.steps,
            guidance=job.guidance,
            seed=seed,
            budget=budget_of(job),
            negative_prompt=job.negative_prompt,
            format=job.format,
            compression=job.compression,
            previews=job.previews,
            traceparent=trace,
        )
        ended = False
        interrupted = replica.watch()
        try:
            async with aclosing(replica.client.render(request)) as events:
                while (event := await self._next(replica, interrupted, job.deadline, events)) is not None:
                    match event:
                        case Progress(step, total):
                            yield Step(step, total)
                        case Preview(index, image):
                            yield Partial(index, image)
                        case Failed(error):
                            ended = True
                            raise from_body(error)
                        case Rendered():
                            ended = True
                            self._measure(replica, job, event)
                            yield self._painted(event, seed, written)
                            return
            raise ProtocolError(f"{replica.url} ended the stream without an image or an error")
        finally:
            if not ended:
                self._later(replica.client.forget(f"/v1/renders/{run}"))

    async def _next(
        self,
        replica: Replica,
        interrupted: asyncio.Event,
        deadline: float,
        events: AsyncGenerator[RenderEvent, None],
    ) -> RenderEvent | None:
        try:
            async with asyncio.timeout_at(deadline + GRACE):
                return await replica.unless_lost(interrupted, anext(events, None))
        except TimeoutError as error:
            raise DeadlineExceeded(f"{replica.url} did not paint the image in time") from error

    def _measure(self, replica: Replica, job: Job, rendered: Rendered) -> None:
        seconds = sum(value for phase, value in rendered.times.items() if phase != "queue")
        if seconds > 0:
            self._pool.measured(replica, work_of(job), seconds)
            self._estimates.rendered(seconds, work_of(job))

    def _painted(self, rendered: Rendered, seed: int, written: WrittenPrior) -> Painted:
        prior = written.prior
        times = {f"ar_{phase}" if phase == "queue" else phase: value for phase, value in prior.times.items()}
        times |= {f"dit_{phase}" if phase == "queue" else phase: value for phase, value in rendered.times.items()}
        return Painted(
            image=rendered.image,
            seed=seed,
            text_tokens=prior.text_tokens,
            image_tokens=prior.image_tokens,
            prior_tokens=prior.prior_tokens,
            times=times,
        )
