"""The pipeline: queue, AR replica, ticket, DiT replica, image. Implements `jobs.Painter`."""

import asyncio
import logging
import os
import secrets
import socket
import time
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing

from services.gateway.admission import PHASES, Admission, Place, shed, work_of
from services.gateway.discovery import Discovery
from services.gateway.estimates import Estimates
from services.gateway.jobs import Job, JobEvent, Painted, Partial, Queued, Retried
from services.gateway.pipeline_settings import PipelineSettings
from services.gateway.pool import Pool, PoolOptions
from services.gateway.proof import Proof
from services.gateway.retries import RetryBudget
from services.gateway.stages import Priors, Renders
from services.observe import metrics
from services.observe.context import current_traceparent
from services.observe.tracing import TRACING
from services.wire.errors import (
    Cancelled,
    DeadlineExceeded,
    DiptychError,
    HandoffError,
    InvalidPriors,
    Remedy,
    StageUnavailable,
)
from services.wire.info import GatewayInfo

log = logging.getLogger(__name__)

FROM_THE_START = (Remedy.NEW_PRIORS, Remedy.SAME_TICKET)
QUEUE_NEWS = 1.0  # seconds between two looks at one's place in the queue
SEED_OFFSET = 1_000_003  # to another seed after invalid priors; larger than any n, so images stay different
NEW_PRIORS_LIMIT = 3  # times that one job may start again from the AR stage
LIFETIME_OF_CLEANUP = 10.0  # seconds that a stopping gateway gives its DELETEs


