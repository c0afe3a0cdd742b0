"""A painter that paints with Pillow, and does what its script says."""

import asyncio
import io
import zlib
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field

from PIL import Image

from services.gateway.jobs import Job, JobEvent, Painted, Partial, Queued, Step
from services.wire.errors import DiptychError, Overloaded
from services.wire.info import GatewayInfo


def colour_of(job: Job, step: int) -> tuple[int, int, int]:
    """A colour that depends on everything that the image should depend on."""
    image = zlib.crc32(job.image or b"")
    told = f"{job.prompt}|{job.negative_prompt}|{job.seed}|{job.steps}|{job.guidance}|{step}|{image}"
    crc = zlib.crc32(told.encode())
    return crc & 255, crc >> 8 & 255, crc >> 16 & 255


def encoded(job: Job, step: int) -> bytes:
    """One flat image of the asked size, in the asked format."""
    out = io.BytesIO()
    options = {} if job.format == "png" else {"quality": job.compression if job.compression is not None else 90}
    Image.new("RGB", job.crop, colour_of(job, step)).save(out, job.format, **options)
    return out.getvalue()


def idle() -> GatewayInfo:
    """A gateway with nothing to do."""
    return GatewayInfo(instance="fake", ready=True, jobs={"queue": 0, "ar": 0, "ready": 0, "dit": 0})


@dataclass
class FakePainter:
    """`script`: called with each job; may raise, or return an awaitable to wait for. `places`: the queue's bound.

    told: what `info` says.
    """

    places: int = 64
    script: Callable[[Job], object] | None = None
    why_unready: str = ""
    image: bytes | None = None
    told: GatewayInfo = field(default_factory=idle)
    jobs: list[Job] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    held: dict[str, Job] = field(default_factory=dict)
    running: int = 0
    most_running: int = 0
    started: int = 0
    draining: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def start(self) -> None:
        self.started += 1

    async def stop(self) -> None:
        self.started -= 1

    def drain(self) -> None:
        self.draining = True

    def __len__(self) -> int:
        return len(self.held)

    def unready(self) -> str:
        return self.why_unready

    def info(self) -> GatewayInfo:
        return self.told

    def reserve(self, jobs: list[Job]) -> None:
        if len(self.held) + len(jobs) > self.places:
            raise Overloaded("the queue is full", retry_after=7.2)
        self.held |= {job.request_id: job for job in jobs}

    def forget(self, jobs: list[Job]) -> None:
        for job in jobs:
            self.held.pop(job.request_id, None)

    async def paint(self, job: Job) -> AsyncGenerator[JobEvent, None]:
        if job.request_id not in self.held:
            raise DiptychError("no place was reserved")
        self.jobs.append(job)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        self._moved()
        done = False
        try:
            yield Queued(0, 1.0)
            if self.script is not None:
                wait = self.script(job)
                if asyncio.iscoroutine(wait) or asyncio.isfuture(wait):
                    await wait
            await asyncio.sleep(0)
            for step in range(1, job.steps + 1):
                yield Step(step, job.steps)
                if step <= job.previews and step < job.steps:
                    yield Partial(step - 1, encoded(job, step))
            done = True
            yield Painted(
                image=self.image or encoded(job, 0),
                seed=job.seed,
                text_tokens=len(job.prompt.split()),
                image_tokens=64 if job.image else 0,
                prior_tokens=(job.width // 32) * (job.height // 32),
                times={"ar": 0.01, "denoise": 0.02},
            )
        finally:
            self.running -= 1
            (self.ended if done else self.cancelled).append(job.request_id)
            self.held.pop(job.request_id, None)
            self._moved()

    def _moved(self) -> None:
        self.changed.set()

    async def until(self, condition: Callable[[], bool], seconds: float = 10) -> None:
        """Wait until `condition`, looked at whenever a job starts or ends."""
        async with asyncio.timeout(seconds):
            while not condition():
                self.changed.clear()
                await self.changed.wait()
