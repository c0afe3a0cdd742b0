"""The DiT engine as the service uses it: events in order, abort, errors, the next request unharmed."""

import asyncio
from collections import Counter
from contextlib import aclosing
from typing import Any

import numpy as np
import pytest

from services.omni.dit_stage import VllmDitEngine
from services.omni.glm_pipeline import DiptychGlmImagePipeline
from services.serving.engine import PRIOR_TOKENS, FinalImage, PartialImage, RenderJob, RenderStep, StepDone
from services.wire.errors import Cancelled, EngineFailed, InvalidPriors
from tests.engine.dit.harness import assert_near, bundle_for, edit_bundle, job


async def paint(engine: VllmDitEngine, render: RenderJob, bundle: Any = None) -> list[RenderStep]:
    return [event async for event in engine.paint(render, bundle_for(render) if bundle is None else bundle)]


async def picture(engine: VllmDitEngine, render: RenderJob, bundle: Any = None) -> Any:
    last = (await paint(engine, render, bundle))[-1]
    assert isinstance(last, FinalImage)
    return last.pixels


@pytest.fixture
def steps_run(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Denoising steps that the pipeline ran, by vLLM-Omni's request id."""
    counted: Counter[str] = Counter()
    stock = DiptychGlmImagePipeline.denoise_step

    def counting(self: Any, input_batch: Any, *, states: Any = None, **more: Any) -> Any:
        counted.update(state.request_id for state in states)
        return stock(self, input_batch, states=states, **more)

    monkeypatch.setattr(DiptychGlmImagePipeline, "denoise_step", counting)
    return counted


async def test_steps_previews_and_the_image_come_in_order(dit_engine: VllmDitEngine) -> None:
    events = await paint(dit_engine, job(steps=6, previews=2, width=96, height=64))
    told = [
        ("step", e.step) if isinstance(e, StepDone) else (type(e).__name__, getattr(e, "index", None)) for e in events
    ]
    assert told == [
        ("step", 1),
        ("step", 2),
        ("PartialImage", 0),
        ("step", 3),
        ("step", 4),
        ("PartialImage", 1),
        ("step", 5),
        ("step", 6),
        ("FinalImage", None),
    ]
    pictures = [event for event in events if isinstance(event, PartialImage | FinalImage)]
    assert {(each.pixels.shape, each.pixels.dtype.name) for each in pictures} == {((64, 96, 3), "uint8")}
    times = pictures[-1].times
    assert set(times) == {"queue", "denoise", "vae"} and times["denoise"] > 0 and times["vae"] > 0


async def test_a_seed_is_an_image(dit_engine: VllmDitEngine) -> None:
    first, again, other = [await picture(dit_engine, job(seed=seed)) for seed in (2**63 - 1, 2**63 - 1, 0)]
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


async def test_closing_stops_within_a_step_and_harms_no_other(
    dit_engine: VllmDitEngine, steps_run: Counter[str]
) -> None:
    alone = await picture(dit_engine, job(seed=3))
    long = job(seed=1, steps=1000)
    neighbour = asyncio.create_task(picture(dit_engine, job(seed=3, steps=4)))
    async with aclosing(dit_engine.paint(long, bundle_for(long))) as events:
        async for event in events:
            if isinstance(event, StepDone) and event.step == 3:
                break
    stopped = sum(steps_run.values())
    assert_near(await neighbour, alone)
    assert np.array_equal(await picture(dit_engine, job(seed=3)), alone)
    # What ran after the close: the neighbour's and the next request's own steps, and one step at most of the closed.
    assert sum(steps_run.values()) - stopped <= 4 + 4 + 1


async def test_an_aborted_request_is_cancelled(dit_engine: VllmDitEngine) -> None:
    long = job(steps=1000)
    painting = asyncio.create_task(paint(dit_engine, long))
    await asyncio.sleep(0)
    await dit_engine.abort("nobody")
    while long.request_id not in dit_engine._engine._running:
        await asyncio.sleep(0.01)
    await dit_engine.abort(long.request_id)
    with pytest.raises(Cancelled):
        await asyncio.wait_for(painting, 30)


@pytest.mark.parametrize(("shift", "keep"), [(16384, None), (-16384, None), (0, 3)])
async def test_priors_that_the_model_has_no_place_for_never_reach_it(
    dit_engine: VllmDitEngine, steps_run: Counter[str], shift: int, keep: int | None
) -> None:
    render = job()
    priors = bundle_for(render)[PRIOR_TOKENS][:keep] + shift
    with pytest.raises(InvalidPriors, match=PRIOR_TOKENS):
        await paint(dit_engine, render, {PRIOR_TOKENS: priors})
    assert not [request for request in steps_run if request.startswith(f"{render.request_id}-")]


async def test_a_failing_request_says_why_and_the_next_is_unharmed(dit_engine: VllmDitEngine) -> None:
    with pytest.raises(EngineFailed, match="guidance_scale"):
        await paint(dit_engine, job(guidance=1e38))
    await dit_engine.check_health()
    assert await picture(dit_engine, job()) is not None


async def test_concurrent_requests_paint_what_they_paint_alone(dit_engine: VllmDitEngine) -> None:
    wanted = [
        {"seed": 1},
        {"seed": 2, "guidance": 3.0, "steps": 6},
        {"seed": 3, "guidance": 1.0},
        {"seed": 4, "width": 64},
    ]
    alone = [await picture(dit_engine, job(**each)) for each in wanted]
    together = await asyncio.gather(*(picture(dit_engine, job(**each)) for each in wanted))
    for one, other in zip(alone, together, strict=True):
        assert_near(one, other)


async def test_an_edit_and_a_negative_prompt_change_the_image(dit_engine: VllmDitEngine) -> None:
    plain = await picture(dit_engine, job(guidance=4.0))
    edited = await picture(dit_engine, job(guidance=4.0), edit_bundle(job()))
    negative = await picture(dit_engine, job(guidance=4.0, negative_prompt="blurry"))
    assert not np.array_equal(plain, edited)
    assert not np.array_equal(plain, negative)
