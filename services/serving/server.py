"""uvicorn with a drain: the first SIGTERM finishes what runs, the second stops at once. Used by all three services."""

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import uvicorn

from services.wire.errors import ConfigError

log = logging.getLogger(__name__)

AT_ONCE = 3.0  # seconds that a second signal leaves to an orderly stop


def listen(host: str, port: int, setting: str) -> socket.socket:
    """A bound, listening socket. Raises ConfigError that names the port and the `setting` that moves it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
        bound.listen(2048)
    except OSError as error:
        bound.close()
        raise ConfigError(
            f"cannot listen on {host}:{port}: {error.strerror}; stop what uses it, or set {setting} to a free port",
            param=setting,
        ) from error
    return bound


def _end_soon(code: int) -> None:
    """End this process and its children if an orderly stop takes longer than AT_ONCE: an engine may hang in its own."""
    time.sleep(AT_ONCE)
    end_now(code)


def end_now(code: int) -> NoReturn:
    """End this process and all its children, without asking them or waiting for threads."""
    for child in _descendants(os.getpid()):
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _descendants(pid: int) -> list[int]:
    """Process ids below `pid`, from /proc (Linux); none where there is no such file."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # the thread ended between the two reads
            for child in map(int, task.read_text().split()):
                found += [child, *_descendants(child)]
    return found


class DrainingServer(uvicorn.Server):
    """drain: awaited after the first signal, before connections are closed; it has its own deadline."""

    def __init__(self, config: uvicorn.Config, drain: Callable[[], Awaitable[None]]) -> None:
        super().__init__(config)
        self._drain = drain
        self._draining: asyncio.Task[None] | None = None
        self.exit_code = 0

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._draining is None:
            log.info("signal %d: draining", sig)
            self._draining = asyncio.get_running_loop().create_task(self._drain_then_exit())
        else:
            log.warning("signal %d again: stopping at once", sig)
            self.should_exit = self.force_exit = True
            self.exit_code = self.exit_code or 128 + sig
            threading.Thread(target=_end_soon, args=(128 + sig,), name="last-resort", daemon=True).start()

    async def _drain_then_exit(self) -> None:
        try:
            await self._drain()
        finally:
            self.should_exit = True

    def fail(self, error: BaseException) -> None:
        """Stop the process with a non-zero exit code: the supervisor of the process must see this."""
        print(f"diptych: {error}", file=sys.stderr, flush=True)
        self.exit_code = 1
        self.should_exit = True


def configuration(app: Any) -> uvicorn.Config:
    """uvicorn's settings for all services: our own logging, no server header, bounded shutdown."""
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=10,
        h11_max_incomplete_event_size=64 * 1024,
    )
