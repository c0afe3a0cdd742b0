"""Registered memory: one registration, a cap on what does not fit, spares that are used again."""

import pytest

from services.handoff.arena import Arena
from services.handoff.memory import Fabric, MemoryAgent
from services.wire.errors import ArenaFull

CAPACITY = 2**20


@pytest.fixture
def agent(fabric: Fabric) -> MemoryAgent:
    return fabric.agent("ar")


def test_one_registration_serves_every_block_that_fits(agent: MemoryAgent) -> None:
    arena = Arena(agent, CAPACITY, oversize=0)
    blocks = [arena.allocate(1000) for _ in range(100)]
    assert arena.registrations == 1 == len(agent._spans)
    assert {block.span.address % 64 for block in blocks} == {0}
    for block in blocks:
        arena.free(block)
    assert arena.bytes_in_use == 0
    assert arena.high_water == 100 * 1024


def test_a_full_arena_says_when_to_come_back(agent: MemoryAgent) -> None:
    arena = Arena(agent, CAPACITY, oversize=0)
    block = arena.allocate(CAPACITY)
    with pytest.raises(ArenaFull, match=f"{CAPACITY} of {CAPACITY} in use") as caught:
        arena.allocate(1)
    assert (caught.value.status, caught.value.retry_after) == (503, 1)
    arena.free(block)
    arena.free(arena.allocate(CAPACITY))


def test_what_never_fits_gets_a_region_of_its_own_under_a_cap(agent: MemoryAgent) -> None:
    arena = Arena(agent, CAPACITY, oversize=4 * CAPACITY)
    big = [arena.allocate(2 * CAPACITY) for _ in range(2)]
    assert all(block.alone for block in big)
    with pytest.raises(ArenaFull, match="DIPTYCH_HANDOFF_OVERSIZE_BYTES"):
        arena.allocate(2 * CAPACITY)
    assert arena.bytes_in_use == 4 * CAPACITY == arena.stats()["oversize_bytes"]


def test_a_freed_region_is_kept_as_a_spare(agent: MemoryAgent) -> None:
    arena = Arena(agent, CAPACITY, oversize=4 * CAPACITY)
    for length in (2 * CAPACITY, 2 * CAPACITY - 5000, 2 * CAPACITY):
        arena.free(arena.allocate(length))
    assert arena.registrations == 2
    assert arena.bytes_in_use == 0


def test_spares_make_room_for_another_size(agent: MemoryAgent) -> None:
    arena = Arena(agent, CAPACITY, oversize=4 * CAPACITY)
    arena.free(arena.allocate(2 * CAPACITY))
    arena.free(arena.allocate(4 * CAPACITY))
    assert arena.stats()["oversize_bytes"] == 4 * CAPACITY
    assert len(agent._spans) == 2


def test_close_deregisters_all_that_came_back(agent: MemoryAgent) -> None:
    arena = Arena(agent, CAPACITY, oversize=4 * CAPACITY)
    arena.free(arena.allocate(2 * CAPACITY))
    arena.close()
    assert agent._spans == []
