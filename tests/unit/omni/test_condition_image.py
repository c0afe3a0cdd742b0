"""The condition image gets the one size on which the AR model and the DiT agree."""

import io
from typing import Any

import pytest
from PIL import Image
from transformers.models.glm_image.image_processing_glm_image import GlmImageImageProcessor

from services.omni import condition_image
from services.omni.condition_image import read_condition_image
from services.wire.errors import InvalidRequest


@pytest.fixture(scope="module")
def real() -> Any:
    """The bounds of the released model's processor: 512 to 2048 pixels a side."""
    size = {"shortest_edge": 512 * 512, "longest_edge": 2048 * 2048}
    return GlmImageImageProcessor(patch_size=16, temporal_patch_size=1, merge_size=1, size=size)


def encoded(width: int, height: int, kind: str = "PNG", mode: str = "RGB") -> bytes:
    out = io.BytesIO()
    Image.new(mode, (width, height), 7).save(out, kind)
    return out.getvalue()


SIZES = [(512, 512), (1024, 1024), (300, 200), (64, 256), (3000, 1000), (1333, 777), (640, 2048)]


@pytest.mark.parametrize("size", SIZES)
def test_the_ar_grid_and_the_pixels_agree(real: Any, size: tuple[int, int]) -> None:
    found = read_condition_image(encoded(*size), real)
    grid = real(images=[found.image], return_tensors="pt")["image_grid_thw"][0].tolist()
    width, height = found.image.size
    assert width % 32 == height % 32 == 0
    assert grid == [1, height // 32, width // 32]
    assert found.ar_tokens == grid[1] * grid[2]
    assert found.codes == (height // 16) * (width // 16)
    assert found.pixels().shape == (height, width, 3)


def test_an_image_of_a_fitting_size_keeps_its_pixels(real: Any) -> None:
    data = encoded(768, 512)
    found = read_condition_image(data, real)
    assert found.image.tobytes() == Image.open(io.BytesIO(data)).tobytes()


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_the_three_formats_are_read(real: Any, kind: str) -> None:
    assert read_condition_image(encoded(512, 512, kind), real).image.mode == "RGB"


@pytest.mark.parametrize(
    "data", [b"", b"x" * 100, encoded(512, 512, "GIF", "P"), encoded(512, 512)[:100], encoded(4096, 512), encoded(8, 8)]
)
def test_what_cannot_be_used_is_the_callers_error(real: Any, data: bytes) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_condition_image(data, real)
    assert caught.value.param == "image"


def test_too_many_pixels_are_refused_by_the_header(real: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(condition_image, "MAX_PIXELS", 512 * 512 - 1)
    with pytest.raises(InvalidRequest, match="more than 262,143 pixels"):
        read_condition_image(encoded(512, 512), real)
