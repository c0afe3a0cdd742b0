"""Predicts, then measures: is `diptych plan` within 15 % of what really happens?

First the simulator stack (real services and hand-off, engines that wait), under Poisson arrivals and under clients
that ask again at once; then, with --engine, the real CPU stack. The stage times come from `bench.stage_times`, so
that only the planner's arithmetic is on trial. Ends non-zero when a figure is off by more than 15 %.
"""

import argparse
import asyncio
import json
import sys
from typing import Any

from bench import results, stage_times
from bench.load import Ask, Seen, closed, open_loop
from bench.processes import Stack, diptych
from services.planner.predict import Fleet, predict
from services.planner.profile import parse
from services.planner.simulate import simulate
from services.planner.stage_times import ar_times, dit_times
from services.planner.workload import parse_mix

TOLERANCE = 0.15
MIX = parse_mix((f"{stage_times.SIDE}x{stage_times.SIDE}:{stage_times.STEPS}",))
SIM = {
    "DIPTYCH_ENGINE": "sim",
    "DIPTYCH_SIM_AR_SECONDS": "1.0",
    "DIPTYCH_SIM_AR_BATCH": "8",
    "DIPTYCH_SIM_AR_BATCH_COST": "0.05",
    "DIPTYCH_SIM_STEP_SECONDS": "0.1",
    "DIPTYCH_SIM_VAE_SECONDS": "0.1",
}


def _fleet(profile: dict[str, Any], ar: int, dit: int) -> Fleet:
    read = parse(json.dumps(profile), profile["name"])
    times = ar_times(read, read.memory_gib, MIX)[0], dit_times(read, read.memory_gib)[0]
    return Fleet(
        ar=ar,
        ar_times=times[0],
        dit=dit,
        dit_times=times[1],
        overhead=read.overhead_seconds,
        contention=read.contention,
    )


def _compared(what: str, seen: Seen, predicted: dict[str, float]) -> dict[str, Any]:
    measured = {"rate": seen.rate, "p50": seen.at(0.5), "p95": seen.at(0.95)}
    off = {key: predicted[key] / measured[key] - 1 for key in predicted}
    for key in predicted:
        print(f"{what:<34}{key:<6}measured {measured[key]:8.3f}  predicted {predicted[key]:8.3f}  {off[key]:+.0%}")
    return {"what": what, "measured": measured, "predicted": predicted, "off": off, "others": seen.others}


def _check(stack: Stack, fleet: Fleet, name: str, images: int, loads: list[float], clients: list[int]) -> list[Any]:
    rows = []
    pids = [process.pid for process in stack.processes.values()]
    most = predict(fleet, 1e-6, MIX).most
    for load in loads:
        rate = load * most
        seen = asyncio.run(open_loop(stack.url, rate, images, Ask(), 1, pids))
        form, run = predict(fleet, rate, MIX), simulate(fleet, MIX, jobs=20_000, seed=1, rate=rate)
        rows.append(_compared(f"{name}, load {load:.0%}, closed form", seen, {"p50": form.p50, "p95": form.p95}))
        rows.append(_compared(f"{name}, load {load:.0%}, simulation", seen, {"p50": run.p50, "p95": run.p95}))
    for count in clients:
        seen = asyncio.run(closed(stack.url, count, images, Ask(), pids))
        run = simulate(fleet, MIX, jobs=5000, seed=1, clients=count)
        rows.append(_compared(f"{name}, {count} clients, simulation", seen, {"rate": run.rate, "p50": run.p50}))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", action="store_true", help="the real CPU stack too")
    parser.add_argument("--images", type=int, default=200)
    options = parser.parse_args()
    with diptych(dit=4, name="plan-sim", **SIM) as stack:
        profile = asyncio.run(stage_times.measure(stack, most=8, name="sim", shared=False))
        rows = _check(stack, _fleet(profile, 1, 4), "sim", options.images, [0.5, 0.8], [1, 4, 16])
    profiles = [profile]
    if options.engine:
        with diptych(name="plan-cpu") as stack:
            profiles.append(asyncio.run(stage_times.measure(stack, most=4, name="cpu", shared=True)))
            rows += _check(stack, _fleet(profiles[1], 1, 1), "cpu", options.images // 2, [0.6], [1, 4, 8])
    results.write("plan_check", {"profiles": profiles, "rows": rows})
    worst = max(abs(value) for row in rows for value in row["off"].values())
    print(f"the worst is off by {worst:.0%}; {TOLERANCE:.0%} are allowed")
    sys.exit(worst > TOLERANCE)


if __name__ == "__main__":
    main()
