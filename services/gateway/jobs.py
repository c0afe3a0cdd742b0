"""One image to make, and what happens to it: the seam between the HTTP side and the pipeline side of the gateway."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Protocol

from services.wire.gateway_to_dit import ImageFormat
from services.wire.info import GatewayInfo


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


@dataclass(frozen=True, slots=True)
class Retried:
    """A stage failed on this job, which goes on elsewhere or from its start; reason: the failure, in words."""

    reason: str


JobEvent = Queued | Step | Partial | Painted | Retried


class Painter(Protocol):
    """Turns jobs into images with whatever replicas there are.

    `reserve` takes places in the bounded queue for all jobs of a request at once (all or none) and raises
    Overloaded. `paint` yields events, then one Painted; it raises a DiptychError. Closing the iterator early
    cancels that job, and only that job, at both stages, and frees its place. `forget` frees the places of jobs that
    were reserved and maybe never painted (an iterator that never started cannot free anything); idempotent, a no-op
    for jobs that have ended, and always called at the end. `start` begins to watch the replicas; `drain` refuses
    new jobs from then on; `stop` ends what is left. `unready` says why no image can be made now, or "" if one can;
    `info` says it all, replica by replica.
    """

    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    def drain(self) -> None: ...
    def __len__(self) -> int: ...
    def unready(self) -> str: ...
    def info(self) -> GatewayInfo: ...
    def reserve(self, jobs: list[Job]) -> None: ...
    def forget(self, jobs: list[Job]) -> None: ...
    def paint(self, job: Job) -> AsyncIterator[JobEvent]: ...
