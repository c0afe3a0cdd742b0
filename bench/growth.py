"""What an image costs as the work grows: pixels, steps, n, clients, replicas, bytes handed over, jobs in the queue.

Each part makes one figure in docs/figures and one entry in bench/results/growth.json. The parts that ask how the
gateway and the hand-off grow use the simulator's engines, which wait instead of computing; the others the real ones.
"""

import argparse
import asyncio
import contextlib
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from bench import results
from bench.load import TIMEOUT, Ask, closed
from bench.processes import ROOT, Stack, diptych
from bench.stage_times import stages_of
from bench.stages import phases

FIGURES = ROOT / "docs" / "figures"
QUEUED = 1000


def _one(stack: Stack, ask: Ask, repeats: int = 3) -> dict[str, Any]:
    """Median seconds of one image with nobody else there, and its phases."""
    before = phases(stack.url)
    seen = asyncio.run(closed(stack.url, 1, repeats, ask))
    split = {name: (total - before.get(name, 0.0)) / repeats for name, total in phases(stack.url).items()}
    return {"seconds": seen.at(0.5), "split": split, "errors": seen.errors, "bytes": seen.image_bytes}


def pixels(stack: Stack) -> list[dict[str, Any]]:
    """256x256 to 1024x1024, 8 steps."""
    return [{"x": side} | _one(stack, Ask(f"{side}x{side}")) for side in (256, 512, 768, 1024)]


def steps(stack: Stack) -> list[dict[str, Any]]:
    """4 to 32 denoising steps at 256x256."""
    return [{"x": count} | _one(stack, Ask(steps=count)) for count in (4, 8, 16, 32)]


def images(stack: Stack) -> list[dict[str, Any]]:
    """n from 1 to 8 in one request."""
    return [{"x": n} | _one(stack, Ask(extra={"n": n}), 2) for n in (1, 2, 4, 8)]


def clients(stack: Stack) -> list[dict[str, Any]]:
    """1 to 16 clients: images a second and p50."""
    found = []
    for count in (1, 2, 4, 8, 16):
        seen = asyncio.run(closed(stack.url, count, 4 * count + 4, Ask()))
        found.append({"x": count, "rate": seen.rate, "seconds": seen.at(0.5), "p95": seen.at(0.95)})
    return found


async def _bytes(stack: Stack, side: int) -> dict[str, Any]:
    """What the DiT's consumer counted for one image more, and its seconds."""
    async with stages_of(stack, side) as stages:
        before = (await stages.dit.info(10)).handoff
        prior = await stages.write()
        _, times = await stages.render(prior)
        repeats = [(await stages.render(prior))[1]["handoff"] for _ in range(4)]
        after = (await stages.dit.info(10)).handoff
    per_image = (after["bytes_moved"] - before["bytes_moved"]) / (1 + len(repeats))
    return {"x": side, "first": times["handoff"], "seconds": statistics.median(repeats), "bytes": per_image}


def handoff(stack: Stack) -> list[dict[str, Any]]:
    """Bytes and seconds of the hand-off, 256x256 to 2048x2048 (simulated engines, real NIXL)."""
    return [asyncio.run(_bytes(stack, side)) for side in (256, 512, 1024, 1536, 2048)]


def replicas() -> list[dict[str, Any]]:
    """1 to 8 simulated DiT replicas behind one AR: images a second of 32 clients."""
    found = []
    slow = {"DIPTYCH_ENGINE": "sim", "DIPTYCH_SIM_STEP_SECONDS": "0.1", "DIPTYCH_SIM_AR_SECONDS": "0.5"}
    for count in (1, 2, 4, 8):
        with diptych(dit=count, name=f"replicas{count}", **slow, DIPTYCH_SIM_AR_BATCH="16") as stack:
            seen = asyncio.run(closed(stack.url, 32, 16 * count + 32, Ask()))
        found.append({"x": count, "rate": seen.rate, "seconds": seen.at(0.5)})
    return found


