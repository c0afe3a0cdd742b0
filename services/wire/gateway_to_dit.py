"""What the gateway sends to the DiT service."""

from typing import Literal

import msgspec

ImageFormat = Literal["png", "jpeg", "webp"]


class RenderRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`POST /v1/renders`: paint one image from the prior tokens behind a ticket.

    width, height: canonical pixels, multiples of 32. crop: (width, height) that the caller asked for, at most
    the canonical size. steps: denoising steps. guidance: classifier-free guidance scale. seed: of the starting
    noise. compression: 0..100, jpeg and webp quality. previews: partial images wanted, 0..3. budget: seconds.
    """

    request_id: str
    ticket: bytes
    prompt: str
    width: int
    height: int
    crop: tuple[int, int]
    steps: int
    guidance: float
    seed: int
    budget: float
    negative_prompt: str | None = None
    format: ImageFormat = "png"
    compression: int | None = None
    previews: int = 0
    traceparent: str | None = None
