"""Sizes as callers write them, and the sizes that are painted."""

import math
import re

from services.gateway.errors import bad_request
from services.wire.geometry import MAX_RATIO, MAX_SIDE, MIN_SIDE, PRIOR_PATCH, canonical_side

SIZE = re.compile(r"^([0-9]{1,5})[xX]([0-9]{1,5})$")
AUTO_SIZE = (1024, 1024)  # pixels, a generation's `auto`
AUTO_PIXELS = 1024 * 1024  # an edit's `auto` keeps the image's aspect at about this many

Size = tuple[int, int]


def parse_size(text: str | None, image: Size | None = None) -> Size:
    """(width, height) in pixels of `WxH`, `WXH` or `auto`. image: the size of an edit's image, for `auto`.

    Raises ApiError 400 that names `size`.
    """
    if text is None or text == "auto":
        return AUTO_SIZE if image is None else same_aspect(image)
    match = SIZE.match(text)
    if match is None:
        raise bad_request(f"Invalid size {text[:40]!r}: write WIDTHxHEIGHT, such as 1024x1024, or auto.", "size")
    width, height = int(match[1]), int(match[2])
    if not (MIN_SIDE <= width <= MAX_SIDE and MIN_SIDE <= height <= MAX_SIDE):
        raise bad_request(f"Invalid size {text}: each side must be between {MIN_SIDE} and {MAX_SIDE} pixels.", "size")
    if max(width, height) > MAX_RATIO * min(width, height):
        raise bad_request(f"Invalid size {text}: the longer side may be {MAX_RATIO} times the shorter at most.", "size")
    return width, height


def canonical(size: Size) -> Size:
    """The size that is painted for `size`: both sides up to the next multiple of 32."""
    return canonical_side(size[0]), canonical_side(size[1])


def same_aspect(image: Size) -> Size:
    """About one megapixel in the aspect of `image`, in multiples of 32, within the ratio that the model paints."""
    ratio = min(max(image[0] / image[1], 1 / MAX_RATIO), MAX_RATIO)
    width = round(math.sqrt(AUTO_PIXELS * ratio) / PRIOR_PATCH) * PRIOR_PATCH
    height = round(math.sqrt(AUTO_PIXELS / ratio) / PRIOR_PATCH) * PRIOR_PATCH
    return min(width, MAX_SIDE), min(height, MAX_SIDE)
