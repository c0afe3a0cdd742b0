"""Which replica gets a job, and when a replica gets none."""

import asyncio
from typing import Any

import msgspec
import pytest

from services.gateway.breaker import Breaker
from services.gateway.discovery import Discovery
from services.wire.errors import ConfigError, EngineDied, IncompatiblePeer, StageUnavailable


def deadline(seconds: float = 10) -> float:
    return asyncio.get_running_loop().time() + seconds


async def test_the_ar_with_most_free_places_gets_the_job(world: Any) -> None:
    small, large, dit = await world.ar(capacity=2), await world.ar(capacity=6), await world.dit()
    painter = await world.pipeline([small, large], [dit])
    async with painter.ar.replica(1.0, deadline()) as first, painter.ar.replica(1.0, deadline()) as second:
        assert (first.url, second.url) == (large.url, large.url)


async def test_jobs_of_other_gateways_count_too(world: Any) -> None:
    busy, idle, dit = await world.ar(capacity=4), await world.ar(capacity=2), await world.dit()
    busy.info = msgspec.structs.replace(busy.info, running=3)
    painter = await world.pipeline([busy, idle], [dit])
    async with painter.ar.replica(1.0, deadline()) as chosen:
        assert chosen.url == idle.url


async def test_an_idle_dit_beats_one_that_paints(world: Any) -> None:
    ar, one, two = await world.ar(), await world.dit(), await world.dit()
    painter = await world.pipeline([ar], [one, two], dit_depth=1)
    async with painter.dit.replica(0.01, deadline()) as first, painter.dit.replica(50.0, deadline()) as second:
        assert first is not second


async def test_idle_dits_take_turns(world: Any) -> None:
    ar, one, two = await world.ar(), await world.dit(), await world.dit()
    painter = await world.pipeline([ar], [one, two])
    taken = []
    for _ in range(4):
        async with painter.dit.replica(1.0, deadline()) as replica:
            taken.append(replica.url)
    assert taken[:2] == taken[2:]
    assert set(taken) == {one.url, two.url}


async def test_a_full_stage_makes_jobs_wait_in_order(world: Any) -> None:
    ar, dit = await world.ar(capacity=1), await world.dit()
    painter = await world.pipeline([ar], [dit])
    order: list[int] = []

    async def take(number: int) -> None:
        async with painter.ar.replica(1.0, deadline()):
            order.append(number)

    async with painter.ar.replica(1.0, deadline()):
        waiting = [asyncio.create_task(take(number)) for number in range(3)]
        await asyncio.sleep(0)
        assert order == []
    await asyncio.gather(*waiting)
    assert order == [0, 1, 2]


async def test_no_replica_in_time_is_a_typed_error_that_says_why(world: Any) -> None:
    ar, dit = await world.ar(capacity=1), await world.dit()
    painter = await world.pipeline([ar], [dit])
    async with painter.ar.replica(1.0, deadline()):
        with pytest.raises(StageUnavailable, match=f"{ar.url} is ready"):
            async with painter.ar.replica(1.0, deadline(0.02)):
                pass
    assert painter.ar.replicas[ar.url].outstanding == 0


async def test_a_cancelled_wait_leaks_no_place(world: Any) -> None:
    ar, dit = await world.ar(capacity=1), await world.dit()
    painter = await world.pipeline([ar], [dit])

    async def take() -> None:
        async with painter.ar.replica(1.0, deadline()):
            pass

    async with painter.ar.replica(1.0, deadline()):
        waiting = asyncio.create_task(take())
        await asyncio.sleep(0)
    waiting.cancel()  # its place was given to it in this very step, and it has not run since
    await asyncio.gather(waiting, return_exceptions=True)
    assert painter.ar.replicas[ar.url].outstanding == 0


@pytest.mark.parametrize(
    ("change", "state"),
    [({"ready": False, "reason": "the engine is starting"}, "not-ready"), ({"draining": True}, "draining")],
)
async def test_a_replica_that_says_no_gets_nothing(world: Any, change: dict[str, Any], state: str) -> None:
    one, two, dit = await world.ar(), await world.ar(), await world.dit()
    painter = await world.pipeline([one, two], [dit])
    one.info = msgspec.structs.replace(one.info, **change)
    await world.eventually(lambda: painter.ar.replicas[one.url].state == state)
    for _ in range(3):
        async with painter.ar.replica(1.0, deadline()) as chosen:
            assert chosen.url == two.url
    one.info = msgspec.structs.replace(one.info, ready=True, draining=False, reason="")
    await world.eventually(lambda: len(painter.ar.ready) == 2)


async def test_a_service_of_the_other_stage_is_not_taken(world: Any) -> None:
    ar, dit = await world.ar(), await world.dit()
    ar.info = msgspec.structs.replace(ar.info, stage="dit", ready=False)
    painter = await world.pipeline([ar], [dit])
    await world.eventually(lambda: "is a dit service" in painter.unready())


