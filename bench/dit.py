"""The DiT stage alone: a denoising step before and after, previews, guidance as one batch, and shared forwards.

    python -m bench.dit [--model DIR] [--side 256] [--dtype float32]

Without --model: the tiny checkpoint, which is real machinery and no model; its figures say what the machinery costs.
Runs vLLM-Omni's scheduler and runner in this process, so that a step is timed and nothing else.
"""

import statistics
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import torch

from bench import compare, results
from services.omni.environment import prepare_environment
from services.omni.tiny_model import write_tiny_model

ROOT = Path(__file__).parents[1]
WARM_STEPS = 2  # of every measured run: rotary tables, buffers


@click.command()
@click.option("--model", help="A checkpoint directory; default: the tiny checkpoint.")
@click.option("--side", default=256, show_default=True, help="Pixels.")
@click.option("--dtype", default="float32", show_default=True, help="Of the transformer and the glyph encoder.")
@click.option("--steps", default=10, show_default=True, help="Timed steps a run.")
@click.option("--repeats", default=7, show_default=True, help="Runs of each kind; kinds take turns.")
def main(model: str | None, side: int, dtype: str, steps: int, repeats: int) -> None:
    """Measure the DiT stage and write bench/results/dit.json."""
    prepare_environment()
    from tests.engine.dit.harness import Stepper

    path = Path(model) if model else write_tiny_model(ROOT / ".cache" / "tiny-glm-image")
    stepper = Stepper(path, getattr(torch, dtype))
    try:
        found = measure(stepper, side, steps, repeats)
    finally:
        stepper.close()
    print(compare.steps(found))
    print(results.write("dit", {"side": side, "dtype": dtype, "steps": steps, "repeats": repeats, "kinds": found}))


def measure(stepper: Any, side: int, steps: int, repeats: int) -> dict[str, dict[str, Any]]:
    """Milliseconds a step, and what a step would make a CUDA host wait for, by kind of step."""
    kinds: dict[str, Callable[[], float]] = {
        "stock loop": lambda: stock_step(stepper, side, steps),
        "ours": lambda: our_step(stepper, side, steps),
        "ours, guidance as one batch": lambda: joined_step(stepper, side, steps),
        "ours, two requests": lambda: our_step(stepper, side, steps, requests=2),
        "ours, four requests": lambda: our_step(stepper, side, steps, requests=4),
        "one preview": lambda: preview(stepper, side),
    }
    seconds: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(repeats):
        for kind, run in kinds.items():
            seconds[kind].append(run())
    stalls = {"stock loop": stock_stalls(stepper, side), "ours": our_stalls(stepper, side)}
    return {
        kind: {
            "median_ms": statistics.median(found) * 1000,
            "min_ms": min(found) * 1000,
            "stalls": _told(stalls[kind]) if kind in stalls else "-",
        }
        for kind, found in seconds.items()
    }


def our_step(stepper: Any, side: int, steps: int, requests: int = 1) -> float:
    """Seconds a turn of `requests` requests that share their forwards."""
    from tests.engine.dit.harness import job

    for seed in range(requests):
        stepper.begin(job(width=side, height=side, seed=seed, steps=steps + WARM_STEPS + 1))
    for _ in range(WARM_STEPS):
        stepper.step()
    started = time.perf_counter()
    for _ in range(steps):
        stepper.step()
    seconds = (time.perf_counter() - started) / steps
    stepper.finish()
    return seconds


def joined_step(stepper: Any, side: int, steps: int) -> float:
    """Seconds a turn of one request, its two guidance passes as rows of one forward."""
    with stepper.joined_guidance():
        return our_step(stepper, side, steps)


def stock_step(stepper: Any, side: int, steps: int) -> float:
    """Seconds a step of upstream's loop: what `steps` more steps add to a run."""
    from tests.engine.dit.harness import job

    def run(count: int) -> float:
        started = time.perf_counter()
        stepper.paint_stock(job(width=side, height=side, steps=count))
        return time.perf_counter() - started

    return (run(steps + WARM_STEPS) - run(WARM_STEPS)) / steps


def preview(stepper: Any, side: int) -> float:
    """Seconds of one VAE decode, as a preview or the image takes it."""
    from tests.engine.dit.harness import job

    painted = stepper.paint(job(width=side, height=side, steps=4, previews=3))
    return float(painted.last.stage_durations["vae"]) / 4


def our_stalls(stepper: Any, side: int) -> Counter[str]:
    """What one steady step of ours would wait for."""
    from tests.engine.dit.harness import job
    from tests.engine.dit.stalls import Stalls

    stepper.begin(job(width=side, height=side, steps=5))
    stepper.step()
    stepper.step()
    with Stalls() as stalls:
        stepper.step()
    stepper.finish()
    return stalls.counted


def stock_stalls(stepper: Any, side: int) -> Counter[str]:
    """What one step of upstream's loop would wait for: the difference of a run of five and one of four steps."""
    from tests.engine.dit.harness import job
    from tests.engine.dit.stalls import Stalls

    counted = []
    for steps in (4, 5):
        with Stalls() as stalls:
            stepper.paint_stock(job(width=side, height=side, steps=steps))
        counted.append(stalls.counted)
    return counted[1] - counted[0]


def _told(counted: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counted.items())) or "0"


if __name__ == "__main__":
    main()
