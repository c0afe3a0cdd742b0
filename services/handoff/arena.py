"""Registered memory of one kind: a region registered once, and a bounded set of regions for what does not fit."""

import mmap
import threading
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from services.handoff.allocator import Allocator
from services.handoff.layout import Memory, aligned
from services.handoff.transport import Span, Transport
from services.wire.errors import ArenaFull

_PAGE = 4096


@dataclass(slots=True, eq=False)
class Region:
    """One registration. Whole pages, touched at creation, so that no READ pays for page faults. bytes_, raw: the
    same memory as a tensor and, in DRAM, as an array."""

    bytes_: torch.Tensor
    raw: NDArray[np.uint8]
    registration: object

    @property
    def size(self) -> int:
        return int(self.bytes_.numel())


@dataclass(slots=True, eq=False)
class Block:
    """Bytes handed out by an `Arena`. offset: in its region; alone: the region holds nothing else."""

    arena: "Arena"
    region: Region
    offset: int
    span: Span
    alone: bool = False

    @property
    def view(self) -> torch.Tensor:
        """uint8[length]"""
        return self.region.bytes_[self.offset : self.offset + self.span.length]

    @property
    def raw(self) -> NDArray[np.uint8]:
        """uint8[length], DRAM only; cheaper to make than `view`."""
        return self.region.raw[self.offset : self.offset + self.span.length]


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
        self._oversize, self._oversize_bytes, self._oversize_used = oversize, 0, 0
        self._spares: list[Region] = []
        self.high_water = 0
        self.registrations = 1  # ever made: agent metadata changes with each

    def allocate(self, length: int) -> Block:
        """A block of `length` bytes. Raises ArenaFull."""
        with self._lock:
            block = self._inside(length) if length <= self._allocator.capacity else self._alone(length)
            self.high_water = max(self.high_water, self.bytes_in_use)
            return block

    def free(self, block: Block) -> None:
        """Gives a block back. The caller answers for it that no READ of it is in flight."""
        with self._lock:
            if block.alone:
                self._oversize_used -= block.region.size
                self._spares.append(block.region)
            else:
                self._allocator.give_back(block.offset)

    @property
    def bytes_in_use(self) -> int:
        return self._allocator.in_use + self._oversize_used

    def stats(self) -> dict[str, float]:
        """Gauges in bytes; oversize_bytes is what is registered beyond the main region, spares included."""
        return {
            "arena_bytes": float(self._allocator.capacity),
            "bytes_in_use": float(self.bytes_in_use),
            "bytes_high_water": float(self.high_water),
            "oversize_bytes": float(self._oversize_bytes),
        }

    def close(self) -> None:
        """Deregisters what is not lent out."""
        with self._lock:
            for region in [self._main, *self._spares]:
                self._transport.deregister(region.registration)
            self._spares.clear()

    def _inside(self, length: int) -> Block:
        offset = self._allocator.take(length)
        if offset is None:
            raise ArenaFull(
                f"{length} bytes wanted, {self._allocator.in_use} of {self._allocator.capacity} in use", retry_after=1
            )
        return Block(self, self._main, offset, self._span(self._main, offset, length))

    def _alone(self, length: int) -> Block:
        region = self._spare(length) or self._extra(length)
        self._oversize_used += region.size
        return Block(self, region, 0, self._span(region, 0, length), alone=True)

    def _spare(self, length: int) -> Region | None:
        fits = [region for region in self._spares if length <= region.size <= 2 * length]
        if not fits:
            return None
        best = min(fits, key=lambda region: region.size)
        self._spares.remove(best)
        return best

    def _extra(self, length: int) -> Region:
        size = -(-aligned(length) // _PAGE) * _PAGE
        while self._spares and self._oversize_bytes + size > self._oversize:
            old = self._spares.pop(0)
            self._transport.deregister(old.registration)
            self._oversize_bytes -= old.size
        if self._oversize_bytes + size > self._oversize:
            raise ArenaFull(
                f"{length} bytes need a region of their own, and {self._oversize_bytes} of the {self._oversize} bytes "
                "that such may take are out (DIPTYCH_HANDOFF_OVERSIZE_BYTES)",
                retry_after=1,
            )
        region = self._region(size)
        self._oversize_bytes += size
        self.registrations += 1
        return region

    def _region(self, size: int) -> Region:
        if self.memory is Memory.VRAM:
            bytes_ = torch.zeros(size, dtype=torch.uint8, device=f"cuda:{self.device}")
            raw = np.empty(0, np.uint8)
        else:
            pages = mmap.mmap(-1, size)
            if hasattr(mmap, "MADV_HUGEPAGE"):
                pages.madvise(mmap.MADV_HUGEPAGE)
            raw = np.frombuffer(pages, np.uint8)
            raw[::_PAGE] = 0
            bytes_ = torch.from_numpy(raw)
        span = Span(bytes_.data_ptr(), size, self.memory, self.device)
        return Region(bytes_, raw, self._transport.register(span))

    def _span(self, region: Region, offset: int, length: int) -> Span:
        return Span(region.bytes_.data_ptr() + offset, length, self.memory, self.device)
