"""kill -9 and SIGSTOP of real engines' processes, under load: one AR, and one DiT of two ranks, on the tiny checkpoint.

With nobody else to go to, accepted requests wait for the new engine: they end in the image that they would have been.
"""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import psutil
import pytest

from services.omni.processes import SHARED
from services.omni.tiny_model import write_tiny_model
from tests.chaos.services.fleet import Fleet, Service, eventually
from tests.chaos.services.load import Load
from tests.stack import CHECKPOINT

pytestmark = [pytest.mark.chaos, pytest.mark.engine, pytest.mark.timeout(600)]

DEADLINE = 200.0  # seconds: an engine's new start, on a crowded machine
SETTINGS = {
    "DIPTYCH_ENGINE": "vllm-omni",
    "DIT_TP": "2",
    "DIPTYCH_DEADLINE": f"{DEADLINE:g}",
    "DIPTYCH_LEASE": f"{DEADLINE:g}",
    "DIPTYCH_STEP_TIMEOUT": "20",
    "DIPTYCH_POLL_TIMEOUT": "10",
    "DIPTYCH_HANDOFF_TRANSFER_DEADLINE": "20",
    "DIPTYCH_OUTAGE_GRACE": f"{DEADLINE:g}",
    "DIPTYCH_REPLICA_WAIT": f"{DEADLINE:g}",
}


class SamePictures(Load):
    """Asks for three pictures again and again; the first answer to each is the right one."""

    def __init__(self, url: str) -> None:
        super().__init__(url, workers=2)
        self.known: dict[str, object] = {}

    def body(self, number: int) -> dict[str, Any]:
        seed = number % 3
        return {"prompt": f"fox {seed}", "size": "128x128", "num_inference_steps": 3, "seed": seed}

    def right(self, body: dict[str, Any], datum: dict[str, object]) -> bool:
        return self.known.setdefault(body["prompt"], datum["b64_json"]) == datum["b64_json"]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    write_tiny_model(CHECKPOINT)
    fleet = Fleet(tmp_path_factory.mktemp("real"), SETTINGS | {"MODEL": str(CHECKPOINT)}, ars=1, dits=1)
    try:
        fleet.up(300)
        yield fleet
    finally:
        fleet.down()


def engine_processes(service: Service) -> list[psutil.Process]:
    """What runs below a service, but for what Python itself keeps there."""
    below = psutil.Process(service.pid).children(recursive=True)
    return [process for process in below if not any(name in " ".join(process.cmdline()) for name in SHARED)]


@asynccontextmanager
async def under_load(fleet: Fleet) -> AsyncIterator[Load]:
    """Three pictures known and flowing; then the body; then all is as it was before, and every request ended right."""
    descriptors = {service.name: service.descriptors() for service in fleet.services.values()}
    load = SamePictures(fleet["gateway"].url)
    async with load.running() as tally:
        began = time.monotonic()
        async with asyncio.timeout(120):
            while tally.ends["ok"] < 8:
                await asyncio.sleep(0.2)
        calm = 8 / (time.monotonic() - began)
        yield load
        await load.until_rate(calm / 2, 60)
    print(f"\n    {dict(tally.ends)}, slowest {tally.slowest:.1f} s, calm {calm:.2f} images/s")
    tally.check(DEADLINE)
    assert tally.failed == {}, tally.said
    await asyncio.to_thread(eventually, lambda: fleet.jobs() == 0, 20, "all jobs have left")
    await asyncio.to_thread(eventually, lambda: fleet.slots() == 0, 30, "all slots are free")
    for service in fleet.services.values():
        back = lambda s=service: s.descriptors() <= descriptors[s.name] + 12  # noqa: E731
        await asyncio.to_thread(eventually, back, 40, f"{service.name} gave its descriptors back")


async def replaced(service: Service, lost: list[psutil.Process], within: float) -> None:
    """Not ready; then, in the same process, a new engine, and nothing left of the old one."""
    pid = service.pid
    await asyncio.to_thread(eventually, lambda: not service.ready(), within, f"{service.name} sees it")
    await asyncio.to_thread(eventually, service.ready, 180, f"{service.name} has a new engine")
    assert service.pid == pid
    assert service.metric("diptych_engine_deaths_total") >= 1
    assert not [process for process in lost if process.is_running()]


@pytest.mark.parametrize(("name", "count"), [("ar0", 1), ("dit0", 2)])
async def test_a_killed_engine_process_is_replaced_and_costs_no_request(real: Fleet, name: str, count: int) -> None:
    before = engine_processes(real[name])
    assert len(before) >= count, before
    async with under_load(real):
        before[-1].kill()  # the AR's core; one rank of the DiT
        await replaced(real[name], before, 20)


async def test_a_hung_engine_process_is_found_by_the_watchdog(real: Fleet) -> None:
    before = engine_processes(real["ar0"])
    async with under_load(real):
        before[-1].send_signal(signal.SIGSTOP)
        await replaced(real["ar0"], before, 60)  # DIPTYCH_STEP_TIMEOUT, and the next look
