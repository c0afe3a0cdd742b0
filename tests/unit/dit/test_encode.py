"""Formats, crops and qualities of the encoded image."""

import io

import numpy as np
import pytest
from PIL import Image

from services.dit.encode import crop_box, encode_image

PIXELS = np.random.default_rng(0).integers(0, 256, (96, 160, 3), dtype=np.uint8)


def _open(raw: bytes) -> Image.Image:
    return Image.open(io.BytesIO(raw))


def test_png_keeps_every_pixel():
    assert (np.asarray(_open(encode_image(PIXELS, (160, 96), "png"))) == PIXELS).all()


def test_crop_is_centred_and_exact():
    assert crop_box((224, 160), (200, 136)) == (12, 12, 212, 148)
    image = _open(encode_image(PIXELS, (150, 90), "png"))
    assert image.size == (150, 90)
    assert (np.asarray(image) == PIXELS[3:93, 5:155]).all()


@pytest.mark.parametrize(("kind", "name"), [("jpeg", "JPEG"), ("webp", "WEBP")])
def test_compression_is_the_quality(kind, name):
    small, large = (encode_image(PIXELS, (160, 96), kind, compression=quality) for quality in (10, 95))
    assert _open(small).format == name
    assert len(small) < len(large)


def test_no_compression_means_the_best_quality():
    assert encode_image(PIXELS, (160, 96), "jpeg") == encode_image(PIXELS, (160, 96), "jpeg", compression=100)
