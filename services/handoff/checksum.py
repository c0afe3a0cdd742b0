"""Checksums that keep up with memory.

BLAKE3 over every byte up to 256 KiB. Above that one core does not hash as fast as a READ delivers, so the bytes
are seen as 64-bit words in pages of 4 KiB, summed modulo 2**64 a page and a column, and BLAKE3 runs over those sums:
any change within one page or one column, and any page out of place, changes the digest. It guards against stale and
torn bytes, not against a forger who can write into the arena; `checksum=blake3` does both, more slowly.
"""

from enum import IntEnum
from typing import Protocol

import numpy as np
import torch
from blake3 import blake3
from numpy.typing import NDArray

DIGEST_BYTES = 16
PAGE = 4096  # bytes
WORDS = PAGE // 8
SMALL = 256 * 1024  # bytes


class Algorithm(IntEnum):
    """As it stands in the header and the ticket."""

    BLAKE3 = 1
    PAGE_SUMS = 2


class Checksum(Protocol):
    """A digest over bytes that come in pieces; every piece but the last is a multiple of `PAGE` bytes."""

    def update(self, piece: torch.Tensor) -> None: ...
    def digest(self) -> bytes: ...


class Blake3:
    """BLAKE3 over all bytes; VRAM is copied to the host for it."""

    def __init__(self) -> None:
        self._hash = blake3()

    def update(self, piece: torch.Tensor) -> None:
        self._hash.update(piece.cpu().numpy().data)

    def digest(self) -> bytes:
        return self._hash.digest(DIGEST_BYTES)


class PageSums:
    """Sums of 64-bit words by page and by column; on a CUDA tensor the sums run on the device."""

    def __init__(self) -> None:
        self._pages = blake3()
        self._columns: NDArray[np.int64] = np.zeros(WORDS, np.int64)

    def update(self, piece: torch.Tensor) -> None:
        whole = piece.numel() // PAGE * PAGE
        body, tail = piece[:whole], piece[whole:]
        if whole:
            rows, columns = _sums(body)
            self._pages.update(rows.data.cast("B"))
            self._columns += columns
        if tail.numel():
            self._pages.update(tail.cpu().numpy().data)

    def digest(self) -> bytes:
        final = self._pages.copy()
        final.update(self._columns.data.cast("B"))
        return final.digest(DIGEST_BYTES)


def _sums(body: torch.Tensor) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    if body.is_cuda:
        matrix = body.view(torch.int64).view(-1, WORDS)
        return matrix.sum(1).cpu().numpy(), matrix.sum(0).cpu().numpy()
    words = body.numpy().view(np.int64).reshape(-1, WORDS)
    return words.sum(1), words.sum(0)


def choose(length: int, setting: str) -> Algorithm:
    """The algorithm for a bundle of `length` bytes under the setting `auto` or `blake3`."""
    return Algorithm.BLAKE3 if setting == "blake3" or length <= SMALL else Algorithm.PAGE_SUMS


def start(algorithm: Algorithm) -> Checksum:
    """A fresh checksum."""
    return Blake3() if algorithm is Algorithm.BLAKE3 else PageSums()


def combine(digests: list[bytes]) -> bytes:
    """One digest for all regions of a bundle."""
    return digests[0] if len(digests) == 1 else blake3(b"".join(digests)).digest(DIGEST_BYTES)
