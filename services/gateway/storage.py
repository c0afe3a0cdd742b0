"""Stored results for `response_format: url`, in any place that fsspec can write to.

A name says when it ends and is otherwise random (192 bits): no index is needed, a restart forgets nothing, and nobody
can guess one. Local folders are the default; `s3://bucket/prefix` needs the s3fs package.
"""

import asyncio
import logging
import re
import secrets
import time
from dataclasses import dataclass

import fsspec

from services.wire.errors import ConfigError

log = logging.getLogger(__name__)

NAME = re.compile(r"([0-9a-f]{8,12})-([A-Za-z0-9_-]{32})\.(png|jpeg|webp)")
CONTENT_TYPES = {"png": "image/png", "jpeg": "image/jpeg", "webp": "image/webp"}
SWEEP_EVERY = 60.0  # seconds


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored image. seconds_left: until it ends."""

    image: bytes
    content_type: str
    seconds_left: int


class Storage:
    """Keeps images for `seconds`, at most `max_bytes` of them together; the oldest make room."""

    def __init__(self, url: str, seconds: int, max_bytes: int) -> None:
        """Raises ConfigError if fsspec knows no such place."""
        try:
            self._files, self._root = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            mend = "install what it needs (s3:// needs s3fs), or name a local folder"
            raise ConfigError(f"DIPTYCH_STORAGE_URL={url}: {error}; {mend}", param="DIPTYCH_STORAGE_URL") from error
        self._seconds = seconds
        self._max_bytes = max_bytes
        self._room = asyncio.Lock()
        self._held: int | None = None  # bytes, as of the last look plus what was written since

    async def put(self, image: bytes, extension: str) -> str:
        """Store `image`; its name. Raises OSError."""
        ends = int(time.time()) + self._seconds
        name = f"{ends:08x}-{secrets.token_urlsafe(24)}.{extension}"
        async with self._room:
            await asyncio.to_thread(self._write, name, image)
        return name

    async def get(self, name: str) -> Stored | None:
        """The image of that name, or None if there is none (any more). Raises OSError."""
        match = NAME.fullmatch(name)
        left = int(match[1], 16) - int(time.time()) if match else 0
        if match is None or left <= 0:
            return None
        try:
            image = await asyncio.to_thread(self._files.cat_file, f"{self._root}/{name}")
        except FileNotFoundError:
            return None
        return Stored(image, CONTENT_TYPES[match[3]], left)

    async def sweep(self) -> int:
        """Delete what has ended; how many. Raises OSError."""
        async with self._room:
            return await asyncio.to_thread(self._make_room, 0)

    async def keep_sweeping(self) -> None:
        """Sweep for ever."""
        while True:
            try:
                await self.sweep()
            except OSError as error:
                log.warning("the sweep of stored images failed: %s", error)
            await asyncio.sleep(SWEEP_EVERY)

    def _write(self, name: str, image: bytes) -> None:
        if self._held is None or self._held + len(image) > self._max_bytes:
            self._make_room(len(image))
        self._files.makedirs(self._root, exist_ok=True)
        self._files.pipe_file(f"{self._root}/{name}", image)
        self._held = (self._held or 0) + len(image)

    def _make_room(self, wanted: int) -> int:
        """Delete what has ended, then the oldest until `wanted` bytes fit."""
        now = int(time.time())
        deleted = 0
        held = self._listed()
        total = sum(size for _, size in held)
        for name, size in held:
            if int(name.partition("-")[0], 16) > now and total + wanted <= self._max_bytes:
                break
            self._files.rm_file(f"{self._root}/{name}")
            total -= size
            deleted += 1
        self._held = total
        return deleted

    def _listed(self) -> list[tuple[str, int]]:
        """(name, bytes) of our images, soonest end first."""
        try:
            entries = self._files.ls(self._root, detail=True, refresh=True)
        except FileNotFoundError:
            return []
        named = ((str(entry["name"]).rpartition("/")[2], int(entry["size"] or 0)) for entry in entries)
        return sorted((name, size) for name, size in named if NAME.fullmatch(name))
