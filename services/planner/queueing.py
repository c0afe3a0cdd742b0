"""The two stages as queues with Poisson arrivals, in closed form.

The AR stage batches: all its replicas together are one birth-death chain over the jobs present, whose rate at each
load comes from the batch curve (processor sharing is insensitive to the distribution of the work: Kelly,
"Reversibility and Stochastic Networks", 1979). Least-outstanding dispatch keeps the replicas' loads within one job
of each other, so the chain spreads its jobs evenly. The DiT stage paints one image at a time a replica: M/G/c with
Allen and Cunneen's approximation (A. O. Allen, "Probability, Statistics, and Queueing Theory", 1990).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from services.wire.errors import ConfigError

MAX_STATES = 200_000
NEGLIGIBLE = 1e-9


@dataclass(frozen=True, slots=True)
class Shared:
    """A stage that batches. load: 0..1, of what full batches can do. seen: (probability, slowdown, wait in seconds)
    of an arriving job, its own run included in the slowdown."""

    load: float
    present: float
    seen: tuple[tuple[float, float, float], ...]


@dataclass(frozen=True, slots=True)
class Single:
    """A stage with one job a server. waits: probability that a job waits; rate: of the wait's exponential tail."""

    load: float
    waits: float
    rate: float

    def longer(self, seconds: float) -> float:
        """Probability that a job waits longer than `seconds` (1 for a negative one)."""
        return 1.0 if seconds < 0 else self.waits * math.exp(-self.rate * seconds)


def shared(rate: float, alone: float, servers: int, places: int, slowdown: Callable[[int], float]) -> Shared:
    """Jobs at `rate` a second that take `alone` seconds, on `servers` of `places` each. Needs load < 1."""
    full = servers * places
    if full > MAX_STATES:
        raise ConfigError(f"{servers} AR replicas with batches of {places} are more than the planner counts through")
    top = full / (alone * slowdown(places))
    load = rate / top
    logs = [0.0]
    while len(logs) <= MAX_STATES:
        logs.append(logs[-1] + math.log(rate / _pace(len(logs), servers, places, alone, slowdown)))
        if len(logs) > full and logs[-1] < max(logs[0], logs[full]) + math.log(NEGLIGIBLE):
            break
    peak = max(logs)
    weights = [math.exp(value - peak) for value in logs]
    whole = math.fsum(weights)
    present = math.fsum(n * w for n, w in enumerate(weights)) / whole
    seen = [
        (w / whole, slowdown(min(n // servers + 1, places)), max(0, n + 1 - full) / top)
        for n, w in enumerate(weights)
        if w / whole > NEGLIGIBLE
    ]
    return Shared(load, present, _coarse(_scaled(seen, present / rate, alone)))


def _pace(present: int, servers: int, places: int, alone: float, slowdown: Callable[[int], float]) -> float:
    """Jobs done a second with `present` jobs spread evenly."""
    running = min(present, servers * places)
    low, more = divmod(running, servers)
    slow = more * (low + 1) / slowdown(low + 1) if more else 0.0
    return (slow + ((servers - more) * low / slowdown(low) if low else 0.0)) / alone


def _scaled(seen: list[tuple[float, float, float]], sojourn: float, alone: float) -> list[tuple[float, float, float]]:
    """The same, so that its mean agrees with Little's law: loads change while a job runs."""
    guess = math.fsum(p * (slow * alone + wait) for p, slow, wait in seen)
    return [(p, slow * sojourn / guess, wait * sojourn / guess) for p, slow, wait in seen]


def _coarse(seen: list[tuple[float, float, float]], groups: int = 64) -> tuple[tuple[float, float, float], ...]:
    """At most about `groups` points of about equal probability, with the same means."""
    out: list[tuple[float, float, float]] = []
    held: list[tuple[float, float, float]] = []
    weight = 0.0
    for point in seen:
        held.append(point)
        weight += point[0]
        if weight >= 1 / groups:
            out.append(_merged(held))
            held, weight = [], 0.0
    return tuple([*out, _merged(held)] if held else out)


def _merged(points: list[tuple[float, float, float]]) -> tuple[float, float, float]:
    whole = math.fsum(p for p, _, _ in points)
    return whole, math.fsum(p * s for p, s, _ in points) / whole, math.fsum(p * w for p, _, w in points) / whole


def single(rate: float, seconds: float, servers: int, variability: float) -> Single:
    """Jobs at `rate` a second that take `seconds` on average, on `servers`. Needs load < 1.

    variability: squared coefficient of variation of a job's seconds.
    """
    offered = rate * seconds
    load = offered / servers
    spare = (servers - offered) / seconds
    return Single(load, erlang_c(offered, servers), 2 * spare / (1 + variability))


def erlang_c(offered: float, servers: int) -> float:
    """Probability of waiting in M/M/c with `offered` erlangs, by the recursion of Erlang's B."""
    blocked = 1.0
    for count in range(1, servers + 1):
        blocked = offered * blocked / (count + offered * blocked)
    return blocked / (1 - offered / servers * (1 - blocked))
