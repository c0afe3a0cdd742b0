"""The bounded queue of jobs: all or none of a request, and fair among tenants."""

import asyncio
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from services.gateway.jobs import Job
from services.observe import metrics
from services.wire.errors import DiptychError, Overloaded, RateLimited

MIN_RETRY, MAX_RETRY = 1.0, 120.0  # seconds
PHASES = ("queue", "ar", "ready", "dit")  # of a job; ready: its priors wait for a DiT


def work_of(job: Job) -> float:
    """Denoising steps x megapixels of one image: what a DiT's time is proportional to."""
    return job.steps * job.width * job.height / 1e6


@dataclass(eq=False, slots=True)
class Place:
    """One job's place. phase: queue, then ar, ready, dit. rank: its turn among all (virtual time, lower is sooner).

    since: event-loop time of the last move to another phase. trace: the W3C parent of what the stages do for it.
    """

    job: Job
    rank: float
    work: float
    phase: str = "queue"
    taken: bool = False
    since: float = field(default_factory=lambda: asyncio.get_running_loop().time())
    trace: str | None = None
    turn: "asyncio.Future[None]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Admission:
    """Places for at most `max_jobs` jobs. A named tenant may hold `tenant_share` of them.

    Turns go by virtual time (start-time fair queueing): each tenant's jobs are spaced by their work, so that a tenant
    with a thousand jobs and one with a single job share the stages evenly.
    """

    def __init__(self, max_jobs: int, tenant_share: float) -> None:
        self._max = max_jobs
        self._tenant_max = max(1, int(max_jobs * tenant_share))
        self._places: dict[int, Place] = {}
        self._finish: dict[str, float] = {}
        self._clock = 0.0

    def __len__(self) -> int:
        return len(self._places)

    def count(self, *phases: str) -> int:
        """Jobs in any of these phases."""
        return sum(place.phase in phases for place in self._places.values())

    def waiting(self) -> list[Place]:
        """Jobs in the queue, next turn first."""
        return sorted((place for place in self._places.values() if place.phase == "queue"), key=lambda p: p.rank)

    def work_in(self, *phases: str) -> float:
        """Steps x megapixels of the jobs in these phases."""
        return sum(place.work for place in self._places.values() if place.phase in phases)

    def reserve(self, jobs: list[Job], retry_after: float) -> list[Place]:
        """Places for all of `jobs`, or Overloaded with `retry_after` (clamped to 1..120 s) and none."""
        self._expire()
        if len(self._places) + len(jobs) > self._max:
            raise shed("queue_full", f"{len(self._places)} images wait or run; at most {self._max} may", retry_after)
        held = Counter(place.job.tenant for place in self._places.values())
        wanted = Counter(job.tenant for job in jobs)
        for tenant, more in wanted.items():
            if tenant and held[tenant] + more > self._tenant_max:
                text = f"this key has {held[tenant]} images waiting or running; at most {self._tenant_max} may"
                raise shed("tenant_share", text, retry_after, RateLimited)
        places = [self._place(job) for job in jobs]
        self._publish()
        return places

    def _place(self, job: Job) -> Place:
        work = work_of(job)
        start = max(self._clock, self._finish.get(job.tenant, 0.0))
        self._finish[job.tenant] = start + work
        place = self._places[id(job)] = Place(job, start, work)
        return place

    def take(self, job: Job) -> Place:
        """The place of a reserved job, once."""
        place = self._places.get(id(job))
        if place is None or place.taken:
            raise DiptychError(f"job {job.request_id!r} has no place: reserve first, paint once")
        place.taken = True
        return place

    def grant(self, turns: int) -> None:
        """Let the next `turns` jobs go on to the AR stage."""
        ready = (place for place in self.waiting() if place.taken)
        for place, _ in zip(ready, range(turns), strict=False):
            place.phase = "ar"
            self._clock = max(self._clock, place.rank)
            place.turn.set_result(None)
        self._publish()

    def move(self, place: Place, phase: str) -> None:
        """A job goes on to another phase."""
        place.phase = phase
        place.since = asyncio.get_running_loop().time()
        self._publish()

    def leave(self, jobs: Iterable[Job]) -> None:
        """Give places back. Idempotent."""
        for job in jobs:
            place = self._places.pop(id(job), None)
            if place is not None:
                place.turn.cancel()
        if not self._places:
            self._finish.clear()
            self._clock = 0.0
        self._publish()

    def _expire(self) -> None:
        """Drop places that nobody painted before their deadline: a caller forgot them."""
        now = asyncio.get_running_loop().time()
        self.leave([p.job for p in self._places.values() if not p.taken and p.job.deadline < now])

    def _publish(self) -> None:
        metrics.QUEUE_JOBS.set(self.count("queue"))
        for phase in PHASES[1:]:
            metrics.ACTIVE_JOBS.labels(phase).set(self.count(phase))


def shed(reason: str, text: str, retry_after: float, kind: type[Overloaded] = Overloaded) -> Overloaded:
    """A refusal before acceptance, counted, with an honest time to come back."""
    metrics.SHED.labels(reason).inc()
    return kind(text, retry_after=min(MAX_RETRY, max(MIN_RETRY, retry_after)))