class Pipeline:
    """Turns jobs into images with the replicas named by `settings`. `start` before, `stop` after use."""

    def __init__(self, settings: PipelineSettings) -> None:
        self._settings = settings
        self._instance = f"gateway-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._began = time.monotonic()
        self.estimates = Estimates()
        self._admission = Admission(settings.max_jobs, settings.tenant_share)
        self._budget = RetryBudget(settings.retry_share, settings.retry_burst)
        self._background: set[asyncio.Task[None]] = set()
        self._advancing: asyncio.Task[None] | None = None
        self._moved = asyncio.Event()
        self.draining = False
        self.ar = self._pool("ar", settings.ar_urls, "DIPTYCH_AR_URLS", depth=0)
        self.dit = self._pool("dit", settings.dit_urls, "DIPTYCH_DIT_URLS", depth=settings.dit_depth)
        if settings.probe:
            self.ar.prove = self.dit.prove = Proof(self.ar, self.dit)
        self._priors = Priors(self.ar, self._budget, settings, self.estimates, self._later)
        self._renders = Renders(self.dit, self._budget, settings, self.estimates, self._later)

    def _pool(self, stage: str, urls: str, setting: str, depth: int) -> Pool:
        s = self._settings
        options = PoolOptions(
            resolve_interval=s.resolve_interval,
            poll_interval=s.poll_interval,
            poll_timeout=s.poll_timeout,
            lost_after=s.lost_after,
            connect_timeout=s.connect_timeout,
            breaker_failures=s.breaker_failures,
            breaker_rest=s.breaker_rest,
            depth=depth,
            probe_interval=s.probe_interval,
        )
        return Pool("ar" if stage == "ar" else "dit", Discovery(urls, setting), options)

    async def start(self) -> None:
        """Find the replicas and begin to hand out turns."""
        await asyncio.gather(self.ar.start(), self.dit.start())
        self._advancing = asyncio.create_task(self._keep_advancing(), name="admission")

    async def stop(self) -> None:
        """Send the last DELETEs, then close everything. Running jobs should be done or cancelled by now."""
        if self._background:
            await asyncio.wait(self._background, timeout=LIFETIME_OF_CLEANUP)
        tasks = [*self._background, *([self._advancing] if self._advancing else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(self.ar.stop(), self.dit.stop())

    def drain(self) -> None:
        """Refuse new jobs from now on."""
        self.draining = True

    def __len__(self) -> int:
        """Jobs that have a place."""
        return len(self._admission)

    def unready(self) -> str:
        """Why no image can be made now, or "" if one can; from the last polls."""
        if self.draining:
            return "this gateway is draining"
        return "; ".join(pool.why_not_ready() for pool in (self.ar, self.dit) if not pool.ready)

    def info(self) -> GatewayInfo:
        """This gateway and all replicas that it knows, now. estimate: seconds that one more image would take."""
        replicas = [replica.view() for pool in (self.ar, self.dit) for replica in pool.replicas.values()]
        engines = {view.said.engine for view in replicas if view.said is not None}
        return GatewayInfo(
            instance=self._instance,
            ready=not self.unready(),
            reason=self.unready(),
            draining=self.draining,
            engine=", ".join(sorted(engines)),
            jobs={phase: self._admission.count(phase) for phase in PHASES},
            max_jobs=self._settings.max_jobs,
            estimate=self.estimates.ar + self.estimates.render if self.estimates.ar and self.estimates.render else 0.0,
            replicas=replicas,
            uptime=time.monotonic() - self._began,
        )

    def reserve(self, jobs: list[Job]) -> None:
        """Places for all of `jobs`, or none. Raises Overloaded or StageUnavailable, with an honest Retry-After."""
        if self.draining:
            raise shed("draining", "this gateway is draining", 5.0)
        for pool in (self.ar, self.dit):
            if pool.down_for > self._settings.outage_grace:
                metrics.SHED.labels("stage_down").inc()
                raise StageUnavailable(f"no {pool.stage} replica is ready: {pool.why_not_ready()}", retry_after=10)
        self._refuse_if_late(jobs)
        room = self._seconds_to_free(len(jobs))
        self._admission.reserve(jobs, room)

    def _refuse_if_late(self, jobs: list[Job]) -> None:
        """An empty gateway takes any job: it delays nobody, and only jobs that run correct an estimate gone wrong."""
        if not len(self):
            return
        left = min(job.deadline for job in jobs) - asyncio.get_running_loop().time()
        wait = self._estimate(len(self._admission.waiting()) + len(jobs) - 1, sum(map(work_of, jobs[:-1])), jobs[-1])
        if wait > left:
            text = f"about {wait:.0f} s until this would be done, but only {left:.0f} s are left for it"
            raise shed("too_late", text, wait - left)

    def _seconds_to_free(self, jobs: int) -> float:
        render = self.estimates.render
        return 5.0 if render is None else jobs * render / max(1, len(self.dit.ready))

    def _estimate(self, jobs_ahead: int, work_ahead: float, job: Job) -> float:
        running = self._admission.work_in("ar", "ready") + self._admission.work_in("dit") / 2
        return self.estimates.wait(
            jobs_ahead=jobs_ahead + self._admission.count("ar"),
            work_ahead=work_ahead + running + sum(place.work for place in self._admission.waiting()),
            work=work_of(job),
            ar_places=self.ar.capacity,
            dit_places=len(self.dit.ready),
        )

    def forget(self, jobs: list[Job]) -> None:
        """Give back the places of reserved jobs, painted or not. Idempotent."""
        self._admission.leave(jobs)
        self._moved.set()

    async def paint(self, job: Job) -> AsyncGenerator[JobEvent, None]:
        """See `jobs.Painter`."""
        place = self._admission.take(job)
        began = asyncio.get_running_loop().time()
        outcome = "cancelled"
        try:
            with TRACING.span("image", current_traceparent()) as span:
                place.trace = span.traceparent
                span.note(request_id=job.request_id, width=job.width, height=job.height, steps=job.steps)
                try:
                    async with aclosing(self._queue_then_make(place)) as events:
                        async for event in events:
                            if isinstance(event, Painted):
                                outcome = "ok"
                            yield event
                except DiptychError as error:
                    outcome = error.code
                    span.failed(outcome)
                    raise
        finally:
            self._admission.leave([job])
            self._moved.set()
            metrics.IMAGES.labels(outcome).inc()
            metrics.IMAGE_SECONDS.observe(asyncio.get_running_loop().time() - began)

    async def _queue_then_make(self, place: Place) -> AsyncGenerator[JobEvent, None]:
        began = asyncio.get_running_loop().time()
        async with aclosing(self._queued(place)) as news:
            async for event in news:
                yield event
        waited = asyncio.get_running_loop().time() - began
        metrics.PHASE_SECONDS.labels("queue").observe(waited)
        async with aclosing(self._make(place, waited)) as events:
            async for made in events:
                yield made

    async def _queued(self, place: Place) -> AsyncGenerator[Queued, None]:
        """Wait for this job's turn; say so when its place changes."""
        self._moved.set()
        told = -1
        while not place.turn.done():
            waiting = self._admission.waiting()
            position = waiting.index(place) if place in waiting else 0
            if position != told:
                told = position
                yield Queued(position, self._estimate_of(place, waiting[:position]))
            left = place.job.deadline - asyncio.get_running_loop().time()
            if left <= 0:
                raise DeadlineExceeded("the request's time ran out in the queue")
            await asyncio.wait({place.turn}, timeout=min(QUEUE_NEWS, left))
        if place.turn.cancelled():
            raise Cancelled("this job gave up its place")

    def _estimate_of(self, place: Place, ahead: list[Place]) -> float:
        running = self._admission.work_in("ar", "ready") + self._admission.work_in("dit") / 2
        return self.estimates.wait(
            jobs_ahead=len(ahead) + self._admission.count("ar"),
            work_ahead=running + sum(other.work for other in ahead),
            work=place.work,
            ar_places=self.ar.capacity,
            dit_places=len(self.dit.ready),
        )

    async def _make(self, place: Place, waited: float) -> AsyncGenerator[JobEvent, None]:
        """Priors, then the image; from the start again when the error says so and nothing was shown yet."""
        job, seed, reseeded = place.job, place.job.seed, False
        nonce = secrets.token_hex(4)  # a caller may send one request id twice: ours must not collide
        used: set[str] = set()  # AR instances whose tickets came to nothing
        for attempt in range(NEW_PRIORS_LIMIT):
            self._admission.move(place, "ar")
            run = f"{job.request_id}~{nonce}{attempt}"
            shown = False
            try:
                async with aclosing(self._once(place, run, seed, waited, used)) as events:
                    async for event in events:
                        shown = shown or isinstance(event, Partial)
                        yield event
                return
            except InvalidPriors as error:
                if shown or reseeded or job.seed_given or not self._budget.spend("ar", error):
                    raise
                seed, reseeded = (seed + SEED_OFFSET) % 2**63, True
                log.warning("%s: the AR stage wrote invalid priors; trying seed %d: %s", run, seed, error)
            except HandoffError as error:
                last = attempt == NEW_PRIORS_LIMIT - 1
                if last or shown or error.remedy not in FROM_THE_START or not self._budget.spend("ar", error):
                    raise
                log.warning("%s: new priors after %s: %s", run, error.code, error)
                yield Retried(str(error))

    async def _once(
        self, place: Place, run: str, seed: int, waited: float, used: set[str]
    ) -> AsyncGenerator[JobEvent, None]:
        written = await self._priors.write(place, run, seed, frozenset(used))
        used.add(written.replica.instance)
        try:
            self._admission.move(place, "ready")
            self._moved.set()
            events = self._renders.render(place, run, seed, written, lambda: self._painting(place))
            async with aclosing(events):
                async for event in events:
                    yield self._timed(event, waited) if isinstance(event, Painted) else event
        finally:
            self._later(written.replica.client.forget(f"/v1/priors/{written.run}"))

    def _painting(self, place: Place) -> None:
        if place.phase == "ready":  # not after a retry: the line was behind it then
            metrics.PHASE_SECONDS.labels("ready").observe(asyncio.get_running_loop().time() - place.since)
        self._admission.move(place, "dit")
        self._moved.set()

    def _timed(self, event: Painted, waited: float) -> Painted:
        for phase, seconds in event.times.items():
            metrics.PHASE_SECONDS.labels(phase).observe(seconds)
        return Painted(
            image=event.image,
            seed=event.seed,
            text_tokens=event.text_tokens,
            image_tokens=event.image_tokens,
            prior_tokens=event.prior_tokens,
            times={"queue": waited, **event.times},
        )

    def _later(self, call: Coroutine[object, object, None]) -> None:
        """Do this after the reply, which must not wait for it."""
        task = asyncio.create_task(call)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _keep_advancing(self) -> None:
        """Hand out turns whenever a job moves on or a pool changes."""
        while True:
            self._moved.clear()
            ahead = self._admission.count("ar", "ready")
            self._admission.grant(max(0, self._limit() - ahead))
            news = [asyncio.ensure_future(e.wait()) for e in (self._moved, self.ar.changed, self.dit.changed)]
            try:
                await asyncio.wait(news, return_when="FIRST_COMPLETED", timeout=QUEUE_NEWS)
            finally:
                for waiter in news:
                    waiter.cancel()

    def _limit(self) -> int:
        if self._settings.look_ahead:
            return self._settings.look_ahead
        return self.estimates.look_ahead(ar_places=self.ar.capacity, dit_places=len(self.dit.ready))
