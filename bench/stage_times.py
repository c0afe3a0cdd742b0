"""Times each stage of a running stack by itself and writes a profile for `diptych plan`.

`python -m bench.stage_times` measures this machine's stack and writes bench/results/stage_times.json; its `profile`
is what `services.planner.profile` reads.
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from bench import results
from bench.load import Ask, closed
from bench.processes import Stack, diptych
from services.gateway.stage_client import StageClient
from services.wire.ar_to_gateway import Prior
from services.wire.dit_to_gateway import Rendered
from services.wire.gateway_to_ar import PriorRequest
from services.wire.gateway_to_dit import RenderRequest

BUDGET = 300.0  # seconds
SIDE, STEPS = 256, 8


class Stages:
    """Calls to one AR and one DiT service, around the gateway."""

    def __init__(self, ar: StageClient, dit: StageClient, side: int = SIDE, steps: int = STEPS) -> None:
        self.ar, self.dit = ar, dit
        self.side, self.steps = side, steps
        self._number = 0

    def _id(self) -> str:
        self._number += 1
        return f"bench-{self._number}"

    async def write(self) -> Prior:
        """One prior; its slot is the caller's to release."""
        request_id = self._id()
        message = PriorRequest(
            request_id=request_id,
            prompt=f"apple number {self._number} on a table",
            width=self.side,
            height=self.side,
            seed=self._number,
            budget=BUDGET,
        )
        return await self.ar.write(message)

    async def batch(self, size: int) -> float:
        """Seconds until `size` priors that began together are written."""
        began = time.perf_counter()
        priors = await asyncio.gather(*(self.write() for _ in range(size)))
        seconds = time.perf_counter() - began
        for prior in priors:
            await self.ar.forget(f"/v1/priors/{prior.request_id}")
        return seconds

    async def render(self, prior: Prior) -> tuple[float, dict[str, float]]:
        """Seconds of one image and its phases."""
        began = time.perf_counter()
        message = RenderRequest(
            request_id=self._id(),
            ticket=prior.ticket,
            prompt="an apple on a table",
            width=self.side,
            height=self.side,
            crop=(self.side, self.side),
            steps=self.steps,
            guidance=1.5,
            seed=self._number,
            budget=BUDGET,
        )
        async for event in self.dit.render(message):
            if isinstance(event, Rendered):
                return time.perf_counter() - began, event.times
        raise RuntimeError(f"{self.dit.url} ended the stream without an image")


@asynccontextmanager
async def stages_of(stack: Stack, side: int = SIDE, steps: int = STEPS) -> AsyncIterator[Stages]:
    """The first AR and the first DiT of `stack`."""
    clients = [StageClient(stack.stages[stage][0], connect_timeout=5) for stage in ("ar", "dit")]
    try:
        yield Stages(*clients, side, steps)
    finally:
        for client in clients:
            await client.close()


async def _median_batch(stages: Stages, size: int, repeats: int) -> float:
    return statistics.median([await stages.batch(size) for _ in range(repeats)])


async def _median_render(stages: Stages, prior: Prior, repeats: int) -> float:
    return statistics.median([(await stages.render(prior))[0] for _ in range(repeats)])


@asynccontextmanager
async def _meanwhile(work: Any) -> AsyncIterator[None]:
    """Do `work` again and again until the end of the block."""

    async def again() -> None:
        while True:
            await work()

    task = asyncio.create_task(again())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def measure(stack: Stack, *, most: int, name: str, shared: bool, repeats: int = 5) -> dict[str, Any]:
    """A profile of `stack`, as `services.planner.profile.parse` takes it. most: the AR's batch; shared: same cores."""
    async with stages_of(stack) as stages:
        await stages.batch(most)  # warm
        curve = {size: await _median_batch(stages, size, repeats) for size in _sizes(most)}
        prior = await stages.write()
        await stages.render(prior)
        render = await _median_render(stages, prior, 2 * repeats)
        contention = None
        if shared:
            async with _meanwhile(lambda: stages.batch(most)):
                slowed = await _median_render(stages, prior, 2 * repeats)
            async with _meanwhile(lambda: stages.render(prior)):
                delayed = await _median_batch(stages, most, repeats)
            contention = {"ar": max(1.0, delayed / curve[most]), "dit": max(1.0, slowed / render)}
        await stages.ar.forget(f"/v1/priors/{prior.request_id}")
    whole = (await closed(stack.url, 1, 2 * repeats, Ask())).at(0.5)
    times = dict(zip(curve, _rising(list(curve.values())), strict=True))
    return {
        "name": name,
        "origin": "measured",
        "device": f"{results.machine()['cores']} cores of {results.machine()['cpu']}",
        "memory_gib": results.machine()["memory_gib"],
        "sources": ["bench/stage_times.py on this machine"],
        "ar": {"runs": [{"width": SIDE, "height": SIDE, "seconds": times}]},
        "dit": {"runs": [{"width": SIDE, "height": SIDE, "steps": STEPS, "seconds": render}]},
        "monolith": {"kind": "pair", "ar_batch": most},
        "contention": contention,
        "overhead_seconds": max(0.0, whole - times[1] - render),
    }


def _sizes(most: int) -> list[int]:
    return sorted({1, most} | {2**power for power in range(1, 12) if 2**power < most})


def _rising(values: list[float]) -> list[float]:
    """Noise may make a larger batch look faster by a hair; a profile says that it is not."""
    out: list[float] = []
    for value in values:
        out.append(max([value, *out[-1:]]))
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=4, help="the AR's max_num_seqs")
    options = parser.parse_args()
    with diptych() as stack:
        profile = asyncio.run(measure(stack, most=options.batch, name="here", shared=True))
    print(results.write("stage_times", {"profile": profile}))


if __name__ == "__main__":
    main()
