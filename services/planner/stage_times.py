"""Seconds of each stage for any size, step count and batch, from the few that a profile holds."""

import math
from bisect import bisect_left
from dataclasses import dataclass
from itertools import pairwise

from services.planner.profile import ArRun, DitRun, Profile
from services.planner.workload import Kind, Mix
from services.wire.errors import ConfigError

KV_SHARE = 0.9  # of the GPU memory that weights and KV cache may fill together, vLLM's default


@dataclass(frozen=True, slots=True)
class ArTimes:
    """The AR stage at one TP. curve: (batch, factor on the time of batch 1); sizes: (tokens, seconds at batch 1)."""

    tp: int
    curve: tuple[tuple[float, float], ...]
    sizes: tuple[tuple[float, float], ...]
    max_batch: int

    def alone(self, kind: Kind) -> float:
        """Seconds of one run with the replica to itself."""
        return _through_origin(self.sizes, kind.tokens)

    def slowdown(self, running: int) -> float:
        """How many times longer each run takes while `running` share the batch."""
        return _linear(self.curve, min(running, self.max_batch))

    def most(self, mix: Mix) -> float:
        """Images a second of one replica with a full batch."""
        return self.max_batch / (
            self.slowdown(self.max_batch) * math.fsum(self.alone(kind) * kind.share for kind in mix)
        )


@dataclass(frozen=True, slots=True)
class DitTimes:
    """The DiT stage at one TP. sizes: (pixels, seconds a step); fixed: (pixels, seconds an image besides its steps)."""

    tp: int
    sizes: tuple[tuple[float, float], ...]
    fixed: tuple[tuple[float, float], ...]

    def seconds(self, kind: Kind) -> float:
        """Seconds of one image."""
        return kind.steps * _power_law(self.sizes, kind.pixels) + _linear(self.fixed, kind.pixels)

    def mean(self, mix: Mix) -> float:
        """Mean seconds an image over the mix."""
        return math.fsum(self.seconds(kind) * kind.share for kind in mix)

    def variability(self, mix: Mix) -> float:
        """Squared coefficient of variation of the seconds an image."""
        first = self.mean(mix)
        return math.fsum(self.seconds(kind) ** 2 * kind.share for kind in mix) / first**2 - 1


@dataclass(frozen=True, slots=True)
class BothTimes(DitTimes):
    """Both stages on the same GPUs, one image at a time. ar: the AR stage there."""

    ar: ArTimes

    def seconds(self, kind: Kind) -> float:
        return self.ar.alone(kind) + DitTimes.seconds(self, kind)


def nothing() -> ArTimes:
    """An AR stage that takes no time and no GPU, in front of `BothTimes`."""
    return ArTimes(0, ((1.0, 1.0),), ((1.0, 1e-12),), 1)


def ar_times(profile: Profile, gpu_memory: float, mix: Mix, batch: int | None = None) -> list[ArTimes]:
    """The AR stage at every TP that fits in `gpu_memory` GiB a GPU. batch: the largest allowed; None: as measured.

    The batch is also held to what the KV cache of the longest kind in `mix` leaves room for.
    """
    found = []
    for tp in sorted({run.tp for run in profile.ar.runs}):
        runs = [run for run in profile.ar.runs if run.tp == tp]
        fits = _batch_that_fits(profile, runs, tp, gpu_memory, max(kind.tokens for kind in mix))
        widest = max(runs, key=lambda run: len(run.seconds))
        most = min(max(widest.seconds), fits, batch or max(widest.seconds))
        if most >= 1:
            curve = tuple((float(size), widest.seconds[size] / widest.seconds[1]) for size in sorted(widest.seconds))
            sizes = {Kind(run.width, run.height, 1).tokens: run.seconds[1] for run in runs}
            found.append(ArTimes(tp, curve, tuple(sorted((float(k), v) for k, v in sizes.items())), most))
    if not found:
        raise _too_small("AR", profile, gpu_memory)
    return found


def dit_times(profile: Profile, gpu_memory: float) -> list[DitTimes]:
    """The DiT stage at every TP that fits in `gpu_memory` GiB a GPU. Raises ConfigError if none does."""
    found = []
    for tp in sorted({run.tp for run in profile.dit.runs}):
        runs = [run for run in profile.dit.runs if run.tp == tp]
        if all((run.memory_gib or 0) <= gpu_memory for run in runs):
            found.append(DitTimes(tp, *_by_pixels(runs)))
    if not found:
        raise _too_small("DiT", profile, gpu_memory)
    return found


def _batch_that_fits(profile: Profile, runs: list[ArRun], tp: int, gpu_memory: float, tokens: int) -> int:
    weights = max(run.memory_gib or 0 for run in runs)
    if weights > gpu_memory * KV_SHARE:
        return 0
    of_one = profile.ar.kv_kib_per_token * tokens / tp / (1 << 20)  # GiB a GPU
    return int((gpu_memory * KV_SHARE - weights) / of_one) if of_one else 1 << 30


def _by_pixels(runs: list[DitRun]) -> tuple[tuple[tuple[float, float], ...], tuple[tuple[float, float], ...]]:
    """(pixels, seconds a step) and (pixels, fixed seconds) of each size; the longest run of a size speaks for it."""
    longest: dict[float, DitRun] = {}
    for run in sorted(runs, key=lambda run: run.steps):
        longest[float(Kind(run.width, run.height, run.steps).pixels)] = run
    steps = tuple((size, (run.seconds - run.fixed_seconds) / run.steps) for size, run in sorted(longest.items()))
    return steps, tuple((size, run.fixed_seconds) for size, run in sorted(longest.items()))


def _linear(points: tuple[tuple[float, float], ...], x: float) -> float:
    """Straight lines between the points, flat outside."""
    if x <= points[0][0]:
        return points[0][1]
    for (x0, y0), (x1, y1) in pairwise(points):
        if x <= x1:
            return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
    return points[-1][1]


def _through_origin(points: tuple[tuple[float, float], ...], x: float) -> float:
    """Straight lines between the points; outside, in proportion to the nearest (tokens cost the same each)."""
    nearest = points[0] if x < points[0][0] else points[-1]
    inside = points[0][0] <= x <= points[-1][0]
    return _linear(points, x) if inside else nearest[1] * x / nearest[0]


def _power_law(points: tuple[tuple[float, float], ...], x: float) -> float:
    """Straight lines in log-log, carried on outside; with a single point, in proportion to x."""
    if len(points) == 1:
        return points[0][1] * x / points[0][0]
    at = min(max(bisect_left([size for size, _ in points], x), 1), len(points) - 1)
    (x0, y0), (x1, y1) = points[at - 1], points[at]
    slope = math.log(y1 / y0) / math.log(x1 / x0)
    return y0 * math.exp(slope * math.log(x / x0))


def _too_small(stage: str, profile: Profile, gpu_memory: float) -> ConfigError:
    text = (
        f"the {stage} stage of profile {profile.name} fits no GPU of {gpu_memory:g} GiB at any TP that the profile has"
    )
    return ConfigError(f"{text}; give a larger --gpu-memory", param="gpu_memory")
