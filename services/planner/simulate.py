"""A fleet, event by event: the queue, the look-ahead and the dispatch of the gateway, against simulated stages."""

import math
import random
from collections import deque
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from services.planner.predict import Fleet
from services.planner.servers import Pool, Server
from services.planner.workload import Kind, Mix
from services.wire.errors import ConfigError

if TYPE_CHECKING:
    import simpy

DIT_DEPTH = 1  # jobs that wait inside a DiT: the gateway's `dit_depth`
WARM_UP = 0.1  # of the jobs, left out of every figure
MAX_JOBS = 2_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """rate: images a second that were painted; p50, p95, p99: seconds; busy: share of the time that replicas
    worked; batch: AR jobs that ran together while any did."""

    rate: float
    p50: float
    p95: float
    p99: float
    ar_busy: float
    dit_busy: float
    batch: float
    jobs: int


@dataclass(slots=True)
class _Counts:
    ahead: int = 0  # jobs in the AR stage or waiting for a DiT
    seconds: list[tuple[float, float]] = field(default_factory=list)  # (when done, how long it took)


def simulate(
    fleet: Fleet, mix: Mix, *, jobs: int, seed: int, rate: float | None = None, clients: int | None = None
) -> Simulated:
    """`jobs` images at `rate` Poisson arrivals a second, or from `clients` that each ask again at once.

    Raises ConfigError when simpy is not installed or `jobs` is out of range.
    """
    if not 100 <= jobs <= MAX_JOBS:
        raise ConfigError(f"--jobs {jobs}: between 100 and {MAX_JOBS} jobs can be simulated", param="jobs")
    if (rate is None) == (clients is None):
        raise ConfigError("a simulation takes either a rate or a number of clients", param="rate")
    try:
        import simpy
    except ImportError as error:
        text = "the simulation needs simpy, which is not installed: pip install simpy, or give --no-simulate"
        raise ConfigError(text) from error
    return _Run(simpy.Environment(), fleet, mix, random.Random(seed)).run(jobs, rate, clients)  # noqa: S311


class _Run:
    """One simulation. The names of the phases are those of the gateway's admission."""

    def __init__(self, env: "simpy.Environment", fleet: Fleet, mix: Mix, rng: random.Random) -> None:
        self._env = env
        self._fleet = fleet
        self._mix = mix
        self._rng = rng
        places = fleet.ar_times.max_batch
        self._ars = [Server(env, places, fleet.ar_times.slowdown) for _ in range(fleet.ar)]
        self._dits = [Server(env, 1, lambda _: 1.0) for _ in range(fleet.dit)]
        self._ar = Pool(env, self._ars, places, by_time=False)
        self._dit = Pool(env, self._dits, 1 + DIT_DEPTH, by_time=True)
        self._queue: deque[simpy.Event] = deque()
        self._counts = _Counts()
        self._ar_seconds, self._dit_seconds = 0.0, 0.0  # the gateway's exponential averages
        if fleet.contention is not None:
            for server in (*self._ars, *self._dits):
                server.watch = self._share_cores

    def run(self, jobs: int, rate: float | None, clients: int | None) -> Simulated:
        left = iter(range(jobs))
        if rate is not None:
            self._env.process(self._arrivals(left, rate))
        else:
            for _ in range(min(clients or 0, jobs)):
                self._env.process(self._client(left))
        self._env.run()
        return self._summary(jobs)

    def _arrivals(self, left: Iterator[int], rate: float) -> "Generator[simpy.Event, None, None]":
        for _ in left:
            self._env.process(self._job(self._draw()))
            yield self._env.timeout(self._rng.expovariate(rate))

    def _client(self, left: Iterator[int]) -> "Generator[simpy.Event, None, None]":
        for _ in left:
            yield self._env.process(self._job(self._draw()))

    def _draw(self) -> Kind:
        return self._rng.choices(self._mix, [kind.share for kind in self._mix])[0]

    def _job(self, kind: Kind) -> "Generator[simpy.Event, Server, None]":
        began = self._env.now
        turn = self._env.event()
        self._queue.append(turn)
        self._advance()
        yield turn
        yield from self._write(kind)
        yield self._env.timeout(self._fleet.overhead)
        yield from self._paint(kind)
        self._counts.seconds.append((self._env.now, self._env.now - began))

    def _write(self, kind: Kind) -> "Generator[simpy.Event, Server, None]":
        replica = yield from self._ar.acquire(1.0)
        called = self._env.now
        yield replica.serve(self._fleet.ar_times.alone(kind))
        self._ar.release(replica)
        self._ar_seconds = _blend(self._ar_seconds, self._env.now - called)

    def _paint(self, kind: Kind) -> "Generator[simpy.Event, Server, None]":
        seconds = self._fleet.dit_times.seconds(kind)
        replica = yield from self._dit.acquire(seconds)
        self._counts.ahead -= 1
        self._advance()
        yield replica.serve(seconds)
        self._dit.release(replica)
        self._dit_seconds = _blend(self._dit_seconds, seconds * replica.stretch)

    def _advance(self) -> None:
        """Hand out turns while the stages are not too far ahead."""
        while self._queue and self._counts.ahead < self._look_ahead():
            self._counts.ahead += 1
            self._queue.popleft().succeed()

    def _look_ahead(self) -> int:
        """`services.gateway.estimates.Estimates.look_ahead`, on simulated times."""
        dits, least = len(self._dits), len(self._dits) + 1
        if not self._ar_seconds or not self._dit_seconds:
            return least
        needed = math.ceil(self._ar_seconds * dits / self._dit_seconds) + dits
        return max(least, min(needed, len(self._ars) * self._fleet.ar_times.max_batch + dits))

    def _share_cores(self) -> None:
        """A stage that works slows the other one down."""
        shared = self._fleet.contention
        if shared is None:
            return
        writing, painting = any(s.running for s in self._ars), any(s.running for s in self._dits)
        for server in self._ars:
            server.restretch(shared.ar if painting else 1.0)
        for server in self._dits:
            server.restretch(shared.dit if writing else 1.0)

    def _summary(self, jobs: int) -> Simulated:
        done = sorted(self._counts.seconds)[int(jobs * WARM_UP) :]
        taken = sorted(seconds for _, seconds in done)
        span = done[-1][0] - done[0][0]
        whole = self._env.now or 1.0
        writing = math.fsum(s.busy_seconds for s in self._ars)
        return Simulated(
            rate=(len(done) - 1) / span if span else math.inf,
            p50=_at(taken, 0.50),
            p95=_at(taken, 0.95),
            p99=_at(taken, 0.99),
            ar_busy=writing / whole / len(self._ars),
            dit_busy=math.fsum(s.busy_seconds for s in self._dits) / whole / len(self._dits),
            batch=math.fsum(s.job_seconds for s in self._ars) / writing if writing else 0.0,
            jobs=jobs,
        )


def _blend(old: float, new: float, weight: float = 0.2) -> float:
    return old + weight * (new - old) if old else new


def _at(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
