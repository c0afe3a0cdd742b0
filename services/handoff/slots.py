"""The life of a slot at the producer: live under a lease, then resting until no READ can touch it, then free.

The rule for reuse. A slot goes back to the arena when it was released or has expired, and
- READs were announced for it, and all of them have ended; or
- none was announced, and `announce_grace` has passed (an announcement may be on the wire); or
- one was announced and never ended, and `quarantine` has passed since (its consumer died or hangs).
What slips through while an announcement is on the wire is caught by header and checksum at the consumer.
"""

import threading
import time
from dataclasses import dataclass, field

from services.handoff import notice
from services.handoff.arena import Block
from services.handoff.layout import HEADER_BYTES, Header, SlotState
from services.handoff.notice import Event, Notice
from services.handoff.settings import HandoffSettings
from services.wire.errors import ArenaFull

MAX_READS = 64  # open READs of one slot that are told apart
_COUNTERS = (
    "published", "published_bytes", "released", "expired", "refused",
    "reads_begun", "reads_ended", "reads_abandoned", "quarantined", "stray_notices",
)  # fmt: skip


@dataclass(slots=True, eq=False)
class Slot:
    """One published bundle. lease: seconds from when it is live. expires, last_begin, retired_at: monotonic seconds."""

    handoff_id: bytes
    generation: int
    blocks: list[Block]
    lease: float
    expires: float = 0.0
    begun: int = 0
    ended: int = 0
    last_begin: float = 0.0
    retired_at: float = 0.0
    open_reads: set[bytes] = field(default_factory=set)
    early_ends: set[bytes] = field(default_factory=set)

    @property
    def length(self) -> int:
        """Bytes of all regions, header included."""
        return sum(block.span.length for block in self.blocks)

    def write(self, header: Header) -> None:
        self.blocks[0].raw[:HEADER_BYTES].data[:] = header.pack()

    def note(self, message: Notice, now: float) -> None:
        """Books one message. Ends may overtake beginnings."""
        if message.event is Event.BEGINS:
            self.begun += 1
            self.last_begin = now
            if message.read in self.early_ends:
                self.early_ends.discard(message.read)
            elif len(self.open_reads) < MAX_READS:
                self.open_reads.add(message.read)
            return
        self.ended += message.event is Event.ENDED
        if message.read in self.open_reads:
            self.open_reads.discard(message.read)
        elif len(self.early_ends) < MAX_READS:
            self.early_ends.add(message.read)

    def free_at(self, settings: HandoffSettings) -> float:
        """When a retired slot may be used again, monotonic seconds, by what is known now."""
        if self.open_reads:
            return max(self.retired_at, self.last_begin) + settings.quarantine
        return self.retired_at + (0.0 if self.begun else settings.announce_grace)

    def free(self) -> None:
        """Gives the memory back, once."""
        while self.blocks:
            block = self.blocks.pop()
            block.arena.free(block)


class Slots:
    """All slots of a producer. Thread-safe."""

    def __init__(self, settings: HandoffSettings) -> None:
        self._settings = settings
        self._live: dict[bytes, Slot] = {}
        self._resting: dict[bytes, Slot] = {}
        self._generation = 0
        self._counts = dict.fromkeys(_COUNTERS, 0)
        self._lock = threading.Condition()
        self._closed = False

    @property
    def live(self) -> int:
        return len(self._live)

    @property
    def unread(self) -> int:
        with self._lock:
            return sum(1 for slot in self._live.values() if not slot.ended)

    def check_room(self) -> None:
        """Raises ArenaFull if there are as many slots as the settings allow."""
        if self._closed or len(self._live) + len(self._resting) >= self._settings.max_slots:
            self.refused()
            why = "this producer is closed" if self._closed else f"all {self._settings.max_slots} slots are taken"
            raise ArenaFull(why, retry_after=1)

    def refused(self) -> None:
        with self._lock:
            self._counts["refused"] += 1

    def next_generation(self) -> int:
        with self._lock:
            self._generation += 1
            return self._generation

    def add(self, slot: Slot, payload: int) -> None:
        """Makes a filled slot live. Raises ArenaFull if the producer was closed meanwhile."""
        with self._lock:
            if self._closed:
                raise ArenaFull("this producer is closed")
            slot.expires = time.monotonic() + slot.lease
            self._live[slot.handoff_id] = slot
            self._counts["published"] += 1
            self._counts["published_bytes"] += payload

    def release(self, handoff_id: bytes) -> bool:
        with self._lock:
            slot = self._live.pop(handoff_id, None)
            if slot is None:
                return False
            self._counts["released"] += 1
            self._retire(slot, SlotState.RELEASED)
        return True

    def note(self, messages: list[bytes]) -> None:
        """Books the notices of consumers."""
        if not messages:
            return
        now = time.monotonic()
        with self._lock:
            for raw in messages:
                message = notice.unpack(raw)
                slot = message and (self._live.get(message.handoff_id) or self._resting.get(message.handoff_id))
                if message is None or slot is None or slot.generation != message.generation:
                    self._counts["stray_notices"] += 1
                    continue
                slot.note(message, now)
                self._counts["reads_begun"] += message.event is Event.BEGINS
                self._counts["reads_ended"] += message.event is Event.ENDED
                self._counts["reads_abandoned"] += message.event is Event.ABANDONED

    def reap(self) -> None:
        """Retires what has expired, frees what has rested."""
        now = time.monotonic()
        with self._lock:
            for slot in [slot for slot in self._live.values() if slot.expires <= now]:
                del self._live[slot.handoff_id]
                self._counts["expired"] += 1
                self._retire(slot, SlotState.EXPIRED)
            for slot in [slot for slot in self._resting.values() if slot.free_at(self._settings) <= now]:
                del self._resting[slot.handoff_id]
                slot.free()

    def wait_empty(self, timeout: float) -> bool:
        with self._lock:
            return self._lock.wait_for(lambda: not self._live, timeout)

    def stats(self) -> dict[str, float]:
        with self._lock:
            return {
                "slots_live": float(len(self._live)),
                "slots_resting": float(len(self._resting)),
                **{name: float(count) for name, count in self._counts.items()},
            }

    def close(self) -> None:
        with self._lock:
            self._closed = True
            for group in (self._live, self._resting):
                for slot in group.values():
                    slot.free()
                group.clear()
            self._lock.notify_all()

    def _retire(self, slot: Slot, state: SlotState) -> None:
        """Marks the header, so that a late READ is refused, and frees the slot or lets it rest. Under the lock."""
        slot.retired_at = time.monotonic()
        slot.write(Header(slot.handoff_id, slot.generation, 0, state, 0, bytes(16)))
        if slot.free_at(self._settings) <= slot.retired_at:
            slot.free()
        else:
            self._resting[slot.handoff_id] = slot
            self._counts["quarantined"] += 1
        self._lock.notify_all()
