"""Pixels to PNG, JPEG or WebP."""

import io

from PIL import Image

from services.serving.engine import Pixels
from services.wire.gateway_to_dit import ImageFormat

DEFAULT_QUALITY = 100  # the Images API's default for output_compression


def crop_box(painted: tuple[int, int], wanted: tuple[int, int]) -> tuple[int, int, int, int]:
    """The centred box (left, top, right, bottom) of `wanted` (width, height) pixels inside `painted`."""
    left, top = ((p - w) // 2 for p, w in zip(painted, wanted, strict=True))
    return left, top, left + wanted[0], top + wanted[1]


def encode_image(
    pixels: Pixels,
    crop: tuple[int, int],
    kind: ImageFormat,
    *,
    compression: int | None = None,
    png_level: int = 1,
) -> bytes:
    """`pixels` ([height, width, 3] uint8 RGB) cropped to `crop` (width, height) and encoded.

    compression: 0..100, the quality of jpeg and webp; PNG ignores it. Runs without the GIL for most of its time.
    """
    image = Image.fromarray(pixels)
    if image.size != crop:
        image = image.crop(crop_box(image.size, crop))
    out = io.BytesIO()
    if kind == "png":
        image.save(out, "PNG", compress_level=png_level)
    else:
        quality = DEFAULT_QUALITY if compression is None else compression
        image.save(out, kind.upper(), quality=quality)
    return out.getvalue()
