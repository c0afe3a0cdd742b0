"""Consumers that die or give up, and what the producer does with their slots."""

import asyncio

import pytest

from services.handoff.consumer import Consumer
from services.handoff.producer import Producer
from services.handoff.ticket import seal
from services.wire.errors import LeaseExpired
from tests.chaos.handoff.conftest import PROBE_BYTES, TCP, Peers, nothing_leaked, until
from tests.chaos.handoff.processes import KEY, intact, payload

pytestmark = pytest.mark.chaos
BIG = 512 * 2**20


async def test_killed_in_mid_read_the_slot_comes_back_by_lease(peers: Peers, tcp_producer: Producer) -> None:
    producer, doomed = tcp_producer, peers.consumer(environment=TCP)
    doomed.ask("stats")
    ticket = await asyncio.to_thread(producer.publish, payload(1, BIG), 20.0)
    doomed.send("fetch", [(seal(ticket, KEY), 1)], 30)
    await until(lambda: producer.unread == 1 == producer.stats()["reads_begun"])
    doomed.kill()
    assert producer.stats()["reads_ended"] == 0
    assert producer.outstanding == 1
    await until(lambda: producer.stats()["expired"] == 1)
    await until(lambda: producer.stats()["bytes_in_use"] == PROBE_BYTES)
    assert producer.stats()["slots_resting"] == 0
    survivor, next_one = peers.consumer(environment=TCP), producer.publish(payload(2, 32768), 30.0)
    assert survivor.ask("fetch", [(seal(next_one, KEY), 2)], 30) == ["intact"]
    assert producer.release(next_one.handoff_id)


async def test_lease_ends_with_nobody_reading(peers: Peers, consumer: Consumer) -> None:
    producer = peers.producer()
    raw, handoff_id = producer.ask("publish", 1, 32768, 0.2)
    await until(lambda: producer.ask("stats")["expired"] == 1)
    with pytest.raises(LeaseExpired):
        await consumer.fetch(raw, 30)
    assert not producer.ask("release", handoff_id)
    await nothing_leaked(producer, consumer)


async def test_abort_in_mid_read_and_the_slot_is_used_again(peers: Peers, tcp_consumer: Consumer) -> None:
    consumer, producer = tcp_consumer, peers.producer(environment=TCP)
    raw, handoff_id = producer.ask("publish", 1, BIG, 60.0)
    fetch = asyncio.ensure_future(consumer.fetch(raw, 30))
    await until(lambda: consumer.stats()["bytes_landed"] > 0)
    fetch.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fetch
    assert producer.ask("release", handoff_id)
    raw, handoff_id = producer.ask("publish", 2, BIG, 60.0)
    bundle = await consumer.fetch(raw, 30)
    assert intact(bundle, 2)
    del bundle
    assert producer.ask("release", handoff_id)
    await nothing_leaked(producer, consumer)


async def test_64_at_once_while_a_tenth_of_the_consumers_dies(peers: Peers, producer: Producer) -> None:
    consumers = [peers.consumer() for _ in range(10)]
    for child in consumers:
        child.ask("stats")
    tickets = [(producer.publish(payload(seed, 131072), 60.0), seed) for seed in range(64)]
    shares = [tickets[index::10] for index in range(10)]
    for child, share in zip(consumers, shares, strict=True):
        child.send("fetch", [(seal(ticket, KEY), seed) for ticket, seed in share], 60)
    consumers[0].kill()
    for child, share in zip(consumers[1:], shares[1:], strict=True):
        assert await asyncio.to_thread(child.receive) == ["intact"] * len(share)
    again = consumers[1].ask("fetch", [(seal(ticket, KEY), seed) for ticket, seed in shares[0]], 60)
    assert again == ["intact"] * len(shares[0])
    for ticket, _ in tickets:
        assert producer.release(ticket.handoff_id)
    await until(lambda: producer.stats()["slots_resting"] == 0 == producer.outstanding)
    assert producer.stats()["bytes_in_use"] == PROBE_BYTES
