"""Many deaths at once, and a network that is cut: the retry budget, the probes and the pools together."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.chaos.services import networks
from tests.chaos.services.conftest import trial
from tests.chaos.services.fleet import Fleet, eventually

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(400)]

REQUESTS = 1000
NO_NAMESPACES = networks.why_not()


@asynccontextmanager
async def kept_alive(fleet: Fleet) -> AsyncIterator[None]:
    """Start every service again that ends, as a container runtime does."""

    async def keep() -> None:
        while True:
            for service in fleet.stages:
                service.start()
            await asyncio.sleep(0.1)

    keeper = asyncio.create_task(keep())
    try:
        yield
    finally:
        keeper.cancel()
        await asyncio.gather(keeper, return_exceptions=True)


async def test_a_thousand_requests_while_one_in_twenty_kills_an_engine(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, {"DIPTYCH_SIM_DIE_RATE": "0.025", "DIPTYCH_SIM_START_SECONDS": "0.1"})
    try:
        async with kept_alive(fleet), trial(fleet, workers=8) as t:
            t.load.limit = REQUESTS
            await t.load.until_done()
        assert t.tally.ends.total() >= REQUESTS
        deaths = sum(service.metric("diptych_engine_deaths_total") for service in fleet.stages)
        retries = fleet["gateway"].metric("diptych_retries_total")
        print(
            f"    {t.tally.ends['ok']} of {t.tally.ends.total()} right, {deaths:.0f} deaths seen, {retries:.0f} retries"
        )
        assert deaths > 0
        assert (
            retries <= 32 + 0.2 * 2 * t.tally.ends.total() * 1.5
        )  # the burst and the share of both stages' first calls
        assert t.tally.ends["ok"] > 0.5 * REQUESTS
    finally:
        fleet.down()


@pytest.mark.skipif(bool(NO_NAMESPACES), reason=NO_NAMESPACES)
async def test_a_cut_between_ar_and_dit_is_gone_around_and_healed(tmp_path: Path) -> None:
    with networks.networks() as nets:
        fleet = Fleet(tmp_path, {"DIPTYCH_PROBE_INTERVAL": "2"}, networks=nets)
        try:
            async with trial(fleet, workers=4) as t:
                gateway = fleet["gateway"]
                nets.cut("ar0")
                lost = lambda: gateway.metric("diptych_replica_state", state="unproven", stage="ar") == 1  # noqa: E731
                await asyncio.to_thread(eventually, lost, 60, "ar0 is up, but not used")
                await t.recovered()  # over ar1 alone
                assert fleet["ar0"].ready()
                nets.mend("ar0")
                await asyncio.to_thread(fleet.up)
                await t.recovered()
            assert not fleet.slots()
        finally:
            fleet.down()
