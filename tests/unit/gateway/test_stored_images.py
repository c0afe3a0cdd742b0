"""Stored results: unguessable, typed, expired in time, bounded in bytes, anywhere that fsspec writes to."""

import itertools

import pytest

from services.gateway.storage import NAME, Storage
from services.wire.errors import ConfigError


class Clock:
    def __init__(self, monkeypatch) -> None:
        self.now = 1_700_000_000.0
        monkeypatch.setattr("services.gateway.storage.time.time", lambda: self.now)


@pytest.fixture
def clock(monkeypatch) -> Clock:
    return Clock(monkeypatch)


_memory = itertools.count()


@pytest.fixture(params=["local", "memory"])
def place(request, tmp_path) -> str:
    return str(tmp_path / "a" / "b") if request.param == "local" else f"memory://images{next(_memory)}"


async def test_a_stored_image_comes_back_with_type_and_time(place, clock):
    storage = Storage(place, 3600, 10**9)
    name = await storage.put(b"bytes", "jpeg")
    assert NAME.fullmatch(name)
    clock.now += 600
    stored = await storage.get(name)
    assert stored is not None
    assert (stored.image, stored.content_type, stored.seconds_left) == (b"bytes", "image/jpeg", 3000)


async def test_names_do_not_repeat(place, clock):
    storage = Storage(place, 3600, 10**9)
    assert len({await storage.put(b"x", "png") for _ in range(50)}) == 50


async def test_what_has_ended_is_gone_and_swept(place, clock):
    storage = Storage(place, 60, 10**9)
    old = await storage.put(b"old", "png")
    clock.now += 30
    new = await storage.put(b"new", "png")
    clock.now += 31
    assert await storage.get(old) is None
    assert await storage.sweep() == 1
    assert await storage.sweep() == 0
    assert await storage.get(new) is not None


async def test_a_restart_forgets_nothing(place, clock):
    name = await Storage(place, 60, 10**9).put(b"x", "png")
    again = Storage(place, 60, 10**9)
    assert await again.get(name) is not None
    clock.now += 61
    assert await again.sweep() == 1


async def test_the_oldest_make_room(place, clock):
    storage = Storage(place, 600, 100)
    names = []
    for _ in range(4):
        names.append(await storage.put(bytes(30), "png"))
        clock.now += 1
    present = [await storage.get(name) is not None for name in names]
    assert present == [False, True, True, True]


async def test_files_of_others_are_left_alone(tmp_path, clock):
    (tmp_path / "notes.txt").write_text("mine")
    storage = Storage(str(tmp_path), 60, 1)
    await storage.put(b"xx", "png")
    clock.now += 61
    await storage.sweep()
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("name", ["../secret", "a/b.png", "", "65517bc0-short.png", "65517bc0-" + "A" * 32 + ".gif"])
async def test_other_names_are_never_looked_up(tmp_path, name):
    storage = Storage(str(tmp_path / "images"), 60, 10**9)
    assert await storage.get(name) is None


def test_an_unknown_place_is_one_line_with_the_mend():
    with pytest.raises(ConfigError, match="DIPTYCH_STORAGE_URL=nowhere://x"):
        Storage("nowhere://x", 60, 1)
