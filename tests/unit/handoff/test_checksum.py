"""Any torn, stale or misplaced bytes change the digest."""

import pytest
import torch

from services.handoff.checksum import PAGE, SMALL, Algorithm, choose, combine, start


def digest(algorithm: Algorithm, data: torch.Tensor, pieces: int = 1) -> bytes:
    summed = start(algorithm)
    step = -(-data.numel() // pieces // PAGE) * PAGE
    for begin in range(0, data.numel(), step):
        summed.update(data[begin : begin + step])
    return summed.digest()


def noise(length: int) -> torch.Tensor:
    return torch.randint(0, 256, (length,), generator=torch.Generator().manual_seed(1), dtype=torch.uint8)


@pytest.mark.parametrize("algorithm", Algorithm)
def test_pieces_do_not_matter(algorithm: Algorithm) -> None:
    data = noise(10 * PAGE + 321)
    assert len({digest(algorithm, data, pieces) for pieces in (1, 2, 3, 10)}) == 1


@pytest.mark.parametrize("algorithm", Algorithm)
@pytest.mark.parametrize("place", [0, PAGE - 1, 5 * PAGE + 7, 10 * PAGE, 10 * PAGE + 320])
def test_one_flipped_bit(algorithm: Algorithm, place: int) -> None:
    data = noise(10 * PAGE + 321)
    before = digest(algorithm, data)
    data[place] ^= 1
    assert digest(algorithm, data) != before


@pytest.mark.parametrize("algorithm", Algorithm)
def test_two_pages_that_changed_places(algorithm: Algorithm) -> None:
    data = noise(4 * PAGE)
    swapped = torch.cat([data[PAGE : 2 * PAGE], data[:PAGE], data[2 * PAGE :]])
    assert digest(algorithm, data) != digest(algorithm, swapped)


def test_the_choice_follows_size_and_setting() -> None:
    assert choose(SMALL, "auto") is Algorithm.BLAKE3
    assert choose(SMALL + 1, "auto") is Algorithm.PAGE_SUMS
    assert choose(SMALL + 1, "blake3") is Algorithm.BLAKE3


def test_the_order_of_regions_counts() -> None:
    assert combine([b"a" * 16, b"b" * 16]) != combine([b"b" * 16, b"a" * 16])
    assert combine([b"a" * 16]) == b"a" * 16
