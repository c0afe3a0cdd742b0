"""The cheapest fleet that meets a target, and the monolith that does."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from services.planner.predict import Fleet, Prediction, latency, predict, writing_at
from services.planner.profile import Profile
from services.planner.stage_times import ArTimes, BothTimes, DitTimes, ar_times, dit_times, nothing
from services.planner.workload import Target
from services.wire.errors import ConfigError

MAX_REPLICAS = 5000  # of one stage


@dataclass(frozen=True, slots=True)
class Plan:
    """A fleet and what it would do at the target's rate. label: what it is called in the report."""

    label: str
    fleet: Fleet
    prediction: Prediction


def plan(profile: Profile, target: Target, gpu_memory: float, batch: int | None = None) -> Plan:
    """The fleet with the fewest GPUs that meets `target`; among equals, the one with the lowest p95.

    gpu_memory: GiB of one GPU. batch: the largest AR batch. Raises ConfigError if no fleet can meet it.
    """
    best: Fleet | None = None
    for ar in ar_times(profile, gpu_memory, target.mix, batch):
        for dit in dit_times(profile, gpu_memory):
            found = _smallest(_one_each(profile, ar, dit), target, most=best.gpus if best else None)
            if found is not None and (best is None or _rank(found, target) < _rank(best, target)):
                best = found
    if best is None:
        raise _impossible(profile, target, gpu_memory, batch)
    return Plan("diptych", best, predict(best, target.rate, target.mix))


def monolith(profile: Profile, target: Target, gpu_memory: float) -> Plan | None:
    """The monolith with the fewest GPUs that meets `target`, or None if no number of them does.

    Copies of it are counted as if one balancer sent each image to the first that is free, which favours it.
    """
    single = profile.monolith.kind == "single"
    best: Fleet | None = None
    for ar in ar_times(profile, gpu_memory, target.mix, 1 if single else profile.monolith.ar_batch):
        for dit in dit_times(profile, gpu_memory):
            if single and (ar.tp != dit.tp or not _both_fit(profile, ar.tp, gpu_memory)):
                continue
            found = _pairs(_alternating(profile, ar, dit) if single else _one_each(profile, ar, dit), target)
            if found is not None and (best is None or _rank(found, target) < _rank(best, target)):
                best = found
    return None if best is None else Plan("monolith", best, predict(best, target.rate, target.mix))


def meets(prediction: Prediction, target: Target) -> bool:
    """Whether the load leaves headroom and p95 is in time."""
    calm = max(prediction.ar_load, prediction.dit_load) <= target.max_load
    return calm and (target.p95 is None or prediction.p95 <= target.p95)


def _one_each(profile: Profile, ar: ArTimes, dit: DitTimes) -> Fleet:
    return Fleet(
        ar=1, ar_times=ar, dit=1, dit_times=dit, overhead=profile.overhead_seconds, contention=profile.contention
    )


def _alternating(profile: Profile, ar: ArTimes, dit: DitTimes) -> Fleet:
    both = BothTimes(dit.tp, dit.sizes, dit.fixed, ar)
    return Fleet(ar=1, ar_times=nothing(), dit=1, dit_times=both, overhead=profile.overhead_seconds)


def _both_fit(profile: Profile, tp: int, gpu_memory: float) -> bool:
    ar = max((run.memory_gib or 0 for run in profile.ar.runs if run.tp == tp), default=0)
    dit = max((run.memory_gib or 0 for run in profile.dit.runs if run.tp == tp), default=0)
    return ar + dit <= gpu_memory


def _smallest(each: Fleet, target: Target, most: int | None) -> Fleet | None:
    """The cheapest numbers of these two replicas, or None if none meets the target with at most `most` GPUs."""
    mix, calm = target.mix, target.rate / target.max_load
    fewest_ar = max(1, math.ceil(calm / each.ar_most(mix) - 1e-9))
    fewest_dit = max(1, math.ceil(calm / each.dit_most(mix) - 1e-9))
    if max(fewest_ar, fewest_dit) > MAX_REPLICAS or _too_slow(each, target):
        return None
    best: Fleet | None = None
    for ar in _growing(fewest_ar):
        fleet = replace(each, ar=ar, dit=fewest_dit)
        if fleet.gpus > min(most or fleet.gpus, best.gpus if best else fleet.gpus):
            break
        found = _enough_dits(fleet, target)
        if found is not None and (best is None or found.gpus < best.gpus):
            best = found
    return best


def _growing(fewest: int) -> Iterator[int]:
    """Numbers of AR replicas to try: each next one at first, then in steps of a tenth."""
    count = fewest
    while count <= min(MAX_REPLICAS, 4 * fewest + 16):
        yield count
        count += max(1, count // 10)


def _enough_dits(fleet: Fleet, target: Target) -> Fleet | None:
    """This fleet with the fewest DiT replicas, from its own number up, that meet the p95."""
    if fleet.contention is not None or target.p95 is None:
        some = (replace(fleet, dit=count) for count in range(fleet.dit, fleet.dit + 64))
        return next((tried for tried in some if meets(predict(tried, target.rate, target.mix), target)), None)
    writing = writing_at(fleet, target.rate, target.mix)

    def in_time(count: int) -> bool:
        tried = replace(fleet, dit=count)
        return latency(tried, writing, target.rate, target.mix, 0.95) <= (target.p95 or math.inf)

    low, high = fleet.dit, min(MAX_REPLICAS, 2 * fleet.dit + 64)
    if not in_time(high):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if in_time(middle) else (middle + 1, high)
    return replace(fleet, dit=low)


def _pairs(each: Fleet, target: Target) -> Fleet | None:
    """The fewest copies of a monolith that meet the target."""
    if _too_slow(each, target):
        return None
    low, high = 1, MAX_REPLICAS
    while low < high:
        middle = (low + high) // 2
        enough = meets(predict(replace(each, ar=middle, dit=middle), target.rate, target.mix), target)
        low, high = (low, middle) if enough else (middle + 1, high)
    found = replace(each, ar=low, dit=low)
    return found if meets(predict(found, target.rate, target.mix), target) else None


def _too_slow(each: Fleet, target: Target) -> bool:
    """Whether an image misses the p95 even with nobody else there: the slowest 5 % of the mix decide."""
    if target.p95 is None:
        return False
    late = math.fsum(kind.share for kind in target.mix if each.alone(kind) > target.p95)
    return late > 0.05


def _rank(fleet: Fleet, target: Target) -> tuple[float, float]:
    return fleet.gpus, predict(fleet, target.rate, target.mix).p95


def _impossible(profile: Profile, target: Target, gpu_memory: float, batch: int | None) -> ConfigError:
    pairs = [(a, d) for a in ar_times(profile, gpu_memory, target.mix, batch) for d in dit_times(profile, gpu_memory)]
    if target.p95 is not None and all(_too_slow(_one_each(profile, a, d), target) for a, d in pairs):
        slowest = max(target.mix, key=lambda kind: kind.pixels * kind.steps)
        best = min(_one_each(profile, a, d).alone(slowest) for a, d in pairs)
        text = f"no fleet has a p95 of {target.p95:g} s: {slowest} takes {best:.1f} s with nobody else there"
        return ConfigError(f"{text}; raise --p95, or ask for fewer steps or pixels", param="p95")
    text = f"no fleet of at most {MAX_REPLICAS} replicas a stage meets {target.rate:g} images/s"
    return ConfigError(f"{text}; lower --rate, or raise --p95 or --max-load", param="rate")
