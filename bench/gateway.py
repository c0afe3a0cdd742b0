"""The gateway beside LiteLLM's proxy and a minimal pass-through: the same images through each. `make bench-gateway`.

Stages of zero delay answer with one noisy 1024x1024 PNG. Prints, for each: added latency at 1 client (over the stages'
own Images API), requests a second at 32 clients, the 99th percentile of a health probe under that load, and peak
memory; writes bench/results/gateway.json. LiteLLM is installed into .cache/litellm, once; without it, its rows are
missing and the table says so.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from bench import compare, results
from bench.processes import CACHE, DIPTYCH, Stack, free_ports, wait_ready

BODY = json.dumps({"model": "glm-image", "prompt": "a red apple", "size": "1024x1024"}).encode()
WARM_UP = 20  # requests
ALONE = 200  # requests at 1 client
CROWD = 32  # clients
PROBE_EVERY = 0.02  # seconds
LITELLM = CACHE / "litellm"


class Connection:
    """One keep-alive HTTP/1.1 connection that does as little as a client can: the server is what is measured."""

    def __init__(self, url: str) -> None:
        self.host, port = url.removeprefix("http://").split(":")
        self.port = int(port)

    async def __aenter__(self) -> "Connection":
        self.reader, self.writer = await asyncio.open_connection(self.host, self.port, limit=4 * 2**20)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()

    async def call(self, method: str, path: str, body: bytes = b"") -> int:
        """The length of the reply's body. Raises RuntimeError if it is not a 200."""
        head = f"{method} {path} HTTP/1.1\r\nhost: {self.host}\r\nauthorization: Bearer none\r\n"
        self.writer.write(
            f"{head}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body
        )
        answer = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        length = int(answer.partition("content-length:")[2].partition("\r\n")[0])
        text = await self.reader.readexactly(length)
        if " 200 " not in answer.partition("\r\n")[0]:
            raise RuntimeError(f"{answer.splitlines()[0]}: {text[:300]!r}")
        return length


@dataclass(frozen=True)
class Target:
    """What is measured. make: starts it in front of the stages' URL. probe: its health path."""

    name: str
    make: Callable[[str], AbstractContextManager[Stack]]
    probe: str = "/health"


async def alone(url: str) -> float:
    """Median seconds of a request at 1 client."""
    seconds = []
    async with Connection(url) as connection:
        for number in range(WARM_UP + ALONE):
            began = time.perf_counter()
            await connection.call("POST", "/v1/images/generations", BODY)
            if number >= WARM_UP:
                seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


async def crowd(url: str, probe: str, seconds: float) -> dict[str, float]:
    """Requests a second at 32 clients, their median latency, and a health probe's percentiles meanwhile."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + seconds
    latencies: list[float] = []
    probes: list[float] = []
    received = 0

    async def client() -> None:
        nonlocal received
        async with Connection(url) as connection:
            while (began := loop.time()) < ends:
                received += await connection.call("POST", "/v1/images/generations", BODY)
                latencies.append(loop.time() - began)

    async def prober() -> None:
        async with Connection(url) as connection:
            while (began := loop.time()) < ends:
                await connection.call("GET", probe)
                probes.append(loop.time() - began)
                await asyncio.sleep(PROBE_EVERY)

    began = loop.time()
    await asyncio.gather(prober(), *(client() for _ in range(CROWD)))
    wall = loop.time() - began
    cuts = statistics.quantiles(probes, n=100)
    return {
        "requests_a_second": len(latencies) / wall,
        "megabytes_a_second": received / wall / 1e6,
        "p50": statistics.median(latencies),
        "probe_p50": cuts[49],
        "probe_p99": cuts[98],
        "probes": len(probes),
    }


@contextmanager
def stages() -> Iterator[Stack]:
    """The stub that answers for both stages."""
    [port] = free_ports(1)
    with _started(Stack("stub", f"http://127.0.0.1:{port}")) as stack:
        stack.start("stages", [sys.executable, "-m", "bench.gateway_stubs", "stages", str(port)])
        wait_ready(stack, "/ar/v1/info", time.monotonic())
        yield stack


@contextmanager
def _started(stack: Stack) -> Iterator[Stack]:
    try:
        yield stack
    finally:
        stack.stop()


@contextmanager
def gateway(upstream: str) -> Iterator[Stack]:
    """Diptych's gateway."""
    [port] = free_ports(1)
    environ = {"AR_URLS": f"{upstream}/ar", "DIT_URLS": f"{upstream}/dit", "DIPTYCH_GATEWAY_PORT": str(port)}
    environ |= {"DIPTYCH_PROBE": "false", "DIPTYCH_STORAGE_URL": "", "DIPTYCH_LOG_LEVEL": "warning"}
    with _started(Stack("gateway", f"http://127.0.0.1:{port}")) as stack:
        stack.start("gateway", [DIPTYCH, "gateway"], environ)
        wait_ready(stack, "/ready", time.monotonic())
        yield stack


