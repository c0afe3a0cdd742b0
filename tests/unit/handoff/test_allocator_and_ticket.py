"""Places never overlap and all come back; a signed ticket whose arithmetic is wrong is refused all the same."""

import random
import time
from typing import Any

import msgspec
import pytest
import torch

from services.handoff.allocator import Allocator
from services.handoff.layout import ALIGNMENT
from services.handoff.memory import Fabric
from services.handoff.producer import Producer
from services.handoff.settings import HandoffSettings
from services.handoff.ticket import Region, Ticket, seal, unseal
from services.wire.errors import ArenaFull, IncompatiblePeer, LeaseExpired, Remedy, TicketInvalid
from tests.unit.handoff.conftest import BASE, FINGERPRINT

KEY = b"key"


@pytest.mark.parametrize("seed", range(5))
def test_places_are_aligned_apart_and_all_come_back(seed: int) -> None:
    chance, allocator, taken = random.Random(seed), Allocator(2**20), {}
    for _ in range(2000):
        if taken and chance.random() < 0.5:
            offset = chance.choice(list(taken))
            del taken[offset]
            allocator.give_back(offset)
            continue
        length = chance.randint(1, 2**16)
        offset = allocator.take(length)
        if offset is not None:
            assert offset % ALIGNMENT == 0
            assert offset + length <= allocator.capacity
            assert all(offset + length <= other or other + size <= offset for other, size in taken.items())
            taken[offset] = length
    for offset in taken:
        allocator.give_back(offset)
    assert allocator.in_use == 0 == len(allocator)
    assert allocator.take(allocator.capacity) == 0  # joined to one block again


def test_what_is_not_taken_cannot_be_given_back() -> None:
    with pytest.raises(KeyError):
        Allocator(4096).give_back(64)


@pytest.fixture
def ticket(fabric: Fabric) -> Ticket:
    producer = Producer(HandoffSettings(**BASE), FINGERPRINT, fabric.agent("ar"))
    found = producer.publish({"ids": torch.arange(64)}, 30.0)
    producer.close()
    return found


def changed(ticket: Ticket, **fields: Any) -> bytes:
    return seal(msgspec.structs.replace(ticket, **fields), KEY)


def test_a_ticket_survives_the_wire(ticket: Ticket) -> None:
    assert unseal(seal(ticket, KEY), KEY, FINGERPRINT) == ticket


@pytest.mark.parametrize("by", [-64, -1, 1, 64])
def test_a_length_that_does_not_fit_the_tensors_is_refused(ticket: Ticket, by: int) -> None:
    region = ticket.regions[0]
    wrong = (Region(region.address, region.length + by),)
    with pytest.raises(TicketInvalid, match="its tensors need"):
        unseal(changed(ticket, regions=wrong), KEY, FINGERPRINT)


def test_two_tensors_of_one_name_are_refused(ticket: Ticket) -> None:
    with pytest.raises(TicketInvalid, match="two tensors"):
        unseal(changed(ticket, tensors=ticket.tensors * 2), KEY, FINGERPRINT)


def test_another_key_model_or_time_is_refused(ticket: Ticket) -> None:
    raw = seal(ticket, KEY)
    for key in (b"other", None):
        with pytest.raises(TicketInvalid):
            unseal(raw, key, FINGERPRINT)
    with pytest.raises(IncompatiblePeer, match="'tiny', this consumer 'huge'"):
        unseal(raw, KEY, "huge")
    for expires in (time.time() - 1, float("nan")):
        with pytest.raises(LeaseExpired):
            unseal(changed(ticket, expires=expires), KEY, FINGERPRINT)


def test_a_full_arena_says_when_to_come_back_and_has_room_after_a_release(fabric: Fabric) -> None:
    producer, bundle = Producer(HandoffSettings(**BASE), FINGERPRINT, fabric.agent("ar")), {"x": torch.zeros(100_000)}
    held = []
    with pytest.raises(ArenaFull) as caught:
        held.extend(producer.publish(bundle, 30.0) for _ in range(10))
    assert caught.value.retry_after == 1
    assert caught.value.remedy is Remedy.OTHER_REPLICA
    assert held
    assert producer.release(held[0].handoff_id)
    producer.publish(bundle, 30.0)
    producer.close()
