"""Starts the real services the way a user does (launch/launch.sh), for tests and benches."""

import ctypes
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

ROOT = Path(__file__).resolve().parent.parent
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
CHECKPOINT = Path(os.environ.get("DIPTYCH_CACHE", ROOT / ".cache")) / "tiny-glm-image"


def die_with_parent() -> None:
    """For `preexec_fn`: this process gets SIGTERM when the test run ends in whatever way, kill -9 included."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [sock.getsockname()[1] for sock in sockets]
    for sock in sockets:
        sock.close()
    return ports


@dataclass(frozen=True)
class Stack:
    """Running services. log: what all of them printed."""

    gateway: str
    ar: str
    dit: str
    log: Path
    process: subprocess.Popen[bytes]

    def metric(self, service: str, name: str) -> float:
        """The sum of a metric's samples in the service at base URL `service`."""
        lines = httpx.get(f"{service}/metrics", timeout=10).text.splitlines()
        found = [line for line in lines if line.split("{")[0].split(" ")[0] == name]
        if not found:
            raise LookupError(f"{service}/metrics has no {name}")
        return sum(float(line.rsplit(" ", 1)[1]) for line in found)


@contextmanager
def launched(log: Path, environ: Mapping[str, str] | None = None, *, start_timeout: float = 240) -> Iterator[Stack]:
    """The three services on free ports, ready; stopped and gone afterwards."""
    gateway, ar, dit = free_ports(3)
    ports = {"DIPTYCH_GATEWAY_PORT": gateway, "DIPTYCH_AR_PORT": ar, "DIPTYCH_DIT_PORT": dit}
    variables = os.environ | {name: str(port) for name, port in ports.items()} | {"ROLE": "all"} | dict(environ or {})
    with log.open("wb") as out:
        process = subprocess.Popen(
            [ROOT / "launch/launch.sh"],
            env=variables,
            stdout=out,
            stderr=out,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
    url = "http://127.0.0.1:{}"
    stack = Stack(url.format(gateway), url.format(ar), url.format(dit), log, process)
    try:
        _wait_ready(stack, start_timeout)
        yield stack
    finally:
        stop(process)


def _wait_ready(stack: Stack, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if stack.process.poll() is not None:
            raise RuntimeError(f"the services ended with {stack.process.returncode}:\n{stack.log.read_text()[-4000:]}")
        try:
            if httpx.get(f"{stack.gateway}/ready", timeout=5).status_code == httpx.codes.OK:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.2)
    raise TimeoutError(f"the services were not ready within {timeout:g} s:\n{stack.log.read_text()[-4000:]}")


def stop(process: "subprocess.Popen[bytes]", timeout: float = 60) -> None:
    """SIGTERM, then SIGKILL to what is left of the process."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(timeout)
