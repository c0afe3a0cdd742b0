"""Tickets that are stale, altered, used twice, or made up; and stages of unequal tensor parallel size."""

import asyncio

import msgspec
import pytest
import torch

from services.handoff.consumer import Consumer
from services.handoff.producer import Producer
from services.handoff.settings import HandoffSettings
from services.handoff.ticket import Ticket, seal, unseal
from services.wire.errors import HandoffError, TicketInvalid
from tests.chaos.handoff.conftest import PRODUCER, Peers, nothing_leaked, until
from tests.chaos.handoff.processes import FINGERPRINT, KEY, intact

pytestmark = pytest.mark.chaos


async def test_a_freed_slot_is_caught_by_its_generation(peers: Peers, consumer: Consumer) -> None:
    producer = peers.producer()
    stale, first = producer.ask("publish", 1, 32768, 30.0)
    assert intact(await consumer.fetch(stale, 30), 1)
    assert producer.ask("release", first)
    await until(lambda: producer.ask("stats")["slots_resting"] == 0)  # the READ's last notice may still be on its way
    fresh, second = producer.ask("publish", 2, 32768, 30.0)
    assert unseal(stale, KEY, FINGERPRINT).regions == unseal(fresh, KEY, FINGERPRINT).regions
    with pytest.raises(TicketInvalid, match="generation"):
        await consumer.fetch(stale, 30)
    assert intact(await consumer.fetch(fresh, 30), 2)
    assert producer.ask("release", second)
    await nothing_leaked(producer, consumer)


async def test_a_replayed_ticket_is_refused(peers: Peers, consumer: Consumer) -> None:
    producer = peers.producer()
    raw, handoff_id = producer.ask("publish", 1, 32768, 30.0)
    assert intact(await consumer.fetch(raw, 30), 1)
    assert intact(await consumer.fetch(raw, 30), 1)
    assert producer.ask("release", handoff_id)
    with pytest.raises(TicketInvalid, match="released"):
        await consumer.fetch(raw, 30)
    await nothing_leaked(producer, consumer)


async def test_one_changed_byte_is_refused(peers: Peers, consumer: Consumer) -> None:
    producer = peers.producer()
    raw, handoff_id = producer.ask("publish", 1, 32768, 30.0)
    for index in range(len(raw)):
        altered = raw[:index] + bytes([raw[index] ^ 1]) + raw[index + 1 :]
        with pytest.raises(HandoffError) as caught:
            await consumer.fetch(altered, 30)
        assert caught.value.code in ("ticket_invalid", "incompatible_peer")
    assert consumer.stats()["peers_added"] == 0
    assert producer.ask("release", handoff_id)
    await nothing_leaked(producer, consumer)


async def test_garbage_metadata_does_no_harm_to_others(peers: Peers, consumer: Consumer) -> None:
    """Whoever holds the key can still cut off the producer whose half metadata he sends (NIXL keeps the half that it
    took), but nobody else."""
    victim, producer = peers.producer(), peers.producer()
    raw, _ = victim.ask("publish", 1, 32768, 30.0)
    ticket = unseal(raw, KEY, FINGERPRINT)
    name = ticket.instance.encode()
    generator = torch.Generator().manual_seed(0)
    noise = bytes(torch.randint(0, 256, (400,), generator=generator, dtype=torch.uint8).tolist())
    for agent in (name, noise, noise + name, ticket.agent[: len(ticket.agent) // 2] + name, ticket.agent[:-9]):
        forged = seal(msgspec.structs.replace(ticket, agent=agent), KEY)
        with pytest.raises(HandoffError) as caught:
            await consumer.fetch(forged, 5)
        assert caught.value.code in ("ticket_invalid", "peer_gone")
    assert consumer.stats()["peers"] == 0
    await nothing_leaked(producer, consumer)


async def test_memory_that_the_producer_never_registered_is_refused(peers: Peers, consumer: Consumer) -> None:
    producer = peers.producer()
    raw, handoff_id = producer.ask("publish", 1, 32768, 30.0)
    ticket = unseal(raw, KEY, FINGERPRINT)
    elsewhere = msgspec.structs.replace(ticket.regions[0], address=4096)
    with pytest.raises(HandoffError) as caught:
        await consumer.fetch(seal(msgspec.structs.replace(ticket, regions=(elsewhere,)), KEY), 10)
    assert caught.value.code in ("ticket_invalid", "peer_gone")
    assert intact(await consumer.fetch(raw, 30), 1)
    assert producer.ask("release", handoff_id)
    await nothing_leaked(producer, consumer)


async def test_two_consumers_on_one_ticket(peers: Peers, consumer: Consumer) -> None:
    producer, other = peers.producer(), peers.consumer()
    raw, handoff_id = producer.ask("publish", 1, 2**25, 30.0)
    other.send("fetch", [(raw, 1)], 30)
    bundle = await consumer.fetch(raw, 30)
    assert intact(bundle, 1)
    assert await asyncio.to_thread(other.receive) == ["intact"]
    del bundle
    assert producer.ask("release", handoff_id)
    await nothing_leaked(producer, consumer)


@pytest.mark.parametrize(("ar_tp", "dit_tp"), [(1, 2), (2, 1), (4, 2)])
async def test_unequal_tensor_parallel_sizes(ar_tp: int, dit_tp: int) -> None:
    """Each AR rank publishes its heads and the head rank the tokens; each DiT rank takes its own heads from the
    ranks that hold them. The hand-off knows nothing of ranks: any bundle, any number of readers."""
    settings = HandoffSettings(key=KEY.decode(), arena_bytes=2**22, landing_bytes=2**22, **PRODUCER)
    keys, tokens = torch.randn(8, 16, 4), torch.arange(1024)
    ranks = [Producer(settings, FINGERPRINT) for _ in range(ar_tp)]
    readers = [Consumer(settings, FINGERPRINT) for _ in range(dit_tp)]
    tickets: list[Ticket] = [
        producer.publish({"keys": shard, **({"ids": tokens} if index == 0 else {})}, 30.0)
        for index, (producer, shard) in enumerate(zip(ranks, keys.chunk(ar_tp), strict=True))
    ]
    for reader, mine in zip(readers, keys.chunk(dit_tp), strict=True):
        bundles = [await reader.fetch(seal(ticket, KEY), 30) for ticket in tickets]
        whole = torch.cat([bundle["keys"] for bundle in bundles])
        assert torch.equal(whole.chunk(dit_tp)[readers.index(reader)], mine)
        assert torch.equal(bundles[0]["ids"], tokens)
        assert reader.stats()["peers"] == ar_tp
    for producer, ticket in zip(ranks, tickets, strict=True):
        assert producer.release(ticket.handoff_id)
    again = ranks[-1].publish({"ids": tokens}, 30.0)
    assert torch.equal((await readers[-1].fetch(seal(again, KEY), 30))["ids"], tokens)
    assert ranks[-1].release(again.handoff_id)
    for producer in ranks:
        await until(lambda producer=producer: producer.stats()["slots_live"] == 0 == producer.stats()["slots_resting"])
    for end in (*readers, *ranks):
        await asyncio.to_thread(end.close)
