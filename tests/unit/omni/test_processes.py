"""Stopping an engine's processes: all of them, and nobody else's."""

import subprocess
import sys

import psutil
import pytest

from services.omni.processes import new_children, stop_processes

STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
)
PARENT = (
    "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); "
    "print('up', flush=True); p.wait()"
)


def spawn(code: str) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    return process


def test_only_what_is_new_goes_with_its_children(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.omni.processes.GRACE_SECONDS", 1.0)
    older = spawn(STUBBORN)
    try:
        with new_children() as children:
            family, stubborn = spawn(PARENT), spawn(STUBBORN)
            grandchild = psutil.Process(family.pid).children()[0]
            found = children.found()
        assert {p.pid for p in found} == {family.pid, stubborn.pid, grandchild.pid}
        stop_processes(found)
        assert not any(psutil.pid_exists(pid) for pid in (family.pid, stubborn.pid, grandchild.pid))
        assert older.poll() is None
    finally:
        older.kill()
        older.wait()
