"""vLLM-Omni's exceptions become ours at one place. The engine is scripted; its exception classes are the real ones."""

from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

import pytest
from vllm.v1.engine.exceptions import EngineDeadError
from vllm_omni.entrypoints.omni_base import OmniEngineDeadError
from vllm_omni.errors import GuardrailViolationError

from services.omni.engine import SingleStageEngine
from services.wire.errors import Cancelled, DiptychError, EngineDied, EngineFailed, InvalidRequest


class Omni:
    """An AsyncOmni that raises `error` after one output, alive or not."""

    def __init__(self, error: Exception | None, *, alive: bool = True) -> None:
        self.error = error
        self.engine = SimpleNamespace(is_alive=lambda: alive)
        self.closed = False

    async def generate(self, *args: Any, **kwargs: Any) -> AsyncGenerator[str, None]:
        try:
            yield "output"
            if self.error is not None:
                raise self.error
        finally:
            self.closed = True

    async def abort(self, request_id: str) -> None: ...


def engine_over(omni: Omni) -> SingleStageEngine:
    engine = SingleStageEngine(0, "nowhere", {})
    engine._omni = omni
    return engine


@pytest.mark.parametrize(
    ("error", "alive", "ours"),
    [
        (OmniEngineDeadError("gone"), True, EngineDied),
        (EngineDeadError("gone"), True, EngineDied),
        (RuntimeError("Executor shut down"), False, EngineDied),
        (RuntimeError("a bad tensor"), True, EngineFailed),
        (ValueError("a bad value"), True, EngineFailed),
        (GuardrailViolationError("not this"), True, InvalidRequest),
    ],
)
async def test_each_of_theirs_has_one_of_ours(error: Exception, alive: bool, ours: type[DiptychError]) -> None:
    engine = engine_over(Omni(error, alive=alive))
    with pytest.raises(ours) as caught:
        async for _ in engine.generate("prompt", None, "a"):
            pass
    assert type(caught.value) is ours
    assert not engine._running


async def test_closing_the_iterator_closes_theirs() -> None:
    omni = Omni(None)
    outputs = engine_over(omni).generate("prompt", None, "a")
    assert await anext(outputs) == "output"
    await outputs.aclose()
    assert omni.closed


async def test_an_aborted_request_ends_as_cancelled_and_its_name_is_free() -> None:
    engine = engine_over(Omni(None))
    outputs = engine.generate("prompt", None, "a")
    await anext(outputs)
    with pytest.raises(EngineFailed, match="runs already"):
        await anext(engine.generate("prompt", None, "a"))
    await engine.abort("a")
    with pytest.raises(Cancelled):
        await anext(outputs)
    assert [each async for each in engine.generate("prompt", None, "a")] == ["output"]


async def test_health_is_what_vllm_omni_says() -> None:
    await engine_over(Omni(None)).check_health()
    with pytest.raises(EngineDied):
        await engine_over(Omni(None, alive=False)).check_health()
