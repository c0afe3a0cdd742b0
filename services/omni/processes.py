"""The processes that an engine starts, so that stopping it leaves none behind."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psutil

logger = logging.getLogger(__name__)

GRACE_SECONDS = 5.0  # from SIGTERM to SIGKILL
SHARED = (
    "multiprocessing.resource_tracker",
    "multiprocessing.forkserver",
)  # Python's own, one a process: not ours to stop


@dataclass(frozen=True, slots=True)
class NewChildren:
    """Descendants of this process that were not there at `before`."""

    before: frozenset[psutil.Process]

    def found(self) -> list[psutil.Process]:
        """The new ones that are alive now."""
        return [child for child in _descendants() if child not in self.before and not _is_shared(child)]


@contextmanager
def new_children() -> Iterator[NewChildren]:
    """Notes which descendants exist on entry."""
    yield NewChildren(frozenset(_descendants()))


def stop_processes(processes: list[psutil.Process]) -> None:
    """Terminate, then kill, those of `processes` (and their descendants) that still live; returns when all are gone."""
    living = [p for p in processes if p.is_running()]
    family = {member for process in living for member in _family(process)}
    for process in family:
        with _tolerant():
            process.terminate()
    _, stubborn = psutil.wait_procs(family, timeout=GRACE_SECONDS)
    for process in stubborn:
        logger.warning("process %d ignored SIGTERM; killing it", process.pid)
        with _tolerant():
            process.kill()
    psutil.wait_procs(stubborn, timeout=GRACE_SECONDS)


def _descendants() -> list[psutil.Process]:
    return list(psutil.Process().children(recursive=True))


def _family(process: psutil.Process) -> list[psutil.Process]:
    try:
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _is_shared(process: psutil.Process) -> bool:
    try:
        command = " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return False
    return any(name in command for name in SHARED)


@contextmanager
def _tolerant() -> Iterator[None]:
    try:
        yield
    except psutil.NoSuchProcess:
        return
