"""Starting the processes under test, waiting for them, weighing them, and stopping them."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil

from tests.stack import die_with_parent

ROOT = Path(__file__).parent.parent
CACHE = Path(os.environ.get("DIPTYCH_CACHE") or ROOT / ".cache")
CHECKPOINT = CACHE / "tiny-glm-image"
LOGS = ROOT / "out" / "bench"
DIPTYCH = str(Path(sys.executable).parent / "diptych")
START_TIMEOUT = 400.0  # seconds


class BenchFailed(RuntimeError):
    """A process ended, or was not ready in time; the message names its log."""


@dataclass
class Stack:
    """Processes that serve one URL. ready_after: seconds from the first start until it answered that it is ready."""

    name: str
    url: str
    processes: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)
    commands: list[str] = field(default_factory=list)
    stages: dict[str, list[str]] = field(default_factory=dict)  # base URLs by stage
    ready_after: float = 0.0

    def start(self, name: str, argv: list[str], env: Mapping[str, str] | None = None) -> None:
        """Start one process in its own session; its output goes to out/bench."""
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that `stop` runs
        LOGS.mkdir(parents=True, exist_ok=True)
        with (LOGS / f"{self.name}-{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                argv,
                env=dict(os.environ) | dict(env or {}),
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        set_here = " ".join(f"{key}={value}" for key, value in (env or {}).items())
        shown = " ".join(argv).replace(str(ROOT) + "/", "")
        self.commands.append(f"{set_here} {shown}".strip().replace(str(ROOT) + "/", ""))

    def alive(self) -> None:
        """Raises BenchFailed if a process has ended."""
        for name, process in self.processes.items():
            if process.poll() is not None:
                raise BenchFailed(f"{name} ended with {process.returncode}: see {LOGS}/{self.name}-{name}.log")

    def pids(self) -> dict[str, list[psutil.Process]]:
        """Each process with all of its children."""
        found = {}
        for name, process in self.processes.items():
            top = psutil.Process(process.pid)
            found[name] = [top, *top.children(recursive=True)]
        return found

    def memory(self) -> dict[str, float]:
        """Peak resident GiB of each process with its children, shared pages counted in each."""
        return {name: sum(map(_peak, tree)) / 2**30 for name, tree in self.pids().items()}

    def cpu_seconds(self) -> dict[str, float]:
        """CPU seconds that each process and its children have used."""
        return {name: sum(map(_cpu, tree)) for name, tree in self.pids().items()}

    def stop(self) -> None:
        """SIGTERM, and SIGKILL to what is left after 30 s. Waits for all of them."""
        trees = [process for tree in self._remaining().values() for process in tree]
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        gone = time.monotonic() + 30
        for process in self.processes.values():
            try:
                process.wait(max(0.1, gone - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for left in psutil.wait_procs(trees, timeout=5)[1]:
            left.kill()

    def _remaining(self) -> dict[str, list[psutil.Process]]:
        try:
            return self.pids()
        except psutil.NoSuchProcess:
            return {}


def _peak(process: psutil.Process) -> int:
    try:
        for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) * 1024
    except OSError:  # it has just ended
        return 0
    return 0


def _cpu(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)


def free_ports(count: int) -> list[int]:
    """Ports on loopback that nobody listens on now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def wait_ready(stack: Stack, path: str, began: float) -> None:
    """Until `path` answers 200; sets ready_after. began: time.monotonic() of the first start."""
    while time.monotonic() < began + START_TIMEOUT:
        stack.alive()
        try:
            if httpx.get(stack.url + path, timeout=2).status_code == 200:
                stack.ready_after = time.monotonic() - began
                return
        except httpx.TransportError:
            pass
        time.sleep(0.05)
    raise BenchFailed(f"{stack.name} was not ready after {START_TIMEOUT:.0f} s: see {LOGS}/{stack.name}-*.log")


@contextmanager
def diptych(ar: int = 1, dit: int = 1, name: str = "diptych", **settings: str) -> Iterator[Stack]:
    """The gateway, `ar` AR services and `dit` DiT services, ready. settings: environment of all of them."""
    gateway, *rest = free_ports(1 + ar + dit)
    ars, dits = rest[:ar], rest[ar:]
    stack = Stack(name, f"http://127.0.0.1:{gateway}")
    common = {"DIPTYCH_CACHE": str(CACHE), "MODEL": str(CHECKPOINT)} | settings
    stack.stages = {
        stage: [f"http://127.0.0.1:{port}" for port in ports] for stage, ports in (("ar", ars), ("dit", dits))
    }
    urls = {f"{stage.upper()}_URLS": ",".join(found) for stage, found in stack.stages.items()}
    began = time.monotonic()
    try:
        for at, port in enumerate(ars):
            stack.start(f"ar{at}", [DIPTYCH, "ar"], common | {"DIPTYCH_AR_PORT": str(port)})
        for at, port in enumerate(dits):
            stack.start(f"dit{at}", [DIPTYCH, "dit"], common | {"DIPTYCH_DIT_PORT": str(port)})
        of_gateway = {"DIPTYCH_GATEWAY_PORT": str(gateway)} | urls
        stack.start("gateway", [DIPTYCH, "gateway"], common | of_gateway)
        wait_ready(stack, "/ready", began)
        yield stack
    finally:
        stack.stop()
