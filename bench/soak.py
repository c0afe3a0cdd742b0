"""Weeks in small: steady load for a long time, and what grows meanwhile.

    python -m bench.soak [--minutes 20] [--engine sim|vllm-omni] [--rate 2]

Prints what each process uses of a core when it is idle, the slope of its resident memory (least squares over the
second half, when caches are full), and counts of threads, descriptors, sockets, leased slots and jobs before and
after. Exits 1 if something leaked.
"""

import asyncio
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

import click
import httpx
import numpy as np

from bench import results
from bench.processes import Stack, diptych

SAMPLE = 5.0  # seconds
SETTLE = 45.0  # seconds without load, for kept-alive connections to close
MAX_SLOPE = 2.0  # MiB a minute of one process: 2.8 GiB a day
SPARE = 4  # descriptors and threads that may differ: a library's own


@dataclass(frozen=True)
class Weight:
    """One process tree at one moment. rss: MiB."""

    rss: float
    threads: int
    descriptors: int
    sockets: int


def weigh(stack: Stack) -> dict[str, Weight]:
    """Each process with its children."""
    return {
        name: Weight(
            sum(process.memory_info().rss for process in tree) / 2**20,
            sum(process.num_threads() for process in tree),
            sum(process.num_fds() for process in tree),
            sum(len(process.net_connections("inet")) for process in tree),
        )
        for name, tree in stack.pids().items()
    }


def slope(times: list[float], values: list[float]) -> float:
    """Growth a minute, by least squares over the second half of the samples."""
    half = len(times) // 2
    return float(np.polyfit(times[half:], values[half:], 1)[0] * 60) if len(times) - half > 1 else 0.0


def held(stack: Stack) -> dict[str, int]:
    """Leased slots, and jobs, in all stage services."""
    infos = [httpx.get(f"{url}/v1/info", timeout=10).json() for urls in stack.stages.values() for url in urls]
    slots = sum(int(info.get("handoff", {}).get("slots_live", 0)) for info in infos)
    return {"slots": slots, "jobs": sum(info.get("running", 0) + info.get("waiting", 0) for info in infos)}


async def load(url: str, seconds: float, rate: float, ends: Counter[str]) -> None:
    """`rate` requests a second, one in ten of which leaves early, each third a stream, for `seconds`."""
    until = time.monotonic() + seconds
    async with httpx.AsyncClient(base_url=url, timeout=120) as client, asyncio.TaskGroup() as group:
        for number in range(int(seconds * rate)):
            group.create_task(ask(client, number, ends))
            await asyncio.sleep(1 / rate)
            if time.monotonic() > until:
                return


async def ask(client: httpx.AsyncClient, number: int, ends: Counter[str]) -> None:
    """One request."""
    body = {"prompt": f"fox {number}", "size": "128x128", "num_inference_steps": 4, "stream": number % 3 == 0}
    try:
        async with asyncio.timeout(0.05 if number % 10 == 9 else 120):
            reply = await client.post("/v1/images/generations", json=body)
        ends[str(reply.status_code)] += 1
    except TimeoutError:
        ends["left"] += 1
    except httpx.TransportError as error:
        ends[type(error).__name__] += 1


async def idle_cores(stack: Stack) -> dict[str, float]:
    """Cores that each process and its children use while nobody asks for anything, over SETTLE seconds."""
    before, began = stack.cpu_seconds(), time.monotonic()
    await asyncio.sleep(SETTLE)
    after, spent = stack.cpu_seconds(), time.monotonic() - began
    return {name: (after[name] - before[name]) / spent for name in before}


async def soak(stack: Stack, minutes: float, rate: float) -> dict[str, Any]:
    """Load and samples; the figures that are printed."""
    ends: Counter[str] = Counter()
    await load(stack.url, 20, rate, ends)  # everything is imported, and every connection made once
    await asyncio.sleep(SETTLE)
    before = weigh(stack)
    began = time.monotonic()
    times: list[float] = []
    samples: list[dict[str, Weight]] = []
    running = asyncio.create_task(load(stack.url, minutes * 60, rate, ends))
    while not running.done():
        await asyncio.wait({running}, timeout=SAMPLE)
        stack.alive()
        times.append(time.monotonic() - began)
        samples.append(await asyncio.to_thread(weigh, stack))
    await running
    idle = await idle_cores(stack)
    after = weigh(stack)
    rows = {
        name: {
            "rss_mib": [round(before[name].rss, 1), round(after[name].rss, 1)],
            "rss_slope_mib_per_minute": round(slope(times, [sample[name].rss for sample in samples]), 3),
            "threads": [before[name].threads, after[name].threads],
            "descriptors": [before[name].descriptors, after[name].descriptors],
            "sockets": [before[name].sockets, after[name].sockets],
            "idle_cores": round(idle[name], 4),
        }
        for name in before
    }
    return {"minutes": minutes, "rate": rate, "ends": dict(ends), "processes": rows, "held": held(stack)}


def leaks(found: dict[str, Any]) -> list[str]:
    """What grew, in words; none: nothing did."""
    said = [f"{count} {what} are still held" for what, count in found["held"].items() if count]
    for name, row in found["processes"].items():
        if row["rss_slope_mib_per_minute"] > MAX_SLOPE:
            said.append(f"{name}: memory grows by {row['rss_slope_mib_per_minute']} MiB a minute")
        for what in ("threads", "descriptors", "sockets"):
            if row[what][1] > row[what][0] + SPARE:
                said.append(f"{name}: {what} went from {row[what][0]} to {row[what][1]}")
    bad = {end: count for end, count in found["ends"].items() if end not in ("200", "left")}
    return said + ([f"requests failed: {bad}"] if bad else [])


@click.command()
@click.option("--minutes", default=20.0, show_default=True)
@click.option("--engine", type=click.Choice(["sim", "vllm-omni"]), default="sim", show_default=True)
@click.option("--rate", default=2.0, show_default=True, help="Requests a second.")
def main(minutes: float, engine: str, rate: float) -> None:
    """Soak a gateway, an AR and a DiT; write bench/results/soak-ENGINE.json."""
    with diptych(name=f"soak-{engine}", DIPTYCH_ENGINE=engine) as stack:
        found = asyncio.run(soak(stack, minutes, rate))
    for name, row in found["processes"].items():
        print(name, row)
    print(found["ends"], found["held"])
    print(results.write(f"soak-{engine}", found))
    said = leaks(found)
    print("\n".join(said) or "nothing grew")
    raise SystemExit(1 if said else 0)


if __name__ == "__main__":
    main()
