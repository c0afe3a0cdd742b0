"""What one fleet would do at one load."""

import math
from dataclasses import dataclass

from services.planner.profile import Contention
from services.planner.queueing import Shared, Single, shared, single
from services.planner.stage_times import ArTimes, DitTimes
from services.planner.workload import Kind, Mix

SATURATED = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """ar, dit: replicas. overhead: seconds an image besides the stages. contention: if all share the same cores."""

    ar: int
    ar_times: ArTimes
    dit: int
    dit_times: DitTimes
    overhead: float = 0.0
    contention: Contention | None = None

    @property
    def gpus(self) -> int:
        return self.ar * self.ar_times.tp + self.dit * self.dit_times.tp

    def ar_most(self, mix: Mix) -> float:
        """Images a second that the AR replicas can begin, with full batches."""
        return self.ar * self.ar_times.most(mix)

    def dit_most(self, mix: Mix) -> float:
        """Images a second that the DiT replicas can paint."""
        return self.dit / self.dit_times.mean(mix)

    def alone(self, kind: Kind) -> float:
        """Seconds of one image in an empty fleet."""
        return self.overhead + self.ar_times.alone(kind) + self.dit_times.seconds(kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """rate: images a second offered; most: that the fleet can do; p50, p95, p99: seconds (infinite when saturated)."""

    rate: float
    most: float
    p50: float
    p95: float
    p99: float
    ar_load: float
    dit_load: float

    @property
    def stable(self) -> bool:
        return self.rate < self.most


def cost_per_image(gpus: int, price: float, rate: float) -> float:
    """price: of one GPU for an hour, in whatever currency; rate: images a second that are really painted."""
    return gpus * price / (3600 * rate)


def predict(fleet: Fleet, rate: float, mix: Mix) -> Prediction:
    """Latency of the fleet at `rate` Poisson arrivals a second."""
    stretch = _stretched(fleet, rate, mix)
    ar_load, dit_load = rate * stretch[0] / fleet.ar_most(mix), rate * stretch[1] / fleet.dit_most(mix)
    most = min(fleet.ar_most(mix) / stretch[0], fleet.dit_most(mix) / stretch[1])
    if max(ar_load, dit_load) >= 1:
        blank = {"p50": SATURATED, "p95": SATURATED, "p99": SATURATED}
        return Prediction(rate=rate, most=most, ar_load=ar_load, dit_load=dit_load, **blank)
    writing = writing_at(fleet, rate, mix, stretch[0])
    at = [latency(fleet, writing, rate, mix, share, stretch) for share in (0.5, 0.95, 0.99)]
    return Prediction(rate=rate, most=most, p50=at[0], p95=at[1], p99=at[2], ar_load=ar_load, dit_load=dit_load)


def writing_at(fleet: Fleet, rate: float, mix: Mix, stretch: float = 1.0) -> Shared:
    """The AR stage at `rate`. It does not depend on the DiT replicas, so a search can keep it."""
    alone = stretch * math.fsum(fleet.ar_times.alone(kind) * kind.share for kind in mix)
    return shared(rate, alone, fleet.ar, fleet.ar_times.max_batch, fleet.ar_times.slowdown)


def latency(
    fleet: Fleet, writing: Shared, rate: float, mix: Mix, share: float, stretch: tuple[float, float] = (1.0, 1.0)
) -> float:
    """The latency in seconds that `share` (0..1) of the images stay under."""
    times = fleet.dit_times
    painting = single(rate, stretch[1] * times.mean(mix), fleet.dit, times.variability(mix))
    parts = [
        (kind.share * p, fleet.overhead + wait + slow * alone + stretch[1] * times.seconds(kind))
        for kind in mix
        for alone in [stretch[0] * fleet.ar_times.alone(kind)]
        for p, slow, wait in writing.seen
    ]
    return _quantile(parts, painting, share)


def _quantile(parts: list[tuple[float, float]], painting: Single, share: float) -> float:
    """Bisection on P(part + wait for a DiT > t) = 1 - share. parts: (probability, seconds without that wait)."""
    whole = math.fsum(p for p, _ in parts)
    low, high = 0.0, max(seconds for _, seconds in parts) + 50 / painting.rate
    for _ in range(60):
        middle = (low + high) / 2
        beyond = math.fsum(p * painting.longer(middle - seconds) for p, seconds in parts) / whole
        low, high = (middle, high) if beyond > 1 - share else (low, middle)
    return high


def _stretched(fleet: Fleet, rate: float, mix: Mix) -> tuple[float, float]:
    """How much longer each stage's work takes because the other one uses the same cores (1, 1 on GPUs)."""
    if fleet.contention is None:
        return 1.0, 1.0
    ar = dit = 1.0
    for _ in range(50):
        ar_busy, dit_busy = min(1.0, rate * ar / fleet.ar_most(mix)), min(1.0, rate * dit / fleet.dit_most(mix))
        ar = 1 + (fleet.contention.ar - 1) * dit_busy
        dit = 1 + (fleet.contention.dit - 1) * ar_busy
    return ar, dit
