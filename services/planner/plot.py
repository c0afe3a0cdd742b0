"""A plan as two figures: latency against load, and cost against the AR:DiT ratio."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from services.planner.predict import Fleet, cost_per_image, predict
from services.planner.search import Plan
from services.planner.workload import Target
from services.wire.errors import ConfigError

POINTS = 40
KINDS = (".png", ".svg", ".pdf")


def draw(path: Path, title: str, target: Target, ours: Plan, theirs: Plan | None, price: float) -> None:
    """Write both figures to `path`. Raises ConfigError if matplotlib is missing or `path` cannot be written."""
    if path.suffix.lower() not in KINDS:
        raise ConfigError(f"--plot {path}: the name must end in {', '.join(KINDS)}", param="plot")
    try:
        import matplotlib as mpl

        mpl.use("Agg")
        from matplotlib import pyplot
    except ImportError as error:
        text = "--plot needs matplotlib, which is not installed: pip install matplotlib, or leave --plot out"
        raise ConfigError(text, param="plot") from error
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    _latency(left, target, ours.fleet, "Diptych", "C0")
    if theirs is not None:
        _latency(left, target, _same_gpus(theirs.fleet, ours.fleet.gpus), "monolith, same GPUs", "C1")
    left.legend(fontsize=8)
    _label(left, "images a second", "seconds", "latency against load")
    left.axvline(target.rate, color="0.6", lw=0.8)
    _costs(right, target, ours.fleet, price)
    figure.suptitle(title)
    try:
        figure.savefig(path, dpi=130)
    except OSError as error:
        raise ConfigError(f"--plot {path}: {error.strerror or error}", param="plot") from error
    finally:
        pyplot.close(figure)


def _same_gpus(monolith: Fleet, gpus: int) -> Fleet:
    """As many copies of the monolith as `gpus` hold."""
    each = monolith.gpus // monolith.dit
    copies = max(1, gpus // each)
    ar = copies if monolith.ar == monolith.dit else monolith.ar
    return replace(monolith, ar=ar, dit=copies)


def _latency(axes: Any, target: Target, fleet: Fleet, name: str, colour: str) -> None:
    most = predict(fleet, target.rate, target.mix).most
    rates = [most * 0.98 * (step + 1) / POINTS for step in range(POINTS)]
    found = [predict(fleet, rate, target.mix) for rate in rates]
    axes.plot(rates, [p.p50 for p in found], colour, label=f"{name}: p50")
    axes.plot(rates, [p.p95 for p in found], colour, ls="--", label=f"{name}: p95")


def _costs(axes: Any, target: Target, fleet: Fleet, price: float) -> None:
    """Cost an image of one AR replica with more and more DiT replicas, both as busy as the target allows."""
    one = replace(fleet, ar=1, dit=1)
    enough = one.ar_most(target.mix) / one.dit_most(target.mix)
    ratios = range(1, int(2 * enough) + 3)
    costs = []
    for ratio in ratios:
        some = replace(one, dit=ratio)
        rate = target.max_load * min(some.ar_most(target.mix), some.dit_most(target.mix))
        costs.append(cost_per_image(some.gpus, price, rate))
    axes.plot(list(ratios), costs, "C0.-")
    axes.axvline(fleet.dit / fleet.ar, color="0.6", lw=0.8)
    axes.set_ylim(bottom=0)
    _label(axes, "DiT replicas for each AR replica", "cost an image", f"cost at {target.max_load:.0%} load")


def _label(axes: Any, x: str, y: str, title: str) -> None:
    axes.set(xlabel=x, ylabel=y, title=title)
    axes.grid(alpha=0.3)
