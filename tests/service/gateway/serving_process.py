"""The gateway with a fake painter as a process of its own, for tests of memory and of many calls."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from services.gateway.app import create_app
from services.gateway.protocol import bounded
from services.gateway.settings import GatewaySettings
from services.serving.server import DrainingServer, configuration, listen
from tests.service.gateway.fakes import FakePainter
from tests.stack import free_ports

ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class ServedProcess:
    """A running gateway."""

    url: str
    pid: int
    log: Path


@contextmanager
def served_process(folder: Path, **environ: str) -> Iterator[ServedProcess]:
    """The process, answering; gone afterwards. `environ`: DIPTYCH_ variables."""
    [port] = free_ports(1)
    variables = {"DIPTYCH_GATEWAY_PORT": str(port), "DIPTYCH_STORAGE_URL": str(folder / "images"), **environ}
    log = folder / "gateway.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.service.gateway.serving_process"],
            cwd=ROOT,
            env=os.environ | variables,
            stdout=out,
            stderr=out,
        )
    try:
        _wait(process, f"http://127.0.0.1:{port}", log)
        yield ServedProcess(f"http://127.0.0.1:{port}", process.pid, log)
    finally:
        process.terminate()
        process.wait(30)


def _wait(process: "subprocess.Popen[bytes]", url: str, log: Path) -> None:
    ends = time.monotonic() + 30
    while time.monotonic() < ends:
        if process.poll() is not None:
            break
        try:
            httpx.get(f"{url}/live", timeout=5)
        except httpx.TransportError:
            time.sleep(0.05)
        else:
            return
    raise RuntimeError(f"the gateway did not start:\n{log.read_text()[-4000:]}")


def main() -> None:
    settings = GatewaySettings()
    bound = listen("127.0.0.1", settings.gateway_port, "DIPTYCH_GATEWAY_PORT")

    async def no_drain() -> None:
        return

    DrainingServer(bounded(configuration(create_app(settings, FakePainter()))), no_drain).run(sockets=[bound])


if __name__ == "__main__":
    main()
