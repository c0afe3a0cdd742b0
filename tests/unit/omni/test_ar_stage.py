"""The AR stage around its engine, which a script replaces: turns, aborts, and what is wrong with an answer."""

import asyncio
import io
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from PIL import Image

from services.omni.ar_stage import VllmArEngine
from services.omni.checkpoint import open_checkpoint
from services.serving.engine import CONDITION_IMAGE, CONDITION_TOKENS, PRIOR_TOKENS, PriorJob
from services.wire.errors import Cancelled, EngineDied, EngineFailed, InvalidPriors, InvalidRequest
from services.wire.geometry import IMAGE_END

Script = Callable[[str], AsyncGenerator[Any, None]]


def output(tokens: list[int], codes: list[int] | None = None) -> Any:
    found = {} if codes is None else {"ids": {"prior_image": [torch.tensor(codes)]}}
    return SimpleNamespace(outputs=[SimpleNamespace(token_ids=tokens)], multimodal_output=found)


class ScriptedEngine:
    """In place of SingleStageEngine: answers by `script`, notes requests."""

    def __init__(self) -> None:
        self.requests: dict[str, Any] = {}
        self.script: Script

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def generate(self, prompt: Any, sampling: Any, request_id: str) -> AsyncGenerator[Any, None]:
        self.requests[request_id] = prompt
        return self.script(request_id)


@pytest.fixture
async def stage(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    stage = VllmArEngine(open_checkpoint(str(tiny), 0), {"max_model_len": 1024})
    monkeypatch.setattr(stage, "_engine", ScriptedEngine())
    monkeypatch.setattr(stage, "_sampling_params", lambda job: None)
    await stage.start()
    yield stage
    await stage.stop()


def png() -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (64, 64), "teal").save(out, "PNG")
    return out.getvalue()


def job(request_id: str = "a", image: bytes | None = None, prompt: str = "a cat") -> PriorJob:
    return PriorJob(request_id=request_id, prompt=prompt, width=64, height=64, seed=1, image=image)


async def test_an_edit_hands_on_codes_and_pixels(stage: Any) -> None:
    async def script(request_id: str) -> AsyncGenerator[Any, None]:
        yield output([1], list(range(16)))
        yield output([2, 3], [7] * 16)  # the next edit's codes
        yield output([4, IMAGE_END])

    stage._engine.script = script
    result = await stage.write(job(image=png()))
    assert result.bundle[PRIOR_TOKENS].tolist() == [1, 2, 3, 4]
    assert result.bundle[CONDITION_TOKENS].tolist() == list(range(16))
    assert result.bundle[CONDITION_IMAGE].shape == (64, 64, 3)
    assert (result.text_tokens, result.image_tokens, result.prior_tokens) == (5, 4, 5)


async def test_no_two_edits_share_a_uuid(stage: Any) -> None:
    async def script(request_id: str) -> AsyncGenerator[Any, None]:
        yield output([1, 2, 3, 4], [0] * 16)

    stage._engine.script = script
    for request_id in ("a", "b"):
        await stage.write(job(request_id, png()))
    first, second = (request["multi_modal_uuids"]["image"][0] for request in stage._engine.requests.values())
    assert first != second


async def test_an_edit_begins_when_the_one_before_has_its_first_token(stage: Any) -> None:
    first_token, end = asyncio.Event(), asyncio.Event()

    async def script(request_id: str) -> AsyncGenerator[Any, None]:
        if request_id == "a":
            await first_token.wait()
            yield output([1], [0] * 16)
            await end.wait()
            yield output([2, 3, 4])
        else:
            yield output([1, 2, 3, 4], [1] * 16)

    stage._engine.script = script
    async with asyncio.timeout(30):
        first = asyncio.create_task(stage.write(job("a", png())))
        second = asyncio.create_task(stage.write(job("b", png())))
        while "a" not in stage._engine.requests:
            await asyncio.sleep(0.01)
        assert "b" not in stage._engine.requests
        first_token.set()
        assert (await second).bundle[CONDITION_TOKENS].tolist() == [1] * 16
        assert not first.done()
        end.set()
        assert (await first).bundle[CONDITION_TOKENS].tolist() == [0] * 16


@pytest.mark.parametrize("codes", [None, [1] * 15])
async def test_an_edit_without_its_codes_is_no_result(stage: Any, codes: list[int] | None) -> None:
    async def script(request_id: str) -> AsyncGenerator[Any, None]:
        yield output([1, 2, 3, 4], codes)

    stage._engine.script = script
    with pytest.raises(EngineFailed, match="codes for a condition image of 16"):
        await stage.write(job(image=png()))


@pytest.mark.parametrize("written", [[], [1] * 259, [1] * 261, [1] * 259 + [16384]])
async def test_wrong_priors_are_never_handed_on(stage: Any, written: list[int]) -> None:
    async def script(request_id: str) -> AsyncGenerator[Any, None]:
        yield output(written)

    stage._engine.script = script
    with pytest.raises(InvalidPriors):
        await stage.write(job())


async def test_an_abort_reaches_a_request_wherever_it_is(stage: Any) -> None:
    closed = asyncio.Event()

    async def script(request_id: str) -> AsyncGenerator[Any, None]:
        try:
            await asyncio.Event().wait()
            yield
        finally:
            closed.set()

    stage._engine.script = script
    running = asyncio.create_task(stage.write(job("running")))
    preparing = asyncio.create_task(stage.write(job("preparing")))
    await asyncio.sleep(0)
    await stage.abort("preparing")
    with pytest.raises(Cancelled, match="preparing was aborted"):
        await preparing
    async with asyncio.timeout(30):
        while "running" not in stage._engine.requests:
            await asyncio.sleep(0.01)
    with pytest.raises(EngineFailed, match="runs already"):
        await stage.write(job("running"))
    await stage.abort("running")
    with pytest.raises(Cancelled, match="running was aborted"):
        await running
    assert closed.is_set()
    assert stage._writing == {}


async def test_a_caller_that_leaves_is_no_abort(stage: Any) -> None:
    async def script(request_id: str) -> AsyncGenerator[Any, None]:
        await asyncio.Event().wait()
        yield

    stage._engine.script = script
    task = asyncio.create_task(stage.write(job()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert stage._writing == {}


@pytest.mark.parametrize(("image", "room"), [(None, 763), (png(), 1016)])
async def test_the_room_for_the_prompt_is_what_priors_and_image_leave(
    stage: Any, image: bytes | None, room: int
) -> None:
    frame = len((stage._prepare(job(image=image, prompt="")))[0].token_ids)
    with pytest.raises(InvalidRequest, match=f"the model has room for {room}") as caught:
        await stage.write(job(image=image, prompt="a" * (room - frame + 1)))
    assert caught.value.param == "prompt"
    stage._prepare(job(image=image, prompt="a" * (room - frame)))


async def test_a_stage_that_is_not_started_is_a_dead_one(tiny: Path) -> None:
    stage = VllmArEngine(open_checkpoint(str(tiny), 0), {})
    with pytest.raises(EngineDied, match="not started"):
        await stage.write(job())
    with pytest.raises(EngineDied, match="not started"):
        await stage.check_health()
    await stage.stop()