async def test_work_goes_to_proven_replicas_only(world: Any) -> None:
    ar, good, bad = await world.ar(), await world.dit(), await world.dit()
    bad.unreachable = IncompatiblePeer("UCX 1.19 here, 1.18 there")
    painter = await world.pipeline([ar], [good], probe=True, dit_urls=f"{good.url},{bad.url}")
    await world.eventually(lambda: "no hand-off works: UCX" in painter.dit.replicas[bad.url].reason)
    assert painter.dit.replicas[bad.url].state == "unproven"
    assert (await world.image(painter, world.job())).image
    bad.unreachable = None
    await world.eventually(lambda: len(painter.dit.ready) == 2)
    assert all(name.startswith("probe-") for name in ar.deleted if "~" not in name)


async def test_a_restarted_replica_is_proven_again(world: Any) -> None:
    ar, dit = await world.ar(), await world.dit()
    painter = await world.pipeline([ar], [dit], probe=True)
    before = dit.probes
    dit.info = msgspec.structs.replace(dit.info, instance="dit-again")
    await world.eventually(lambda: dit.probes > before and painter.dit.ready)


def test_a_breaker_opens_rests_longer_each_time_and_closes_again() -> None:
    now = 0.0
    breaker = Breaker(failures=2, rest=5, now=lambda: now)
    breaker.failed(breaker.began())
    assert breaker.allows()
    breaker.failed(breaker.began())
    assert breaker.state == "open"
    now = 5.0
    assert breaker.state == "half-open"
    call = breaker.began()
    assert not breaker.allows()  # one try at a time
    breaker.failed(call)
    breaker.released(call)
    now = 14.0
    assert breaker.state == "open"  # twice the rest
    now = 15.0
    call = breaker.began()
    breaker.succeeded(call)
    breaker.released(call)
    assert breaker.state == "closed"


def test_calls_that_were_under_way_together_fail_as_one() -> None:
    now = 0.0
    breaker = Breaker(failures=2, rest=5, now=lambda: now)
    batch = [breaker.began() for _ in range(8)]
    now = 1.0
    for call in batch:
        breaker.failed(call)
    assert breaker.state == "closed"
    now = 2.0
    late = [breaker.began() for _ in range(8)]
    now = 3.0
    for call in late:
        breaker.failed(call)
    now = 8.0
    assert breaker.state == "half-open", "one rest of 5 s, not one for each call"


def test_the_end_of_an_earlier_call_does_not_end_the_one_try() -> None:
    now = 0.0
    breaker = Breaker(failures=1, rest=5, now=lambda: now)
    early = breaker.began()
    now = 1.0
    breaker.failed(breaker.began())
    now = 6.0
    breaker.began()
    breaker.released(early)
    assert not breaker.allows()
    breaker.succeeded(early)
    assert breaker.state == "half-open", "what began before the failure says nothing about what came after"


async def test_the_death_of_an_engine_under_a_batch_leaves_its_replica_in_use(world: Any) -> None:
    ar, dit = await world.ar(capacity=8), await world.dit()
    painter = await world.pipeline([ar], [dit])
    replica = painter.ar.replicas[ar.url]
    together = asyncio.Barrier(8)

    async def one() -> None:
        async with painter.ar.replica(1.0, deadline()):
            await together.wait()
            raise EngineDied("under all of them")

    assert {type(error) for error in await asyncio.gather(*(one() for _ in range(8)), return_exceptions=True)} == {
        EngineDied
    }
    await world.eventually(lambda: replica.state == "ready")


@pytest.mark.parametrize("text", ["", "ar:8101", "ftp://x:1", "dns://name", "dns://name:1/path", "http://x:99999"])
def test_wrong_urls_are_named(text: str) -> None:
    with pytest.raises(ConfigError, match="DIPTYCH_AR_URLS"):
        Discovery(text, "DIPTYCH_AR_URLS")


async def test_a_dns_name_gives_one_url_an_address() -> None:
    assert "http://127.0.0.1:9" in await Discovery("dns://localhost:9, http://[::1]:8/", "X").urls()


async def test_a_name_that_does_not_resolve_is_a_typed_error() -> None:
    with pytest.raises(StageUnavailable, match="does not resolve"):
        await Discovery("dns://no-such-host.invalid:9", "X").urls()


async def test_replicas_come_and_go_with_dns(world: Any) -> None:
    ar, dit, new = await world.ar(), await world.dit(), await world.dit()
    painter = await world.pipeline([ar], [dit])

    async def urls() -> list[str]:
        return [new.url]

    painter.dit._discovery.urls = urls
    await painter.dit._find()
    await world.eventually(lambda: [replica.url for replica in painter.dit.ready] == [new.url])
