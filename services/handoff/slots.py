"""The life of a slot at the producer: live under a lease, then resting until no READ can touch it, then free.

The rule for reuse. A slot goes back to the arena when it is released or expired, and
- every READ that was announced for it has ended, and at least one was; or
- nobody announced one, and `announce_grace` has passed (an announcement may be on the wire); or
- an announced READ never ended, and `quarantine` has passed since (its consumer died or hangs).
What slips through the gap of an announcement on the wire is caught by header and checksum at the consumer.
"""

from dataclasses import dataclass, field

from services.handoff.arena import Arena, Block
from services.handoff.layout import SlotState
from services.handoff.notice import Event, Notice

MAX_READS = 64  # READs of one slot that are told apart


@dataclass(slots=True, eq=False)
class Slot:
    """One published bundle. expires, rests_until, last_begin: monotonic seconds."""

    handoff_id: bytes
    generation: int
    blocks: list[tuple[Arena, Block]]
    expires: float
    state: SlotState = SlotState.FILLING
    reads: int = 0
    ended: int = 0
    last_begin: float = 0.0
    retired_at: float = 0.0
    open_reads: set[bytes] = field(default_factory=set)
    early_ends: set[bytes] = field(default_factory=set)

    @property
    def length(self) -> int:
        return sum(block.span.length for _, block in self.blocks)

    def note(self, notice: Notice, now: float) -> None:
        """Books one message. Ends may overtake beginnings."""
        if notice.event is Event.BEGINS:
            if notice.read in self.early_ends:
                self.early_ends.discard(notice.read)
            elif len(self.open_reads) < MAX_READS:
                self.open_reads.add(notice.read)
            self.reads += 1
            self.last_begin = now
            return
        if notice.event is Event.ENDED:
            self.ended += 1
        if notice.read in self.open_reads:
            self.open_reads.discard(notice.read)
        elif len(self.early_ends) < MAX_READS:
            self.early_ends.add(notice.read)

    def free_at(self, announce_grace: float, quarantine: float) -> float:
        """When a retired slot may be reused, monotonic seconds, by what is known now."""
        if self.open_reads or self.reads > MAX_READS:
            return max(self.retired_at, self.last_begin) + quarantine
        return self.retired_at + (0.0 if self.reads else announce_grace)
