"""Clients that ask for images over HTTP, and what they saw."""

import asyncio
import base64
import math
import random
import statistics
import time
from dataclasses import asdict, dataclass, field
from typing import Any

import httpx
import psutil

TIMEOUT = 300.0  # seconds of one image


@dataclass
class Seen:
    """What the clients saw. seconds: of each image, sorted. others: share of the machine that other work took."""

    clients: int
    images: int
    wall: float
    seconds: list[float]
    errors: dict[str, int] = field(default_factory=dict)
    image_bytes: int = 0
    others: float = 0.0

    @property
    def rate(self) -> float:
        """Images a second."""
        return len(self.seconds) / self.wall

    def at(self, share: float) -> float:
        """The latency that `share` of the images stayed under (nearest rank)."""
        return self.seconds[max(0, math.ceil(share * len(self.seconds)) - 1)] if self.seconds else math.nan

    def row(self) -> dict[str, Any]:
        """JSON-ready."""
        shown = {"p50": self.at(0.5), "p95": self.at(0.95), "p99": self.at(0.99)}
        mean = statistics.fmean(self.seconds) if self.seconds else math.nan
        return asdict(self) | {"rate": self.rate, "mean": mean} | shown


@dataclass(frozen=True)
class Ask:
    """One kind of request. extra: fields of the body besides these."""

    size: str = "256x256"
    steps: int = 8
    extra: dict[str, Any] = field(default_factory=dict)

    def body(self, number: int) -> dict[str, Any]:
        prompt = f"apple number {number} on a table"
        return {"prompt": prompt, "size": self.size, "num_inference_steps": self.steps, "seed": number} | self.extra


class _Clients:
    def __init__(self, url: str, ask: Ask, images: int) -> None:
        self.url = f"{url}/v1/images/generations"
        self.ask = ask
        self.numbers = iter(range(images))
        self.seconds: list[float] = []
        self.errors: dict[str, int] = {}
        self.bytes = 0

    async def one(self, client: httpx.AsyncClient, number: int) -> None:
        began = time.perf_counter()
        try:
            reply = await client.post(self.url, json=self.ask.body(number))
        except httpx.TransportError as error:
            self.count(type(error).__name__)
            return
        if reply.status_code != 200:
            self.count(str(reply.status_code))
            return
        self.seconds.append(time.perf_counter() - began)
        self.bytes += sum(len(base64.b64decode(each["b64_json"])) for each in reply.json()["data"])

    def count(self, what: str) -> None:
        self.errors[what] = self.errors.get(what, 0) + 1

    def seen(self, clients: int, wall: float, others: float) -> Seen:
        done = len(self.seconds)
        return Seen(clients, done, wall, sorted(self.seconds), self.errors, self.bytes // max(1, done), others)


async def closed(url: str, clients: int, images: int, ask: Ask, ours: list[int] | None = None) -> Seen:
    """`clients` that each ask again as soon as they have an image. ours: pids that are not "others"."""
    state = _Clients(url, ask, images)

    async def client(http: httpx.AsyncClient) -> None:
        for number in state.numbers:
            await state.one(http, number)

    limits = httpx.Limits(max_connections=clients + 1)
    async with httpx.AsyncClient(timeout=TIMEOUT, limits=limits) as http:
        meter, began = Meter(ours), time.perf_counter()
        await asyncio.gather(*(client(http) for _ in range(clients)))
        return state.seen(clients, time.perf_counter() - began, meter.others())


async def open_loop(url: str, rate: float, images: int, ask: Ask, seed: int, ours: list[int] | None = None) -> Seen:
    """Poisson arrivals at `rate` a second, whether or not earlier images are done."""
    state, rng = _Clients(url, ask, images), random.Random(seed)
    async with httpx.AsyncClient(timeout=TIMEOUT, limits=httpx.Limits(max_connections=images + 1)) as http:
        meter, began = Meter(ours), time.perf_counter()
        at, tasks = began, []
        for number in state.numbers:
            at += rng.expovariate(rate)
            await asyncio.sleep(max(0.0, at - time.perf_counter()))
            tasks.append(asyncio.create_task(state.one(http, number)))
        await asyncio.gather(*tasks)
        return state.seen(0, time.perf_counter() - began, meter.others())


class Meter:
    """CPU of the machine that neither this process nor `ours` used: other work makes a bench untrustworthy."""

    def __init__(self, ours: list[int] | None) -> None:
        self._ours = [psutil.Process(pid) for pid in ours or []]
        self._began = time.perf_counter()
        self._all, self._own = self._machine(), self._mine()

    def others(self) -> float:
        """Their share of all cores since the start, 0..1."""
        spent = self._machine() - self._all - (self._mine() - self._own)
        wall = time.perf_counter() - self._began
        return max(0.0, spent / (wall * (psutil.cpu_count() or 1)))

    @staticmethod
    def _machine() -> float:
        times = psutil.cpu_times()
        return float(times.user + times.nice + times.system + times.irq + times.softirq)

    def _mine(self) -> float:
        total = 0.0
        for process in [psutil.Process(), *self._ours]:
            for each in [process, *process.children(recursive=True)] if process.is_running() else []:
                try:
                    spent = each.cpu_times()
                except psutil.NoSuchProcess:
                    continue
                total += spent.user + spent.system
        return total
