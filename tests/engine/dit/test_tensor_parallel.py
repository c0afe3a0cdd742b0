"""Two ranks paint what one paints, with previews and cancellation, and their death is told."""

import asyncio
import signal
from contextlib import aclosing
from typing import Any

import numpy as np
import psutil
import pytest

from services.omni.checkpoint import Checkpoint
from services.omni.dit_stage import VllmDitEngine
from services.serving.engine import FinalImage, PartialImage, RenderJob, StepDone
from services.wire.errors import EngineDied
from tests.engine.dit.conftest import DIT_ARGS
from tests.engine.dit.harness import bundle_for, edit_bundle, job

PSNR = 50.0  # dB, float32: ranks add in another order


def psnr(one: Any, other: Any) -> float:
    error = np.mean((one.astype(float) - other.astype(float)) ** 2)
    return float("inf") if error == 0 else float(10 * np.log10(255**2 / error))


async def pictures(engine: VllmDitEngine) -> list[Any]:
    found = []
    for render, bundle in (
        (job(steps=6, previews=2), None),
        (job(prompt="a cat 'hello'", guidance=3.0), None),
        (job(), edit_bundle(job())),
    ):
        events = engine.paint(render, bundle_for(render) if bundle is None else bundle)
        found += [event.pixels async for event in events if isinstance(event, PartialImage | FinalImage)]
    return found


async def test_two_ranks_paint_what_one_paints_and_tell_of_their_death(tiny_checkpoint: Checkpoint) -> None:
    one = VllmDitEngine(tiny_checkpoint, DIT_ARGS)
    await one.start()
    alone = await pictures(one)
    await one.stop()
    two = VllmDitEngine(tiny_checkpoint, DIT_ARGS | {"tensor_parallel_size": 2, "devices": "0,1"})
    await two.start()
    try:
        await check_pictures(two, alone)
        await check_closing(two)
        await check_death(two)
    finally:
        await two.stop()


async def check_pictures(two: VllmDitEngine, alone: list[Any]) -> None:
    shared = await pictures(two)
    assert len(shared) == len(alone) == 5
    assert min(psnr(a, b) for a, b in zip(alone, shared, strict=True)) >= PSNR


def long_job() -> RenderJob:
    """More work than a deadline of a minute has room for: the next request comes through only if it stops."""
    return job(steps=1000, width=1024, height=1024)


async def check_closing(two: VllmDitEngine) -> None:
    long = long_job()
    async with aclosing(two.paint(long, bundle_for(long))) as events:
        async for event in events:
            if isinstance(event, StepDone) and event.step == 3:
                break
    assert len(await asyncio.wait_for(pictures(two), 60)) == 5


async def check_death(two: VllmDitEngine) -> None:
    long = long_job()
    events = two.paint(long, bundle_for(long))
    assert isinstance(await anext(events), StepDone)
    ranks = [process for process in two._engine._processes if process.is_running() and "TP1" in psutil_name(process)]
    assert ranks, [psutil_name(process) for process in two._engine._processes]
    for rank in ranks:
        rank.send_signal(signal.SIGKILL)

    async def drain() -> None:
        async for _ in events:
            pass

    with pytest.raises(EngineDied):
        await asyncio.wait_for(drain(), 60)


def psutil_name(process: Any) -> str:
    try:
        return " ".join(process.cmdline()) + process.name()
    except psutil.Error:
        return ""
