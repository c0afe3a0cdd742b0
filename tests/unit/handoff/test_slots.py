"""When the memory of a slot may be used again."""

import time
from typing import Any

import pytest

from services.handoff.arena import Arena
from services.handoff.layout import Header, SlotState
from services.handoff.memory import Fabric
from services.handoff.notice import Event, Notice
from services.handoff.settings import HandoffSettings
from services.handoff.slots import Slot, Slots
from services.wire.errors import ArenaFull

READ = b"r" * 8


class Kept:
    """Slots of one arena, under a clock that only the test moves."""

    def __init__(self, fabric: Fabric, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
        self.now = 1000.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        self.slots = Slots(HandoffSettings(**({"announce_grace": 1.0, "quarantine": 60.0} | settings)))
        self.arena = Arena(fabric.agent("ar"), 2**20, oversize=0)

    def slot(self, lease: float = 10.0) -> Slot:
        block = self.arena.allocate(128)
        slot = Slot(self.now.hex().encode()[:16].ljust(16), self.slots.next_generation(), [block], lease)
        self.slots.add(slot, 64)
        return slot

    def tell(self, slot: Slot, event: Event, generation: int | None = None) -> None:
        self.slots.note([Notice(event, slot.handoff_id, generation or slot.generation, READ).pack()])

    def after(self, seconds: float) -> float:
        """Bytes in use that much later."""
        self.now += seconds
        self.slots.reap()
        return self.arena.bytes_in_use


@pytest.fixture
def kept(fabric: Fabric, monkeypatch: pytest.MonkeyPatch) -> Kept:
    return Kept(fabric, monkeypatch)


@pytest.mark.parametrize("end", [Event.ENDED, Event.ABANDONED])
def test_after_its_read_has_ended_a_released_slot_is_free_at_once(kept: Kept, end: Event) -> None:
    slot = kept.slot()
    kept.tell(slot, Event.BEGINS)
    kept.tell(slot, end)
    assert kept.slots.release(slot.handoff_id)
    assert kept.arena.bytes_in_use == 0


def test_released_without_any_read_it_rests_for_the_grace(kept: Kept) -> None:
    kept.slots.release(kept.slot().handoff_id)
    assert kept.after(0.9) == 128
    assert kept.after(0.2) == 0


def test_a_read_under_way_keeps_it_until_it_ends(kept: Kept) -> None:
    slot = kept.slot()
    kept.tell(slot, Event.BEGINS)
    kept.slots.release(slot.handoff_id)
    assert kept.after(59.0) == 128
    kept.tell(slot, Event.ABANDONED)
    assert kept.after(0.0) == 0


def test_a_read_that_never_ends_keeps_it_for_the_quarantine(kept: Kept) -> None:
    slot = kept.slot()
    kept.tell(slot, Event.BEGINS)
    kept.slots.release(slot.handoff_id)
    assert kept.after(59.9) == 128
    assert kept.after(0.2) == 0
    assert kept.slots.stats()["quarantined"] == 1


def test_an_end_that_overtakes_its_beginning_counts(kept: Kept) -> None:
    slot = kept.slot()
    kept.tell(slot, Event.ENDED)
    kept.tell(slot, Event.BEGINS)
    kept.slots.release(slot.handoff_id)
    assert kept.arena.bytes_in_use == 0


def test_a_notice_of_another_generation_is_a_stray(kept: Kept) -> None:
    slot = kept.slot()
    kept.tell(slot, Event.BEGINS, slot.generation + 1)
    kept.slots.note([b"noise"])
    assert kept.slots.stats()["stray_notices"] == 2
    assert not slot.open_reads


def test_the_lease_ends_it_and_the_header_says_so(kept: Kept) -> None:
    slot = kept.slot(lease=10.0)
    raw = slot.blocks[0].raw
    assert kept.after(9.9) == 128
    kept.after(0.2)
    assert Header.unpack(raw[:64].tobytes()).state == SlotState.EXPIRED
    assert not kept.slots.release(slot.handoff_id)
    assert kept.after(1.1) == 0


def test_there_are_no_more_slots_than_the_settings_allow(fabric: Fabric, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept(fabric, monkeypatch, max_slots=1)
    slot = kept.slot()
    kept.slots.release(slot.handoff_id)
    with pytest.raises(ArenaFull, match="all 1 slots"):  # it rests still
        kept.slots.check_room()
    kept.after(1.1)
    kept.slots.check_room()
