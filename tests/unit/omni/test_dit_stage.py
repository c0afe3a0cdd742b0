"""The DiT engine's events, from outputs that a stand-in for vLLM-Omni gives."""

from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from services.omni import dit_prompt
from services.omni.checkpoint import Checkpoint
from services.omni.dit_stage import VllmDitEngine
from services.omni.glm_pipeline_frame import Frame, unwrap_frames
from services.serving.engine import PRIOR_TOKENS, FinalImage, PartialImage, RenderJob, StepDone
from services.wire.errors import Cancelled, EngineFailed, InvalidPriors

JOB = RenderJob(request_id="a", prompt="a cat", width=64, height=64, steps=3, guidance=1.5, seed=1, previews=1)
BUNDLE = {PRIOR_TOKENS: torch.zeros(4, dtype=torch.int32)}
PICTURE = torch.zeros(64, 64, 3, dtype=torch.uint8)


class StandIn:
    """Yields what it was given; remembers how far it was read and whether it was closed early."""

    def __init__(self, outputs: list[Any]) -> None:
        self.outputs = outputs
        self.asked: list[tuple[Any, Any, str]] = []
        self.ended = self.closed = False

    async def generate(self, prompt: Any, sampling: Any, request_id: str) -> AsyncIterator[Any]:
        self.asked.append((prompt, sampling, request_id))
        try:
            for output in self.outputs:
                yield output
            self.ended = True
        except GeneratorExit:
            self.closed = True
            raise


def output(step: int, picture: torch.Tensor | None = None, total: int = 3, **more: Any) -> SimpleNamespace:
    hook = unwrap_frames(None)
    images = hook({"step": step, "total": total, "pixels": picture})["payload"]["image"]
    return SimpleNamespace(**({"images": images, "stage_durations": {}, "metrics": {}} | more))


def engine(monkeypatch: pytest.MonkeyPatch, *outputs: Any) -> tuple[VllmDitEngine, StandIn]:
    monkeypatch.setattr(dit_prompt, "sampling_params", lambda job: job.seed)
    made = VllmDitEngine(Checkpoint(Path("/nowhere"), "0" * 32), {"max_num_seqs": 2})
    stand_in = StandIn(list(outputs))
    made._engine = stand_in  # type: ignore[assignment]
    return made, stand_in


async def test_events_come_in_order_and_the_image_after_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    last = output(3, PICTURE, stage_durations={"denoise": 1.0, "vae": 0.5}, metrics={"scheduler_queue_wait_ms": 250.0})
    made, stand_in = engine(monkeypatch, output(1, PICTURE), output(2), last)
    events = []
    async for event in made.paint(JOB, BUNDLE):
        events.append(event)
        assert not isinstance(event, FinalImage) or stand_in.ended
    kinds = [type(event) for event in events]
    assert kinds == [StepDone, PartialImage, StepDone, StepDone, FinalImage]
    assert events[1].index == 0
    assert events[-1].times == {"queue": 0.25, "denoise": 1.0, "vae": 0.5}
    assert stand_in.asked[0][2] == "a" and not stand_in.closed


async def test_closing_closes_the_engines_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    made, stand_in = engine(monkeypatch, output(1), output(2), output(3, PICTURE))
    events = made.paint(JOB, BUNDLE)
    assert await anext(events) == StepDone(1, 3)
    await events.aclose()
    assert stand_in.closed


async def test_a_stream_that_ends_early_was_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    made, _ = engine(monkeypatch, output(1), SimpleNamespace(images=[]))
    with pytest.raises(Cancelled, match="before its last step"):
        [event async for event in made.paint(JOB, BUNDLE)]


async def test_another_models_answer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    made, _ = engine(monkeypatch, SimpleNamespace(images=["a picture"]))
    with pytest.raises(EngineFailed, match="another model"):
        [event async for event in made.paint(JOB, BUNDLE)]


async def test_bad_priors_never_reach_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    made, stand_in = engine(monkeypatch)
    with pytest.raises(InvalidPriors):
        [event async for event in made.paint(JOB, {PRIOR_TOKENS: torch.full((4,), 16385)})]
    assert not stand_in.asked


def test_step_execution_is_not_a_matter_of_the_stage_file() -> None:
    made = VllmDitEngine(Checkpoint(Path("/nowhere"), "0" * 32), {"step_execution": False})
    assert made._engine._engine_args["step_execution"] is True
    assert made._engine._engine_args["streaming_output"] is True


def test_a_frame_is_what_the_worker_said() -> None:
    assert output(2, PICTURE).images == [Frame(2, 3, PICTURE)]
