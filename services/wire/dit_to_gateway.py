"""The events that the DiT service streams back, in order: any number of `Progress` and `Preview`, then one
`Rendered` or one `Failed`."""

import msgspec

from services.wire.errors import ErrorBody


class Progress(msgspec.Struct, frozen=True, tag="progress"):
    """Denoising step `step` of `total` is done."""

    step: int
    total: int


class Preview(msgspec.Struct, frozen=True, tag="preview"):
    """An encoded partial image; `index` counts from 0."""

    index: int
    image: bytes


class Rendered(msgspec.Struct, frozen=True, kw_only=True, tag="rendered"):
    """The encoded image. times: seconds by phase (`queue`, `handoff`, `denoise`, `vae`, `encode`)."""

    image: bytes
    width: int
    height: int
    times: dict[str, float] = {}


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The job ended without an image."""

    error: ErrorBody


RenderEvent = Progress | Preview | Rendered | Failed