@contextmanager
def passthrough(upstream: str) -> Iterator[Stack]:
    """The minimal FastAPI pass-through."""
    [port] = free_ports(1)
    with _started(Stack("passthrough", f"http://127.0.0.1:{port}")) as stack:
        stack.start("passthrough", [sys.executable, "-m", "bench.gateway_stubs", "passthrough", str(port), upstream])
        wait_ready(stack, "/health", time.monotonic())
        yield stack


@contextmanager
def litellm(upstream: str) -> Iterator[Stack]:
    """LiteLLM's proxy, one worker, as its documentation starts it."""
    [port] = free_ports(1)
    config = LITELLM / "bench.yaml"
    parameters = {"model": "openai/glm-image", "api_base": f"{upstream}/v1", "api_key": "none"}
    config.write_text(json.dumps({"model_list": [{"model_name": "glm-image", "litellm_params": parameters}]}))
    environ = {"LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true", "LITELLM_TELEMETRY": "False"}
    environ |= {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR"}
    with _started(Stack("litellm", f"http://127.0.0.1:{port}")) as stack:
        program = [str(LITELLM / "bin/litellm"), "--config", str(config), "--port", str(port), "--host", "127.0.0.1"]
        stack.start("litellm", program, environ)
        wait_ready(stack, "/health/liveliness", time.monotonic())
        yield stack


def install_litellm() -> str:
    """Its version, or "" if it is not to be had."""
    python = LITELLM / "bin/python"
    try:
        if not (LITELLM / "bin/litellm").exists():
            subprocess.run([sys.executable, "-m", "venv", str(LITELLM)], check=True)
            subprocess.run([str(python), "-m", "pip", "install", "-q", "litellm[proxy]"], check=True)
        code = "import importlib.metadata as m; print(m.version('litellm'))"
        return subprocess.run([str(python), "-c", code], check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"litellm is not to be had: {error}", file=sys.stderr)
        return ""


def measure(target: Target, upstream: str, direct: float, seconds: float) -> dict[str, Any]:
    """One target's row."""
    with target.make(upstream) as stack:
        latency = asyncio.run(alone(stack.url))
        asyncio.run(crowd(stack.url, target.probe, 1))
        busy = asyncio.run(crowd(stack.url, target.probe, seconds))
        memory = sum(stack.memory().values()) * 1024
        row = {"name": target.name, "p50_alone": latency, "added": latency - direct, "memory_mib": memory, **busy}
        return row | {"command": stack.commands[-1]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10, help="of load at 32 clients, each")
    parser.add_argument("--rounds", type=int, default=3, help="the median of each figure is shown")
    options = parser.parse_args()
    targets = [Target("diptych gateway", gateway), Target("minimal pass-through", passthrough)]
    version = install_litellm()
    if version:
        targets.append(Target(f"litellm {version}", litellm, "/health/liveliness"))
    rounds: dict[str, list[dict[str, Any]]] = {target.name: [] for target in targets}
    with stages() as upstream:
        direct = asyncio.run(alone(upstream.url))
        for _ in range(options.rounds):
            for target in targets:
                rounds[target.name].append(measure(target, upstream.url, direct, options.seconds))
                print(compare.gateways(rounds[target.name][-1:]), file=sys.stderr)
    rows = [_middle(found) for found in rounds.values()]
    print(compare.gateways(rows))
    print(f"direct to the stub: {direct * 1000:.2f} ms")
    path = results.write("gateway", {"direct_p50": direct, "rows": rows, "rounds": rounds, "litellm": version})
    print(path)


def _middle(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Of each figure, the median of the rounds."""
    return {
        name: statistics.median(row[name] for row in found) if isinstance(value, int | float) else value
        for name, value in found[0].items()
    }


if __name__ == "__main__":
    main()
