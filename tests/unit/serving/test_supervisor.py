"""An engine that dies, hangs, or never starts; and one that is asked to stop meanwhile."""

import asyncio
from collections.abc import Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from services.serving import supervisor as module
from services.serving.supervisor import EngineSupervisor
from services.wire.errors import ConfigError, EngineDied, EngineFailed, StageUnavailable


class Engine:
    """Dies when told to, hangs when told to."""

    def __init__(self, refuses: Exception | None = None) -> None:
        self.refuses = refuses
        self.dead = False
        self.still = 0.0
        self.may_start = asyncio.Event()
        self.may_start.set()
        self.stopped = False

    async def start(self) -> None:
        await self.may_start.wait()
        if self.refuses is not None:
            raise self.refuses

    async def stop(self) -> None:
        self.stopped = True

    async def abort(self, request_id: str) -> None: ...

    async def check_health(self) -> None:
        if self.dead:
            raise EngineDied("its process is gone")

    def stalled(self) -> float:
        return self.still


@pytest.fixture(autouse=True)
def short_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BACKOFF", 0.01)


@asynccontextmanager
async def supervised(build: Callable[[], Engine], **options: Any):
    chosen = {"start_timeout": 5, "health_interval": 0.01, "max_restarts": 2, "step_timeout": 3} | options
    supervisor = EngineSupervisor(build, **chosen)
    task = asyncio.create_task(supervisor.run())
    try:
        yield supervisor, task
    finally:
        supervisor.stop()
        await asyncio.gather(task, return_exceptions=True)


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(5):
        while not true():
            await asyncio.sleep(0.005)


async def test_a_dead_engine_is_replaced_and_its_jobs_are_told() -> None:
    engines: list[Engine] = []
    lost: list[Exception] = []

    def build() -> Engine:
        engines.append(Engine())
        return engines[-1]

    async with supervised(build) as (supervisor, _):
        supervisor.on_lost = lost.append
        await until(lambda: supervisor.ready)
        engines[0].dead = True
        await until(lambda: len(engines) == 2 and supervisor.ready)
        assert engines[0].stopped
        assert isinstance(lost[0], EngineDied)
        assert supervisor.engine is engines[1]
    assert engines[1].stopped


async def test_a_hung_engine_is_replaced() -> None:
    engines: list[Engine] = []

    def build() -> Engine:
        engines.append(Engine())
        return engines[-1]

    async with supervised(build) as (supervisor, _):
        await until(lambda: supervisor.ready)
        engines[0].still = 2.9
        await asyncio.sleep(0.05)
        assert supervisor.ready
        engines[0].still = 3.1
        await until(lambda: len(engines) == 2 and supervisor.ready)


async def test_it_gives_up_after_so_many_failures_with_the_last_error() -> None:
    built: list[Engine] = []

    def build() -> Engine:
        built.append(Engine(EngineDied("no device")))
        return built[-1]

    async with supervised(build) as (supervisor, task):
        with pytest.raises(EngineDied, match="no device"):
            await task
        assert len(built) == 3
        assert supervisor.state == "failed"
        with pytest.raises(StageUnavailable, match="gave up"):
            _ = supervisor.engine


async def test_a_wrong_setting_is_not_tried_again() -> None:
    built: list[Engine] = []

    def build() -> Engine:
        built.append(Engine(ConfigError("no such model")))
        return built[-1]

    async with supervised(build) as (_, task):
        with pytest.raises(ConfigError):
            await task
    assert len(built) == 1


async def test_stop_does_not_wait_for_a_start() -> None:
    engine = Engine()
    engine.may_start.clear()
    async with supervised(lambda: engine) as (supervisor, task):
        await asyncio.sleep(0)
        supervisor.stop()
        async with asyncio.timeout(2):
            await task
    assert engine.stopped
    assert not supervisor.ready


async def test_a_start_that_takes_too_long_is_a_death() -> None:
    engine = Engine()
    engine.may_start.clear()
    async with supervised(lambda: engine, start_timeout=0.02, max_restarts=0) as (_, task):
        with pytest.raises(EngineDied, match="not ready within"):
            await task


async def test_no_work_before_the_warm_up_is_done() -> None:
    warmed = asyncio.Event()

    async def warm_up(_engine: Engine) -> None:
        await warmed.wait()

    async with supervised(Engine) as (supervisor, _):
        supervisor.warm_up = warm_up
        await until(lambda: supervisor.reason == "the engine is warming up")
        assert not supervisor.ready
        warmed.set()
        await until(lambda: supervisor.ready)


async def test_an_engine_that_cannot_warm_up_is_not_used() -> None:
    async def warm_up(_engine: Engine) -> None:
        raise EngineFailed("all images are black")

    supervisor = EngineSupervisor(Engine, start_timeout=5, health_interval=0.01, max_restarts=1)
    supervisor.warm_up = warm_up
    with pytest.raises(EngineDied, match="all images are black"):
        await supervisor.run()


async def test_an_engine_that_worked_and_died_is_no_crash_loop() -> None:
    engines: list[Engine] = []

    def build() -> Engine:
        engines.append(Engine())
        return engines[-1]

    async with supervised(build, max_restarts=1) as (supervisor, task):
        for life in range(4):
            await until(lambda life=life: len(engines) == life + 1 and supervisor.ready)
            supervisor.worked = True
            engines[-1].dead = True
        await until(lambda: len(engines) == 5 and supervisor.ready)
        assert not task.done()
