"""One image to make, and what happens to it: the seam between the HTTP side and the pipeline side of the gateway."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Protocol

from services.wire.gateway_to_dit import ImageFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One image, fully decided. width, height: canonical pixels (multiples of 32); crop: the size asked for.

    tenant: whose fair share this job counts to (an API key's hash, or "" without keys). deadline: event-loop time.
    image: one encoded RGB condition image if this is an edit. seed_given: the caller chose the seed.
    """

    request_id: str
    tenant: str
    prompt: str
    width: int
    height: int
    crop: tuple[int, int]
    steps: int
    guidance: float
    seed: int
    seed_given: bool
    deadline: float
    negative_prompt: str | None = None
    format: ImageFormat = "png"
    compression: int | None = None
    previews: int = 0
    image: bytes | None = None


@dataclass(frozen=True, slots=True)
class Queued:
    """Still waiting: place from 0, and an honest guess of the seconds until the image is done."""

    position: int
    estimate: float


@dataclass(frozen=True, slots=True)
class Step:
    """Denoising step `step` of `total` is done."""

    step: int
    total: int


@dataclass(frozen=True, slots=True)
class Partial:
    """An encoded partial image; `index` counts from 0."""

    index: int
    image: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Painted:
    """The encoded image and what it took. times: seconds by phase, of both stages."""

    image: bytes
    seed: int
    text_tokens: int
    image_tokens: int
    prior_tokens: int
    times: dict[str, float] = field(default_factory=dict)


JobEvent = Queued | Step | Partial | Painted


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """Whether a job sent now could be painted. stages: a word for each stage, e.g. {"ar": "ready", "dit": "down"}."""

    ready: bool
    reason: str = ""
    stages: dict[str, str] = field(default_factory=dict)


class Painter(Protocol):
    """Turns jobs into images with whatever replicas there are.

    `reserve` takes places in the bounded queue for all jobs of a request at once (all or none) and raises
    Overloaded. `paint` yields events, then one Painted; it raises a DiptychError. Closing the iterator early
    cancels that job, and only that job, at both stages, and frees its place. `release` frees the place of a job that
    was reserved and maybe never painted (an iterator that never started cannot free anything); idempotent, and no-op
    once the job has ended; the caller always calls it at the end. `start` begins to watch the replicas
    and returns at once; `stop` ends what is left. `readiness` answers from what is known, without waiting.
    """

    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    def readiness(self) -> Readiness: ...
    def reserve(self, jobs: list[Job]) -> None: ...
    def paint(self, job: Job) -> AsyncIterator[JobEvent]: ...
    def release(self, job: Job) -> None: ...
