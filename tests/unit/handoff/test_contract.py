"""What the hand-off asks of its transport, once against real NIXL and once against the double."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from services.handoff.consumer import Consumer
from services.handoff.layout import ITEM_BYTES
from services.handoff.memory import Fabric
from services.handoff.nixl_agent import NixlAgent
from services.handoff.producer import Producer
from services.handoff.settings import HandoffSettings
from services.handoff.ticket import seal
from services.handoff.transport import Span, Transport
from services.wire.errors import HandoffError, PeerGone, TicketInvalid
from tests.unit.handoff.conftest import BASE, FINGERPRINT

Make = Callable[[str], Transport]


@pytest.fixture(params=["nixl", "memory"])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    """Makes agents of one kind: `make("ar")` is a producer's, `make("dit")` a consumer's."""
    fabric, made = Fabric(), []

    def one(role: str) -> Transport:
        if request.param == "memory":
            made.append(fabric.agent(role))
        else:
            made.append(NixlAgent(HandoffSettings(), role=role, progress=role == "ar"))
        return made[-1]

    yield one
    for agent in made:
        agent.close()


class End:
    """An agent with one registered region."""

    def __init__(self, agent: Transport, length: int = 4096) -> None:
        self.agent, self.bytes = agent, np.zeros(length, np.uint8)
        self.span = Span(self.bytes.ctypes.data, length)
        self.registration = agent.register(self.span)

    async def read(self, peer: str, remote: Span, length: int | None = None) -> None:
        local = self.span if length is None else self.span._replace(length=length)
        handle = self.agent.read(peer, remote, local)
        for _ in range(20000):
            if self.agent.finished(handle):
                self.agent.release(handle)
                return
            await asyncio.sleep(0.0005)
        pytest.fail("the READ does not end")


async def test_a_read_brings_the_bytes(make: Make) -> None:
    source, target = End(make("ar")), End(make("dit"))
    source.bytes[:] = np.arange(4096) % 251
    target.agent.add_peer(source.agent.name, source.agent.metadata())
    await target.read(source.agent.name, source.span)
    assert (target.bytes == source.bytes).all()


async def test_a_read_of_a_part(make: Make) -> None:
    source, target = End(make("ar")), End(make("dit"))
    source.bytes[:] = np.arange(4096) % 251
    target.agent.add_peer(source.agent.name, source.agent.metadata())
    await target.read(source.agent.name, source.span._replace(address=source.span.address + 64, length=128), 128)
    assert (target.bytes[:128] == source.bytes[64:192]).all()
    assert not target.bytes[128:].any()


async def test_names_are_unique(make: Make) -> None:
    assert make("ar").name != make("ar").name


async def test_an_unknown_peer_is_gone(make: Make) -> None:
    target = End(make("dit"))
    with pytest.raises(PeerGone):
        target.agent.read("nobody", target.span, target.span)
    with pytest.raises(PeerGone):
        target.agent.notify("nobody", b"x")
    target.agent.drop_peer("nobody")


async def test_unregistered_memory_cannot_be_read(make: Make) -> None:
    source, target = End(make("ar")), End(make("dit"))
    target.agent.add_peer(source.agent.name, source.agent.metadata())
    with pytest.raises(HandoffError):
        await target.read(source.agent.name, Span(4096, 4096))
    beyond = source.span._replace(address=source.span.address + 64)
    with pytest.raises(HandoffError):
        await target.read(source.agent.name, beyond)


@pytest.mark.parametrize("metadata", [b"", b"garbage", bytes(500)])
async def test_garbage_metadata_is_refused(make: Make, metadata: bytes) -> None:
    with pytest.raises(TicketInvalid):
        make("dit").add_peer("ar-0", metadata)


async def test_metadata_of_another_agent_is_refused(make: Make) -> None:
    source, target = make("ar"), make("dit")
    with pytest.raises(TicketInvalid):
        target.add_peer("ar-0", source.metadata())


async def test_memory_registered_later_is_learnt_on_top(make: Make) -> None:
    source, target = End(make("ar")), End(make("dit"))
    target.agent.add_peer(source.agent.name, source.agent.metadata())
    more = np.full(4096, 7, np.uint8)
    span = Span(more.ctypes.data, 4096)
    registration = source.agent.register(span)
    target.agent.add_peer(source.agent.name, source.agent.metadata())
    await target.read(source.agent.name, span)
    assert (target.bytes == 7).all()
    source.agent.deregister(registration)


async def test_deregistered_memory_reads_stale_and_without_error(make: Make) -> None:
    """The unkindness that header and generation are for."""
    source, target = End(make("ar")), End(make("dit"))
    source.bytes[:] = 5
    target.agent.add_peer(source.agent.name, source.agent.metadata())
    source.agent.deregister(source.registration)
    await target.read(source.agent.name, source.span)
    assert (target.bytes == 5).all()


async def test_a_dropped_peer_can_be_added_again(make: Make) -> None:
    source, target = End(make("ar")), End(make("dit"))
    source.bytes[:] = 9
    for _ in range(3):
        target.agent.add_peer(source.agent.name, source.agent.metadata())
        await target.read(source.agent.name, source.span)
        target.agent.drop_peer(source.agent.name)
    assert (target.bytes == 9).all()
    with pytest.raises(PeerGone):
        target.agent.read(source.agent.name, source.span, target.span)


async def test_notices_arrive_whole_and_once(make: Make) -> None:
    source, target = End(make("ar")), End(make("dit"))
    target.agent.add_peer(source.agent.name, source.agent.metadata())
    sent = [bytes(range(256)), b"\0" * 37, b"plain"]
    for message in sent:
        target.agent.notify(source.agent.name, message)
    found: list[bytes] = []
    for _ in range(4000):
        found += source.agent.notices()
        if len(found) == len(sent):
            break
        target.agent.notices()  # a consumer has no progress thread: any call moves its messages
        await asyncio.sleep(0.001)
    assert sorted(found) == sorted(sent)
    assert source.agent.notices() == []


async def test_lanes_are_named(make: Make) -> None:
    source, target = End(make("ar")), End(make("dit"))
    assert target.agent.lanes(source.agent.name) == ""
    target.agent.add_peer(source.agent.name, source.agent.metadata())
    assert target.agent.lanes(source.agent.name)
    assert "self" in target.agent.all_lanes()


@pytest.fixture
async def ends(make: Make) -> AsyncIterator[tuple[Producer, Consumer]]:
    settings = HandoffSettings(**BASE)
    producer = Producer(settings, FINGERPRINT, make("ar"))
    consumer = Consumer(settings, FINGERPRINT, make("dit"))
    yield producer, consumer
    await asyncio.to_thread(consumer.close)
    await asyncio.to_thread(producer.close)


async def test_every_dtype_survives(ends: tuple[Producer, Consumer]) -> None:
    producer, consumer = ends
    raw = torch.arange(4 * 16 * 3, dtype=torch.uint8)
    bundle: dict[str, Any] = {
        name: (raw % 2).bool()[:12].reshape(3, 4) if name == "bool" else raw.view(getattr(torch, name)).reshape(3, -1)
        for name in ITEM_BYTES
    }
    bundle |= {"scalar": torch.tensor(1.5), "nothing": torch.empty(0, 7), "strided": torch.arange(12).view(3, 4).T}
    ticket = producer.publish(bundle, 30.0)
    found = await consumer.fetch(seal(ticket, None), 30)
    assert list(found) == list(bundle)
    for name, tensor in bundle.items():
        assert found[name].dtype == tensor.dtype
        assert found[name].shape == tensor.shape
        assert (
            found[name]
            .contiguous()
            .reshape(-1)
            .view(torch.uint8)
            .equal(tensor.contiguous().reshape(-1).view(torch.uint8))
        )
    assert producer.release(ticket.handoff_id)


@pytest.mark.parametrize("length", [8, 2**19, 2**21, 2**23 + 8])
async def test_any_size(ends: tuple[Producer, Consumer], length: int) -> None:
    producer, consumer = ends
    ticket = producer.publish({"ids": torch.arange(length // 8)}, 30.0)
    found = await consumer.fetch(seal(ticket, None), 30)
    assert torch.equal(found["ids"], torch.arange(length // 8))
    assert consumer.stats()["bytes_moved"] >= length
    assert producer.release(ticket.handoff_id)


async def test_released_means_refused(ends: tuple[Producer, Consumer]) -> None:
    producer, consumer = ends
    ticket = producer.publish({"ids": torch.arange(9)}, 30.0)
    assert producer.release(ticket.handoff_id)
    assert not producer.release(ticket.handoff_id)
    with pytest.raises(TicketInvalid, match="released"):
        await consumer.fetch(seal(ticket, None), 30)


async def test_a_closed_producer_is_gone(ends: tuple[Producer, Consumer]) -> None:
    producer, consumer = ends
    kept, later = (seal(producer.publish({"ids": torch.arange(9)}, 30.0), None) for _ in range(2))
    await consumer.fetch(kept, 30)
    await asyncio.to_thread(producer.close)
    with pytest.raises(HandoffError) as caught:
        await consumer.fetch(later, 10)
    assert caught.value.code in ("peer_gone", "transfer_timeout")
