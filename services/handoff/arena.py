"""Registered memory of one kind: a region registered once, and a bounded set of regions for what does not fit."""

import mmap
import threading
from dataclasses import dataclass, field

import torch

from services.handoff.allocator import Allocator
from services.handoff.layout import Memory, aligned
from services.handoff.transport import Span, Transport
from services.wire.errors import ArenaFull

_PAGE = 4096


@dataclass(slots=True, eq=False)
class Block:
    """Bytes handed out by an `Arena`. view: uint8[length] over them."""

    span: Span
    view: torch.Tensor
    offset: int | None  # None: a region of its own
    region: "Region | None" = None


@dataclass(slots=True, eq=False)
class Region:
    """One registration. Whole pages, touched at creation so that no READ pays for page faults."""

    bytes_: torch.Tensor
    registration: object
    spare_since: int = field(default=0)


class Arena:
    """Blocks of registered memory. Thread-safe; O(1) inside the main region.

    oversize: cap in bytes on the regions made for blocks that can never fit the main one. A freed one is kept as
    a spare for the next, since registering and first-touching memory costs more than the READ into it.
    """

    def __init__(
        self, transport: Transport, capacity: int, *, oversize: int, memory: Memory = Memory.DRAM, device: int = 0
    ) -> None:
        self.memory, self.device = memory, device
        self._transport = transport
        self._lock = threading.Lock()
        self._allocator = Allocator(capacity)
        self._main = self._region(capacity)
        self._oversize, self._oversize_bytes = oversize, 0
        self._spares: list[Region] = []
        self._live_oversize = 0
        self.high_water = 0

    def allocate(self, length: int) -> Block:
        """A block of `length` bytes. Raises ArenaFull."""
        with self._lock:
            block = self._allocate(length)
            self.high_water = max(self.high_water, self.bytes_in_use)
            return block

    def free(self, block: Block) -> None:
        """Gives a block back. The caller answers for it that no READ of it is in flight."""
        with self._lock:
            if block.offset is not None:
                self._allocator.give_back(block.offset)
                return
            assert_region = block.region
            if assert_region is None:
                raise ValueError("this block is of another arena")
            block.region = None
            self._live_oversize -= assert_region.bytes_.numel()
            self._spares.append(assert_region)

    @property
    def bytes_in_use(self) -> int:
        return self._allocator.in_use + self._live_oversize

    def stats(self) -> dict[str, float]:
        """Bytes: capacity, in_use, high_water, oversize (registered beyond the main region)."""
        return {
            "arena_bytes": float(self._allocator.capacity),
            "bytes_in_use": float(self.bytes_in_use),
            "bytes_high_water": float(self.high_water),
            "oversize_bytes": float(self._oversize_bytes),
        }

    def close(self) -> None:
        """Deregisters everything."""
        with self._lock:
            for region in [self._main, *self._spares]:
                self._transport.deregister(region.registration)
            self._spares.clear()

    def _allocate(self, length: int) -> Block:
        if length <= self._allocator.capacity:
            offset = self._allocator.take(length)
            if offset is None:
                raise ArenaFull(
                    f"{length} bytes wanted, {self._allocator.in_use} of {self._allocator.capacity} in use",
                    retry_after=1,
                )
            return Block(self._span(self._main, offset, length), self._main.bytes_[offset : offset + length], offset)
        region = self._spare(length) or self._extra(length)
        self._live_oversize += region.bytes_.numel()
        return Block(self._span(region, 0, length), region.bytes_[:length], None, region)

    def _spare(self, length: int) -> Region | None:
        fits = [region for region in self._spares if length <= region.bytes_.numel() <= 2 * length]
        if not fits:
            return None
        best = min(fits, key=lambda region: region.bytes_.numel())
        self._spares.remove(best)
        return best

    def _extra(self, length: int) -> Region:
        size = -(-aligned(length) // _PAGE) * _PAGE
        while self._spares and self._oversize_bytes + size > self._oversize:
            old = self._spares.pop(0)
            self._transport.deregister(old.registration)
            self._oversize_bytes -= old.bytes_.numel()
        if self._oversize_bytes + size > self._oversize:
            raise ArenaFull(
                f"{length} bytes need a region of their own, and {self._oversize_bytes} of the {self._oversize} bytes "
                "allowed for such (DIPTYCH_HANDOFF_OVERSIZE_BYTES) are registered",
                retry_after=1,
            )
        region = self._region(size)
        self._oversize_bytes += size
        return region

    def _region(self, size: int) -> Region:
        if self.memory is Memory.VRAM:
            bytes_ = torch.zeros(size, dtype=torch.uint8, device=f"cuda:{self.device}")
        else:
            pages = mmap.mmap(-1, size)
            if hasattr(mmap, "MADV_HUGEPAGE"):
                pages.madvise(mmap.MADV_HUGEPAGE)
            bytes_ = torch.frombuffer(pages, dtype=torch.uint8)
            bytes_[::_PAGE] = 0
        return Region(bytes_, self._transport.register(Span(bytes_.data_ptr(), size, self.memory, self.device)))

    def _span(self, region: Region, offset: int, length: int) -> Span:
        return Span(region.bytes_.data_ptr() + offset, length, self.memory, self.device)
