"""The two messages from consumer to producer: a READ of a slot begins, a READ of it can touch no more memory."""

import struct
from enum import IntEnum
from typing import NamedTuple

_FORM = struct.Struct("<4sB16sQ8s")
_MAGIC = b"DPN1"


class Event(IntEnum):
    """ENDED: terminal and verified. ABANDONED: terminal, but nobody used the bytes."""

    BEGINS = 1
    ENDED = 2
    ABANDONED = 3


class Notice(NamedTuple):
    """read: 8 random bytes that pair the end of a READ with its beginning."""

    event: Event
    handoff_id: bytes
    generation: int
    read: bytes

    def pack(self) -> bytes:
        return _FORM.pack(_MAGIC, *self)


def unpack(raw: bytes) -> Notice | None:
    """None if these bytes are no notice: anyone who can connect can send anything."""
    if len(raw) != _FORM.size:
        return None
    magic, event, handoff_id, generation, read = _FORM.unpack(raw)
    if magic != _MAGIC or event not in set(Event):
        return None
    return Notice(Event(event), handoff_id, generation, read)
