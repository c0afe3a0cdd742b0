"""A two-level segregated-fit allocator: places in a range of bytes, O(1) to take and to give back.

Source: Masmano, Ripoll, Crespo and Real, "TLSF: a new dynamic memory allocator for real-time systems", ECRTS 2004.
Free blocks hang in lists by size class (a power of two, split in 16); two levels of bitmaps find the first class
that surely fits; neighbours are joined when a block comes back. It holds numbers only and never touches memory.
"""

from dataclasses import dataclass

from services.handoff.layout import ALIGNMENT

_SPLIT_BITS = 4
_SPLIT = 1 << _SPLIT_BITS


@dataclass(slots=True, eq=False)
class _Block:
    offset: int
    size: int
    free: bool
    before: "_Block | None" = None
    after: "_Block | None" = None


def _floor_class(units: int) -> tuple[int, int]:
    """The class that a free block of `units` hangs in."""
    if units < _SPLIT:
        return 0, units
    power = units.bit_length() - 1
    return power - _SPLIT_BITS + 1, (units >> (power - _SPLIT_BITS)) - _SPLIT


def _rounded(units: int) -> int:
    """`units` rounded up to the smallest size of a class, at most a 16th more: a hole that was cut to such a size
    is found again by the next block of it."""
    step = 1 << max(0, units.bit_length() - 1 - _SPLIT_BITS)
    return -(-units // step) * step


class Allocator:
    """Hands out offsets into `capacity` bytes, every one a multiple of 64. Not thread-safe: its owner locks."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity // ALIGNMENT * ALIGNMENT
        self.in_use = 0
        self._taken: dict[int, _Block] = {}
        self._lists: dict[tuple[int, int], dict[int, _Block]] = {}
        self._first = 0
        self._second: dict[int, int] = {}
        if self.capacity:
            self._hang(_Block(0, self.capacity // ALIGNMENT, free=True))

    def __len__(self) -> int:
        return len(self._taken)

    def take(self, length: int) -> int | None:
        """The offset of `length` free bytes, or None if no class surely holds them."""
        units = _rounded(max(1, -(-length // ALIGNMENT)))
        place = self._find(*_floor_class(units))
        if place is None:
            return None
        block = next(iter(self._lists[place].values()))
        self._unhang(block)
        if block.size > units:
            self._split(block, units)
        block.free = False
        self._taken[block.offset] = block
        self.in_use += block.size * ALIGNMENT
        return block.offset * ALIGNMENT

    def give_back(self, offset: int) -> None:
        """Frees what `take` returned. Raises KeyError if it is not taken."""
        block = self._taken.pop(offset // ALIGNMENT)
        self.in_use -= block.size * ALIGNMENT
        if block.after is not None and block.after.free:
            self._unhang(block.after)
            self._join(block, block.after)
        if block.before is not None and block.before.free:
            self._unhang(block.before)
            block.free = True
            self._join(block.before, block)
            block = block.before
        self._hang(block)

    def _find(self, first: int, second: int) -> tuple[int, int] | None:
        fits = self._second.get(first, 0) >> second << second
        if not fits:
            higher = self._first >> (first + 1) << (first + 1)
            if not higher:
                return None
            first = (higher & -higher).bit_length() - 1
            fits = self._second[first]
        return first, (fits & -fits).bit_length() - 1

    def _hang(self, block: _Block) -> None:
        block.free = True
        first, second = _floor_class(block.size)
        self._lists.setdefault((first, second), {})[block.offset] = block
        self._second[first] = self._second.get(first, 0) | 1 << second
        self._first |= 1 << first

    def _unhang(self, block: _Block) -> None:
        first, second = _floor_class(block.size)
        members = self._lists[first, second]
        del members[block.offset]
        if not members:
            self._second[first] &= ~(1 << second)
            if not self._second[first]:
                self._first &= ~(1 << first)

    def _split(self, block: _Block, units: int) -> None:
        rest = _Block(block.offset + units, block.size - units, free=True, before=block, after=block.after)
        if block.after is not None:
            block.after.before = rest
        block.after, block.size = rest, units
        self._hang(rest)

    @staticmethod
    def _join(left: _Block, right: _Block) -> None:
        left.size += right.size
        left.after = right.after
        if right.after is not None:
            right.after.before = left
