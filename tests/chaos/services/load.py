"""Load that never stops while things break, and remembers how each request ended."""

import asyncio
import base64
import functools
import io
import json
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np
import torch
from PIL import Image

from services.serving.engine import PRIOR_TOKENS, PriorJob, RenderJob
from services.sim.prior import tokens_for
from services.sim.render import mosaic

SIDE = 128
SLACK = 8.0  # seconds that a crowded machine may add to a deadline
TYPED = {  # what an accepted request may end in, by status
    500: {"engine_failed", "server_error", "invalid_priors"},
    502: {"protocol_error"},
    503: {"server_is_overloaded", "stage_unavailable", "engine_died", "peer_gone", "lease_expired", "arena_full"},
    504: {"timeout", "transfer_timeout"},
}


@functools.cache
def right_pixels(prompt: str, seed: int, side: int = SIDE) -> bytes:
    """The one right image of the simulator, as raw RGB."""
    tokens = tokens_for(PriorJob(request_id="", prompt=prompt, width=side, height=side, seed=seed))
    job = RenderJob(request_id="", prompt=prompt, width=side, height=side, steps=1, guidance=1, seed=seed)
    return np.ascontiguousarray(mosaic(job, {PRIOR_TOKENS: torch.from_numpy(tokens)})).tobytes()


def is_right(prompt: str, datum: dict[str, object], side: int = SIDE) -> bool:
    """Whether a reply's image is the one that its prompt and seed give."""
    image = Image.open(io.BytesIO(base64.b64decode(str(datum["b64_json"]))))
    return image.convert("RGB").tobytes() == right_pixels(prompt, int(str(datum["seed"])), side)


@dataclass
class Tally:
    """How requests ended: `ok`, `wrong` (another image), `twice`, `refused`, `untyped ...`, or an error's code."""

    ends: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    said: dict[str, str] = field(default_factory=dict)  # the last message of each error's code
    finished: list[float] = field(default_factory=list)  # time.monotonic() of each `ok`

    def rate(self, seconds: float) -> float:
        """Right images a second, over the last `seconds`."""
        now = time.monotonic()
        return sum(moment > now - seconds for moment in self.finished) / seconds

    def add(self, end: str, seconds: float) -> None:
        self.ends[end] += 1
        self.slowest = max(self.slowest, seconds)
        if end == "ok":
            self.finished.append(time.monotonic())

    @property
    def failed(self) -> dict[str, int]:
        return {end: count for end, count in self.ends.items() if end != "ok"}

    def check(self, deadline: float) -> None:
        """Each request ended right or in a typed error, once, and within its deadline (and some slack)."""
        bad = {end: n for end, n in self.ends.items() if end in ("wrong", "twice") or end.startswith("untyped")}
        assert not bad, f"{bad} of {dict(self.ends)}"
        assert self.slowest < deadline + SLACK, f"a request took {self.slowest:.1f} s"
        assert self.ends["ok"], f"no request succeeded: {dict(self.ends)}"


def _typed(status: int, body: bytes) -> str:
    try:
        error = json.loads(body)["error"]
        code = error["code"]
        if set(error) == {"message", "type", "param", "code"} and code in TYPED.get(status, set()):
            return str(code)
    except (ValueError, KeyError, TypeError):
        pass
    return f"untyped {status} {body[:120]!r}"


class Load:
    """`workers` clients that ask again and again, every other one for a stream."""

    def __init__(self, url: str, *, workers: int = 6, steps: int = 4) -> None:
        self.tally = Tally()
        self.limit: int | None = None
        self._url = url
        self._workers = workers
        self._steps = steps
        self._asked = 0
        self._over = asyncio.Event()
        self._client = httpx.AsyncClient(base_url=url, timeout=240, limits=httpx.Limits(max_connections=256))

    def body(self, number: int) -> dict[str, Any]:
        """The request of this number."""
        return {"prompt": f"fox number {number}", "size": f"{SIDE}x{SIDE}", "num_inference_steps": self._steps}

    def right(self, body: dict[str, Any], datum: dict[str, object]) -> bool:
        """Whether `datum` is the image that `body` asks for."""
        return is_right(body["prompt"], datum)

    async def ask(self, *, stream: bool = False) -> str:
        """One request; how it ended."""
        self._asked += 1
        body = self.body(self._asked) | {"stream": stream}
        began = time.monotonic()
        try:
            reply = await self._client.post("/v1/images/generations", json=body)
            end = self._end(body, reply, stream)
        except httpx.TransportError as error:
            end = f"broken {type(error).__name__}"
        self.tally.add(end, time.monotonic() - began)
        return end

    def _end(self, body: dict[str, Any], reply: httpx.Response, stream: bool) -> str:
        if reply.status_code != 200:
            code = _typed(reply.status_code, reply.content)
            self.tally.said[code] = reply.text
            return code
        if not stream:
            return "ok" if self.right(body, reply.json()["data"][0]) else "wrong"
        data = [json.loads(line[6:]) for line in reply.text.splitlines() if line.startswith("data: ")]
        done = [event for event in data if event.get("type", "").endswith("completed")]
        errors = [event for event in data if "error" in event]
        if len(done) + len(errors) != 1:
            return "twice" if done else f"untyped stream {reply.text[-120:]!r}"
        if errors:
            code = errors[0]["error"]["code"]
            self.tally.said[code] = errors[0]["error"]["message"]
            return code if any(code in codes for codes in TYPED.values()) else f"untyped {errors[0]}"
        return "ok" if self.right(body, done[0]) else "wrong"

    async def _work(self, number: int) -> None:
        while not self._over.is_set() and (self.limit is None or self._asked < self.limit):
            end = await self.ask(stream=number % 2 == 1)
            if end != "ok":
                await asyncio.sleep(0.1)  # as a client would before it tries again

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Tally]:
        """Load for as long as the body runs; every request has ended afterwards."""
        workers = [asyncio.create_task(self._work(number)) for number in range(self._workers)]
        try:
            yield self.tally
        finally:
            self._over.set()
            await asyncio.gather(*workers)
            await self._client.aclose()

    async def until_done(self) -> None:
        """Wait until `limit` requests were made and have ended."""
        while self._asked < (self.limit or 0):
            await asyncio.sleep(0.05)

    async def until_rate(self, rate: float, within: float) -> None:
        """Wait until right images come at `rate` a second again. Raises TimeoutError after `within` seconds."""
        async with asyncio.timeout(within):
            while self.tally.rate(3) < rate:
                await asyncio.sleep(0.1)
