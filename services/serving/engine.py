"""The two engine protocols, and the records that go in and come out.

`services.omni` implements them with vLLM-Omni, `services.sim` with a clock.
"""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    import torch

Bundle: TypeAlias = "Mapping[str, torch.Tensor]"
Pixels: TypeAlias = "np.ndarray[tuple[int, int, int], np.dtype[np.uint8]]"  # [height, width, 3], RGB

PRIOR_TOKENS = "prior_token_ids"  # int32 [rows * columns], the large grid, row by row
CONDITION_TOKENS = (
    "condition_token_ids"  # int32 [(height/16)(width/16)], the condition image's codes, 2x upsampled (edits)
)
CONDITION_IMAGE = "condition_image"  # uint8 [height, width, 3], RGB, both sides multiples of 32 (edits)


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorJob:
    """One run of the AR stage. width, height: canonical pixels. image: an encoded RGB image if this is an edit."""

    request_id: str
    prompt: str
    width: int
    height: int
    seed: int
    image: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorResult:
    """What the AR stage wrote: the bundle for the DiT (names above), and token counts."""

    bundle: Bundle
    text_tokens: int
    image_tokens: int
    prior_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderJob:
    """One run of the DiT stage. width, height: canonical pixels; previews: partial images wanted, 0..3."""

    request_id: str
    prompt: str
    width: int
    height: int
    steps: int
    guidance: float
    seed: int
    negative_prompt: str | None = None
    previews: int = 0


@dataclass(frozen=True, slots=True)
class StepDone:
    """Denoising step `step` (from 1) of `total` is done."""

    step: int
    total: int


@dataclass(frozen=True, slots=True)
class PartialImage:
    """The image as it would look now; `index` counts from 0."""

    index: int
    pixels: Pixels


@dataclass(frozen=True, slots=True)
class FinalImage:
    """The image. times: seconds by phase (`queue`, `denoise`, `vae`)."""

    pixels: Pixels
    times: dict[str, float] = field(default_factory=dict)


RenderStep = StepDone | PartialImage | FinalImage


class StageEngine(Protocol):
    """What both engines share. `check_health` raises EngineDied when the engine is not there any more."""

    async def start(self) -> None: ...
    async def abort(self, request_id: str) -> None: ...
    async def check_health(self) -> None: ...
    async def stop(self) -> None: ...


@runtime_checkable
class Watched(Protocol):
    """An engine that knows when it last made progress; a supervisor finds hung workers by it."""

    def stalled(self) -> float:
        """Seconds since the last step (or token) while there is work; 0 when idle."""


class PriorEngine(StageEngine, Protocol):
    """Stage 0. `write` raises EngineFailed, EngineDied, InvalidPriors, or Cancelled after an abort."""

    async def write(self, job: PriorJob) -> PriorResult: ...


class RenderEngine(StageEngine, Protocol):
    """Stage 1. `paint` yields steps and partial images in order, then one FinalImage.

    Closing the iterator early aborts the job within one denoising step. Raises EngineFailed, EngineDied, Cancelled.
    """

    def paint(self, job: RenderJob, bundle: Bundle) -> AsyncGenerator[RenderStep, None]: ...
