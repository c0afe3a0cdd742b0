"""Producers that die, stop, and come back."""

import asyncio
import signal

import pytest

from services.handoff.consumer import Consumer
from services.wire.errors import PeerGone, Remedy, TransferTimeout
from tests.chaos.handoff.conftest import TCP, Peers, nothing_leaked, until
from tests.chaos.handoff.processes import intact

pytestmark = pytest.mark.chaos
BIG = 512 * 2**20


async def test_killed_before_the_read(peers: Peers, consumer: Consumer) -> None:
    doomed = peers.producer()
    raw, _ = doomed.ask("publish", 1, 32768, 30.0)
    doomed.kill()
    with pytest.raises(PeerGone) as caught:
        await consumer.fetch(raw, 10)
    assert caught.value.remedy is Remedy.NEW_PRIORS
    await nothing_leaked(peers.producer(), consumer)


async def test_killed_before_the_read_on_a_kept_connection(peers: Peers, consumer: Consumer) -> None:
    doomed = peers.producer()
    for seed in (1, 2):
        raw, _ = doomed.ask("publish", seed, 32768, 30.0)
        if seed == 1:
            assert intact(await consumer.fetch(raw, 30), 1)
    doomed.kill()
    with pytest.raises(PeerGone):
        await consumer.fetch(raw, 10)
    assert consumer.stats()["peers"] == 0
    await nothing_leaked(peers.producer(), consumer)


async def test_killed_in_mid_read(peers: Peers, consumer: Consumer) -> None:
    doomed = peers.producer()
    raw, _ = doomed.ask("publish", 1, BIG, 60.0)
    fetch = asyncio.ensure_future(consumer.fetch(raw, 30))
    await until(lambda: consumer.stats()["bytes_landed"] > 2**25)
    doomed.kill()
    with pytest.raises(PeerGone):
        await fetch
    await nothing_leaked(peers.producer(), consumer)


async def test_stopped_and_continued(peers: Peers, consumer: Consumer) -> None:
    sleeper = peers.producer()
    raw, handoff_id = sleeper.ask("publish", 1, 32768, 60.0)
    sleeper.signal(signal.SIGSTOP)
    with pytest.raises(TransferTimeout) as caught:
        await consumer.fetch(raw, 0.5)
    assert caught.value.remedy is Remedy.SAME_TICKET
    sleeper.signal(signal.SIGCONT)
    assert intact(await consumer.fetch(raw, 30), 1)
    assert sleeper.ask("release", handoff_id)
    await nothing_leaked(sleeper, consumer)


async def test_stopped_in_mid_read_keeps_the_memory_until_nixl_is_done(peers: Peers, tcp_consumer: Consumer) -> None:
    consumer, sleeper = tcp_consumer, peers.producer(environment=TCP)
    raw, handoff_id = sleeper.ask("publish", 1, BIG, 60.0)
    fetch = asyncio.ensure_future(consumer.fetch(raw, 4))
    await until(lambda: consumer.stats()["bytes_landed"] > 0)
    sleeper.signal(signal.SIGSTOP)
    with pytest.raises(TransferTimeout):
        await fetch
    await until(lambda: consumer.stats()["quarantined"] == 1)
    assert consumer.stats()["bytes_in_use"] >= BIG
    sleeper.signal(signal.SIGCONT)
    await until(lambda: consumer.stats()["in_quarantine"] == 0)
    assert sleeper.ask("release", handoff_id)
    await nothing_leaked(sleeper, consumer)


async def test_restarted_under_load(peers: Peers, consumer: Consumer) -> None:
    first, outcomes = peers.producer(), []
    old = [(first.ask("publish", seed, 131072, 60.0)[0], seed) for seed in range(16)]

    async def fetch(raw: bytes, seed: int) -> None:
        try:
            outcomes.append(intact(await consumer.fetch(raw, 30), seed))
        except PeerGone:
            outcomes.append(None)

    await fetch(*old[0])
    loads = [asyncio.ensure_future(fetch(raw, seed)) for raw, seed in old[:8]]
    await asyncio.sleep(0)
    first.kill()
    second = peers.producer()
    loads += [asyncio.ensure_future(fetch(raw, seed)) for raw, seed in old[8:]]
    new = [(second.ask("publish", seed, 131072, 60.0), seed) for seed in range(100, 116)]
    await asyncio.gather(*loads)
    assert False not in outcomes
    assert outcomes[-8:] == [None] * 8
    for (raw, handoff_id), seed in new:
        assert intact(await consumer.fetch(raw, 30), seed)
        assert second.ask("release", handoff_id)
    await nothing_leaked(second, consumer)
