"""One fleet for the whole suite, mended between tests; and what must hold after each of them."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from tests.chaos.services.fleet import Fleet, eventually
from tests.chaos.services.load import Load, Tally

DEADLINE = 12.0  # seconds; DIPTYCH_DEADLINE of the fleet
SPARE_DESCRIPTORS = 12  # connections that both ends keep open for a while, to more peers than before


@pytest.fixture(scope="session")
def shared_fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path_factory.mktemp("fleet"), {})
    try:
        fleet.up()
        yield fleet
    finally:
        fleet.down()


class Trial:
    """A fleet under load."""

    def __init__(self, fleet: Fleet, load: Load, tally: Tally, calm: float) -> None:
        self.fleet = fleet
        self.load = load
        self.tally = tally
        self.calm = calm  # right images a second before anything broke

    async def recovered(self, within: float = 60.0) -> None:
        """Half of the calm throughput is back: the other half is this machine's noise."""
        await self.load.until_rate(self.calm / 2, within)


@asynccontextmanager
async def trial(fleet: Fleet, *, workers: int = 6, steps: int = 4) -> AsyncIterator[Trial]:
    """Load on a whole fleet, some calm, the body, and then the checks that hold for every fault."""
    await asyncio.to_thread(fleet.up)
    before = {service.name: (service.pid, service.descriptors()) for service in fleet.services.values()}
    load = Load(fleet["gateway"].url, workers=workers, steps=steps)
    async with load.running() as tally:
        began = time.monotonic()
        async with asyncio.timeout(60):
            while tally.ends["ok"] < 15:
                await asyncio.sleep(0.1)
        calm = tally.ends["ok"] / (time.monotonic() - began)
        yield Trial(fleet, load, tally, calm)
    print(f"\n    {dict(tally.ends)}, slowest {tally.slowest:.1f} s, calm {calm:.1f} images/s")
    tally.check(DEADLINE)
    await asyncio.to_thread(fleet.up)
    await asyncio.to_thread(eventually, lambda: fleet.jobs() == 0, 10, "all jobs have left")
    await asyncio.to_thread(eventually, lambda: fleet.slots() == 0, 30, "all slots are free")
    for service in fleet.services.values():
        pid, descriptors = before.get(service.name, (0, 0))
        if pid == service.pid:
            await asyncio.to_thread(
                eventually,
                lambda s=service, n=descriptors: s.descriptors() <= n + SPARE_DESCRIPTORS,
                40,
                f"{service.name} gave its {service.descriptors()} descriptors back, from {descriptors}",
            )


@pytest.fixture
async def calm_fleet(shared_fleet: Fleet) -> Fleet:
    await asyncio.to_thread(shared_fleet.up)
    return shared_fleet