async def _queue(stack: Stack, jobs: int) -> None:
    """Hold `jobs` requests open until all are in the gateway, then leave."""
    async with httpx.AsyncClient(timeout=TIMEOUT, limits=httpx.Limits(max_connections=jobs + 1)) as http:
        url = f"{stack.url}/v1/images/generations"
        tasks = [asyncio.create_task(http.post(url, json=Ask().body(number))) for number in range(jobs)]
        async with asyncio.timeout(120):
            while _held(stack) < jobs:
                await asyncio.sleep(0.2)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _held(stack: Stack) -> float:
    text = httpx.get(f"{stack.url}/metrics", timeout=30).text
    lines = [line for line in text.splitlines() if line.startswith(("diptych_queue_jobs ", "diptych_active_jobs{"))]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def queue() -> list[dict[str, Any]]:
    """Resident memory of the gateway with 0 to 1,000 jobs in it."""
    found = []
    slow = {
        "DIPTYCH_ENGINE": "sim",
        "DIPTYCH_SIM_AR_SECONDS": "600",
        "DIPTYCH_WARM_UP": "false",
        "DIPTYCH_MAX_JOBS": str(QUEUED),
    }
    with diptych(name="queue", **slow, DIPTYCH_MAX_REQUESTS=str(2 * QUEUED), DIPTYCH_DEADLINE="3600") as stack:
        gateway = stack.pids()["gateway"][0]
        found.append({"x": 0, "mib": gateway.memory_info().rss / 2**20})
        for jobs in (250, 500, QUEUED):
            asyncio.run(_queue(stack, jobs))
            found.append({"x": jobs, "mib": _peak_mib(gateway.pid)})
    return found


def _peak_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


REAL: dict[str, Callable[[Stack], list[dict[str, Any]]]] = {
    "pixels": pixels,
    "steps": steps,
    "images": images,
    "clients": clients,
}
SIMULATED: dict[str, Callable[[Stack], list[dict[str, Any]]]] = {"handoff": handoff}
ALONE: dict[str, Callable[[], list[dict[str, Any]]]] = {"replicas": replicas, "queue": queue}

DRAWN = {  # x label, y label, field of the row
    "pixels": ("pixels a side", "seconds an image", "seconds"),
    "steps": ("denoising steps", "seconds an image", "seconds"),
    "images": ("n", "seconds a request", "seconds"),
    "clients": ("clients", "images a second", "rate"),
    "replicas": ("DiT replicas (simulated)", "images a second", "rate"),
    "handoff": ("pixels a side", "bytes handed over", "bytes"),
    "queue": ("jobs in the gateway", "MiB resident", "mib"),
}


def draw(part: str, rows: list[dict[str, Any]]) -> None:
    """docs/figures/growth-PART.svg."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    x, y, key = DRAWN[part]
    figure, axes = pyplot.subplots(figsize=(4.2, 3), layout="constrained")
    axes.plot([row["x"] for row in rows], [row[key] for row in rows], "C0.-")
    axes.set(xlabel=x, ylabel=y)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    FIGURES.mkdir(parents=True, exist_ok=True)
    figure.savefig(FIGURES / f"growth-{part}.svg", metadata={"Date": None})
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=[*REAL, *SIMULATED, *ALONE])
    options = parser.parse_args()
    found = dict((results.read("growth") or {}).get("parts", {}))
    for parts, settings in ((REAL, {}), (SIMULATED, {"DIPTYCH_ENGINE": "sim", "DIPTYCH_SIM_AR_SECONDS": "0.05"})):
        wanted = [part for part in options.parts if part in parts]
        with diptych(name="growth", **settings) if wanted else contextlib.nullcontext() as stack:
            for part in wanted:
                found[part] = parts[part](stack)
    for part in (part for part in options.parts if part in ALONE):
        found[part] = ALONE[part]()
    for part in options.parts:
        draw(part, found[part])
        head = list(found[part][0])
        show = lambda value: f"{value:.3g}" if isinstance(value, float) else str(value)  # noqa: E731
        print(f"{part}\n{results.table(head, [[show(row[key]) for key in head] for row in found[part]])}\n")
    results.write("growth", {"parts": found})


if __name__ == "__main__":
    main()
