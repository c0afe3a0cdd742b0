"""kill -9 of each part under load. With a second replica alive, no AR or DiT death may cost a single request."""

import asyncio
import signal

import pytest

from tests.chaos.services.conftest import trial
from tests.chaos.services.fleet import Fleet, eventually

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]


@pytest.mark.parametrize("name", ["ar0", "dit0"])
async def test_a_killed_service_costs_no_request(calm_fleet: Fleet, name: str) -> None:
    async with trial(calm_fleet) as t:
        calm_fleet[name].kill()
        await t.recovered()  # on the other replica alone
        calm_fleet[name].start()
        await asyncio.to_thread(calm_fleet.up)
        await t.recovered()
    assert t.tally.failed == {}


@pytest.mark.parametrize("name", ["ar0", "dit0"])
async def test_a_killed_engine_core_costs_no_request_and_comes_back_by_itself(calm_fleet: Fleet, name: str) -> None:
    service = calm_fleet[name]
    async with trial(calm_fleet) as t:
        pid, core = service.pid, service.core()
        core.kill()
        await asyncio.to_thread(eventually, lambda: not service.ready(), 5, f"{name} is not ready at once")
        await asyncio.to_thread(eventually, service.ready, 30, f"{name} has a new engine")
        await t.recovered()
        assert service.pid == pid
        assert service.core().pid != core.pid
        assert service.metric("diptych_engine_deaths_total") >= 1
    assert t.tally.failed == {}


@pytest.mark.parametrize("name", ["ar0", "dit0"])
async def test_a_hung_engine_core_is_found_and_replaced(calm_fleet: Fleet, name: str) -> None:
    service = calm_fleet[name]
    async with trial(calm_fleet) as t:
        core = service.core()
        core.send_signal(signal.SIGSTOP)
        await asyncio.to_thread(
            eventually, lambda: "hangs" in service.info().get("reason", ""), 15, "the watchdog sees it"
        )
        await asyncio.to_thread(eventually, service.ready, 30, f"{name} has a new engine")
        await t.recovered()
        assert not core.is_running()
    assert t.tally.failed == {}


@pytest.mark.parametrize("name", ["ar0", "dit0"])
async def test_a_stopped_service_is_gone_around_and_taken_back(calm_fleet: Fleet, name: str) -> None:
    service = calm_fleet[name]
    async with trial(calm_fleet) as t:
        service.send(signal.SIGSTOP)
        try:
            await asyncio.sleep(14)  # longer than the deadline of every request that was there
            assert t.tally.rate(5) > 0, "the other replica goes on"
        finally:
            service.send(signal.SIGCONT)
        await asyncio.to_thread(calm_fleet.up)
        await t.recovered()


async def test_a_killed_gateway_leaves_nothing_behind(calm_fleet: Fleet) -> None:
    async with trial(calm_fleet) as t:
        calm_fleet["gateway"].kill()
        calm_fleet["gateway"].start()
        await asyncio.to_thread(calm_fleet.up)
        await t.recovered()
    assert {end.split()[0] for end in t.tally.failed} <= {"broken", "stage_unavailable"}


async def test_both_stages_gone_and_back(calm_fleet: Fleet) -> None:
    async with trial(calm_fleet) as t:
        for service in calm_fleet.stages:
            service.kill()
        accepted: list[asyncio.Task[str]] = []
        async with asyncio.timeout(15):
            while not calm_fleet["gateway"].metric("diptych_shed_total", reason="stage_down"):  # until then, they wait
                accepted.append(asyncio.create_task(t.load.ask()))
                await asyncio.sleep(0.2)
        for service in calm_fleet.stages:
            service.start()
        await asyncio.to_thread(calm_fleet.up)
        await t.recovered()
        await asyncio.gather(*accepted)  # images, if the stages were back in time for them
        assert {"server_is_overloaded"} <= set(t.tally.failed) <= {"server_is_overloaded", "timeout"}


async def test_a_rolling_restart_of_everything_costs_no_request_but_the_gateways_own(calm_fleet: Fleet) -> None:
    async with trial(calm_fleet) as t:
        for service in calm_fleet.stages:
            assert await asyncio.to_thread(service.terminate) == 0
            service.start()
            await asyncio.to_thread(calm_fleet.up)
        assert t.tally.failed == {}
        gateway = calm_fleet["gateway"]
        assert await asyncio.to_thread(gateway.terminate) == 0
        gateway.start()
        await asyncio.to_thread(calm_fleet.up)
        await t.recovered()
    assert {end.split()[0] for end in t.tally.failed} <= {"broken", "server_is_overloaded", "stage_unavailable"}


async def test_a_second_sigterm_ends_a_service_at_once(calm_fleet: Fleet) -> None:
    service = calm_fleet["dit0"]
    core = service.core()
    async with trial(calm_fleet, steps=100) as t:
        core.send_signal(signal.SIGSTOP)  # a drain that cannot end
        await asyncio.sleep(0.5)
        service.send(signal.SIGTERM)
        await asyncio.to_thread(eventually, lambda: service.info().get("draining"), 5, "it drains")
        service.send(signal.SIGTERM)
        assert service.process is not None
        assert await asyncio.to_thread(service.process.wait, 8) != 0
        assert not core.is_running()
    assert t.tally.failed == {}
