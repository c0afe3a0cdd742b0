"""How a bundle lies in memory: a 64-byte header, then every tensor at the next multiple of 64 bytes.

The layout is a pure function of the tensor specs, so a ticket carries no offsets that could lie.
"""

import math
import struct
from collections.abc import Sequence
from enum import IntEnum, StrEnum
from typing import Annotated, NamedTuple

import msgspec

from services.wire.errors import IntegrityError

ALIGNMENT = 64  # bytes: a cache line, and enough for every dtype
HEADER = struct.Struct("<8s16sQQII16s")
HEADER_BYTES = HEADER.size
MAGIC = b"DIPTYCH1"

# torch dtype name -> bytes an element. Quantised dtypes are not here: they carry scales beside their bytes.
ITEM_BYTES = {
    "bool": 1, "uint8": 1, "int8": 1, "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1,
    "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1, "int16": 2, "uint16": 2, "float16": 2, "bfloat16": 2,
    "int32": 4, "uint32": 4, "float32": 4, "int64": 8, "uint64": 8, "float64": 8,
    "complex32": 4, "complex64": 8, "complex128": 16,
}  # fmt: skip


class Memory(StrEnum):
    """Where bytes live."""

    DRAM = "DRAM"
    VRAM = "VRAM"


class SlotState(IntEnum):
    """What the header says of its slot. Only LIVE may be read."""

    FILLING = 1
    LIVE = 2
    RELEASED = 3
    EXPIRED = 4


class TensorSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """One tensor. region: index into the ticket's regions."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    dtype: Annotated[str, msgspec.Meta(max_length=16)]
    shape: Annotated[tuple[Annotated[int, msgspec.Meta(ge=0, lt=2**48)], ...], msgspec.Meta(max_length=16)]
    region: Annotated[int, msgspec.Meta(ge=0, lt=16)] = 0

    @property
    def length(self) -> int:
        """Bytes. Raises KeyError if the dtype is not in `ITEM_BYTES`."""
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]


class Header(NamedTuple):
    """The first 64 bytes of a slot. length: payload bytes of all regions; algorithm: of `digest`."""

    handoff_id: bytes
    generation: int
    length: int
    state: int
    algorithm: int
    digest: bytes

    def pack(self) -> bytes:
        return HEADER.pack(MAGIC, *self)

    @classmethod
    def unpack(cls, raw: bytes) -> "Header":
        """Raises IntegrityError if these are not the bytes of a header."""
        magic, *fields = HEADER.unpack(raw)
        if magic != MAGIC:
            raise IntegrityError("no hand-off header where the ticket points to")
        return cls(*fields)


def aligned(length: int) -> int:
    """`length` rounded up to the alignment."""
    return -(-length // ALIGNMENT) * ALIGNMENT


def offsets(specs: Sequence[TensorSpec], regions: int) -> tuple[list[int], list[int]]:
    """The offset of every tensor in its region, and the length of every region, in bytes. Region 0 starts with
    the header."""
    lengths = [HEADER_BYTES] + [0] * (regions - 1)
    places = []
    for spec in specs:
        places.append(lengths[spec.region])
        lengths[spec.region] += aligned(spec.length)
    return places, lengths
