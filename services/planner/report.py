"""A plan as text and as a JSON object."""

import math
from dataclasses import asdict
from typing import Any

from services.planner.predict import Fleet, Prediction, cost_per_image
from services.planner.profile import Profile
from services.planner.search import Plan
from services.planner.simulate import Simulated
from services.planner.stage_times import BothTimes
from services.planner.workload import Target

SAID = {"published": "published by others, not measured by us", "measured": "measured"}
WIDTH = 24  # of the first column, in characters


def replicas(fleet: Fleet) -> str:
    """The fleet in words."""
    if isinstance(fleet.dit_times, BothTimes):
        return f"{fleet.dit} x both stages in turn (TP {fleet.dit_times.tp})"
    ar, dit = fleet.ar_times, fleet.dit_times
    return f"{fleet.ar} AR (TP {ar.tp}, batch {ar.max_batch}) + {fleet.dit} DiT (TP {dit.tp})"


def text(
    profile: Profile, target: Target, ours: Plan, theirs: Plan | None, simulated: Simulated | None, price: float
) -> str:
    """The whole answer, for a terminal. price: of one GPU for an hour."""
    wanted = f", p95 at most {target.p95:g} s" if target.p95 is not None else ""
    mix = "; ".join(f"{kind} ({kind.share:.0%})" for kind in target.mix)
    lines = [
        f"profile {profile.name}: {profile.device}; stage times {SAID[profile.origin]}",
        *(f"  source: {source}" for source in profile.sources),
        *(f"  assumed: {line}" for line in profile.assumed),
        f"target: {target.rate:g} images/s{wanted}, load at most {target.max_load:.0%}; {mix}",
        "",
        *_block("Diptych", ours, target, price),
        *([] if simulated is None else _checked(simulated, ours.prediction)),
        "",
        *(_block("monolith", theirs, target, price) if theirs else ["monolith: no number of copies meets this target"]),
    ]
    if theirs is not None:
        ratio = theirs.fleet.gpus / ours.fleet.gpus
        lines += ["", f"The monolith needs {ratio:.2f} times the GPUs for the same target."]
    return "\n".join(lines)


def _block(name: str, plan: Plan, target: Target, price: float) -> list[str]:
    fleet, p = plan.fleet, plan.prediction
    both = isinstance(fleet.dit_times, BothTimes)
    load = f"{p.dit_load:.0%}" if both else f"AR {p.ar_load:.0%}, DiT {p.dit_load:.0%}"
    return [
        _row(name, f"{replicas(fleet)} = {fleet.gpus} GPUs"),
        _row("  can do at most", f"{p.most:.3g} images/s"),
        _row("  p50 / p95 / p99", f"{p.p50:.1f} / {p.p95:.1f} / {p.p99:.1f} s"),
        _row("  load", load),
        _row("  cost", f"{cost_per_image(fleet.gpus, price, target.rate):.4g} an image at {price:g} a GPU hour"),
    ]


def _checked(simulated: Simulated, predicted: Prediction) -> list[str]:
    s = simulated
    off = s.p95 / predicted.p95 - 1 if math.isfinite(predicted.p95) else math.inf
    return [
        _row("  simulated", f"{s.jobs} images at {s.rate:.3g}/s: p50 {s.p50:.1f}, p95 {s.p95:.1f}, p99 {s.p99:.1f} s"),
        _row("", f"AR works {s.ar_busy:.0%} of the time, batch {s.batch:.1f}; DiT {s.dit_busy:.0%}; p95 {off:+.0%}"),
    ]


def _row(name: str, content: str) -> str:
    return f"{name:<{WIDTH}}{content}"


def as_object(
    profile: Profile, target: Target, ours: Plan, theirs: Plan | None, simulated: Simulated | None, price: float
) -> dict[str, Any]:
    """The same as JSON-ready values; infinite times become null. price: of one GPU for an hour."""
    return {
        "profile": {"name": profile.name, "origin": profile.origin, "device": profile.device},
        "target": {**asdict(target), "mix": [asdict(kind) for kind in target.mix]},
        "diptych": _plan_object(ours, target, price),
        "simulated": None if simulated is None else _finite(asdict(simulated)),
        "monolith": None if theirs is None else _plan_object(theirs, target, price),
    }


def _plan_object(plan: Plan, target: Target, price: float) -> dict[str, Any]:
    fleet = plan.fleet
    return {
        "ar_replicas": fleet.ar,
        "ar_tp": fleet.ar_times.tp,
        "ar_batch": fleet.ar_times.max_batch,
        "dit_replicas": fleet.dit,
        "dit_tp": fleet.dit_times.tp,
        "gpus": fleet.gpus,
        "cost_per_image": cost_per_image(fleet.gpus, price, target.rate),
        **_finite(asdict(plan.prediction)),
    }


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    return {key: None if isinstance(v, float) and not math.isfinite(v) else v for key, v in values.items()}
