"""Real processes to hurt: gateways, AR and DiT services on the simulator, each started as a container starts it."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import psutil

from tests.chaos.services.networks import Networks
from tests.stack import die_with_parent, free_ports

QUICK = {
    "DIPTYCH_ENGINE": "sim",
    "DIPTYCH_DEADLINE": "12",
    "DIPTYCH_LEASE": "12",
    "DIPTYCH_POLL_INTERVAL": "0.25",
    "DIPTYCH_POLL_TIMEOUT": "2",
    "DIPTYCH_LOST_AFTER": "2",
    "DIPTYCH_HEALTH_INTERVAL": "0.1",
    "DIPTYCH_STEP_TIMEOUT": "5",
    "DIPTYCH_DRAIN_TIMEOUT": "20",
    "DIPTYCH_OUTAGE_GRACE": "3",
    "DIPTYCH_HANDOFF_TRANSFER_DEADLINE": "3",
    "DIPTYCH_SIM_AR_SECONDS": "0.05",
    "DIPTYCH_SIM_STEP_SECONDS": "0.005",
    "OMP_NUM_THREADS": "1",
}


class Service:
    """One process. name: `ar0`, `dit1`, `gateway`; extra: environment on top of the fleet's."""

    def __init__(self, name: str, url: str, environ: Mapping[str, str], log: Path, *, prefix: list[str]) -> None:
        self.name = name
        self.url = url
        self.log = log
        self._environ = dict(environ)
        self._prefix = prefix
        self._starting = threading.Lock()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def role(self) -> str:
        return self.name.rstrip("0123456789")

    def start(self) -> None:
        """Start it if it does not run; it is not ready when this returns."""
        command = [*self._prefix, str(Path(sys.executable).parent / "diptych"), self.role]
        with self._starting, self.log.open("ab") as out:
            if self.alive:
                return
            self.process = subprocess.Popen(
                command, env=self._environ, stdout=out, stderr=out, start_new_session=True, preexec_fn=die_with_parent
            )

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def send(self, sig: int) -> None:
        """A signal to the service's own process, not to its children."""
        os.kill(self.pid, sig)

    def kill(self) -> None:
        """kill -9, and reap."""
        self.send(signal.SIGKILL)
        assert self.process is not None
        self.process.wait(10)

    def terminate(self, timeout: float = 40) -> int:
        """SIGTERM; the exit code."""
        assert self.process is not None
        self.send(signal.SIGTERM)
        return self.process.wait(timeout)

    def core(self) -> psutil.Process:
        """The engine core: a process of its own, below the service."""
        (child,) = psutil.Process(self.pid).children()
        return child

    def info(self) -> dict[str, Any]:
        """`/v1/info`; raises httpx.HTTPError."""
        reply = httpx.get(f"{self.url}/v1/info", timeout=5)
        return reply.raise_for_status().json()

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that carry these labels; 0 if there are none."""
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        lines = httpx.get(f"{self.url}/metrics", timeout=5).text.splitlines()
        found = [line for line in lines if line.split("{")[0].split(" ")[0] == name]
        return sum(float(line.rsplit(" ", 1)[1]) for line in found if all(text in line for text in wanted))

    def descriptors(self) -> int:
        """Open file descriptors."""
        return psutil.Process(self.pid).num_fds()

    def ready(self) -> bool:
        """Whether `/ready` says yes."""
        try:
            return httpx.get(f"{self.url}/ready", timeout=2).status_code == 200
        except httpx.HTTPError:
            return False


def eventually(true: Callable[[], object], within: float, what: str | Callable[[], str]) -> None:
    """Wait until `true()`. Raises TimeoutError that says what did not come true."""
    deadline = time.monotonic() + within
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {within:g} s: {what() if callable(what) else what}")
        time.sleep(0.05)


class Fleet:
    """`ars` AR services, `dits` DiT services and one gateway that knows them all.

    networks: puts each stage service into its namespace.
    """

    def __init__(
        self,
        folder: Path,
        environ: Mapping[str, str],
        *,
        ars: int = 2,
        dits: int = 2,
        networks: Networks | None = None,
    ) -> None:
        self.services: dict[str, Service] = {}
        self._folder = folder
        self._environ = os.environ | QUICK | dict(environ)
        names = [*(f"ar{i}" for i in range(ars)), *(f"dit{i}" for i in range(dits))]
        ports = free_ports(len(names) + 1)
        for name, port in zip(names, ports, strict=False):
            if networks is None:
                self._add(name, "127.0.0.1", port)
            else:
                prefix = ["ip", "netns", "exec", f"d-{name}"]
                self._add(name, networks.host(name), port, prefix, **networks.environ(name))
        self._add("gateway", "127.0.0.1", ports[-1])

    def _add(self, name: str, host: str, port: int, prefix: Sequence[str] = (), **extra: str) -> Service:
        role = name.rstrip("0123456789").upper()
        environ = self._environ | {f"DIPTYCH_{role}_HOST": host, f"DIPTYCH_{role}_PORT": str(port)} | extra
        if role == "GATEWAY":
            for stage in ("ar", "dit"):
                environ[f"DIPTYCH_{stage.upper()}_URLS"] = ",".join(s.url for s in self.of(stage))
        service = Service(name, f"http://{host}:{port}", environ, self._folder / f"{name}.log", prefix=list(prefix))
        self.services[name] = service
        return service

    def extra_gateway(self, name: str, **environ: str) -> Service:
        """Another gateway in front of the same stages, started and ready."""
        service = self._add(name, "127.0.0.1", free_ports(1)[0], **environ)
        service.start()
        eventually(service.ready, 60, f"{name} is ready")
        return service

    def __getitem__(self, name: str) -> Service:
        return self.services[name]

    def of(self, role: str) -> list[Service]:
        """All services of one role."""
        return [service for service in self.services.values() if service.role == role]

    @property
    def stages(self) -> list[Service]:
        return self.of("ar") + self.of("dit")

    def up(self, within: float = 90) -> None:
        """Start what is not running, and wait until the gateway has every replica."""
        for service in self.services.values():
            service.start()
        eventually(lambda: all(service.ready() for service in self.services.values()), within, self.why)
        gateway = self["gateway"]
        wanted = len(self.stages)
        eventually(lambda: gateway.metric("diptych_replica_state", state="ready") == wanted, within, self.why)

    def why(self) -> str:
        """The end of each log."""
        logs = {name: service.log for name, service in self.services.items() if service.log.exists()}
        return "\n".join(f"--- {name}\n{log.read_text(errors='replace')[-1500:]}" for name, log in logs.items())

    def slots(self) -> int:
        """Leased slots in all AR services."""
        return int(sum(service.info()["handoff"]["slots_live"] for service in self.of("ar")))

    def jobs(self) -> int:
        """Jobs in all stage services and gateways."""
        stages = sum(service.info().get("running", 0) + service.info().get("waiting", 0) for service in self.stages)
        gateways = [s.metric("diptych_queue_jobs") + s.metric("diptych_active_jobs") for s in self.of("gateway")]
        return int(stages + sum(gateways))

    def down(self) -> None:
        """End everything, without asking."""
        for service in self.services.values():
            if service.alive:
                assert service.process is not None
                os.killpg(service.pid, signal.SIGKILL)
                service.process.wait(10)
