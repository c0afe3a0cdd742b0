"""Uploaded images: every kind that people have, as upright RGB; everything else a 400 that costs no memory."""

import asyncio
import io
import struct
import tracemalloc
import zlib

import pytest
from PIL import Image

from services.gateway.errors import ApiError
from services.gateway.image_input import ImageReader, PixelBudget, decoded, header_size
from services.gateway.settings import GatewaySettings


def saved(image: Image.Image, kind: str = "PNG", **options) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def rgb_of(raw: bytes) -> Image.Image:
    result = decoded(io.BytesIO(raw), "image")
    image = Image.open(io.BytesIO(result.png))
    assert (image.format, image.mode) == ("PNG", "RGB")
    assert image.size == result.size
    return image


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png_bomb(width: int, height: int) -> bytes:
    """A few KB that say they are huge."""
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = chunk(b"IDAT", zlib.compress(bytes(1_000_000)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + rows + chunk(b"IEND", b"")


def webp_header(kind: bytes, body: bytes) -> bytes:
    return b"RIFF" + struct.pack("<I", 100) + b"WEBP" + kind + struct.pack("<I", len(body)) + body + bytes(40)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_each_format_is_read_by_content(kind):
    image = rgb_of(saved(Image.new("RGB", (80, 48), (200, 30, 30)), kind))
    red, green, blue = image.getpixel((40, 24))
    assert red > 190
    assert max(green, blue) < 50


def test_transparency_becomes_white():
    clear = Image.new("RGBA", (40, 40), (0, 0, 0, 0))
    clear.paste((255, 0, 0, 128), (0, 0, 20, 40))
    image = rgb_of(saved(clear))
    assert image.getpixel((30, 20)) == (255, 255, 255)
    assert image.getpixel((10, 20)) == (255, 127, 127)


def test_palettes_with_and_without_transparency():
    picture = Image.new("RGB", (40, 40), (10, 200, 10)).convert("P", palette=Image.Palette.ADAPTIVE)
    assert rgb_of(saved(picture)).getpixel((5, 5)) == (10, 200, 10)
    index = picture.getpixel((5, 5))
    assert rgb_of(saved(picture, transparency=index)).getpixel((5, 5)) == (255, 255, 255)


def test_grey_with_a_transparent_level():
    assert rgb_of(saved(Image.new("L", (40, 40), 7), transparency=7)).getpixel((5, 5)) == (255, 255, 255)


def test_grey_with_alpha():
    assert rgb_of(saved(Image.new("LA", (40, 40), (0, 0)))).getpixel((5, 5)) == (255, 255, 255)


@pytest.mark.parametrize(("level", "expected"), [(0, 0), (32896, 128), (65535, 255)])
def test_sixteen_bit_grey_is_scaled(level, expected):
    image = rgb_of(saved(Image.new("I;16", (40, 40), level)))
    assert image.getpixel((5, 5)) == (expected,) * 3


def test_one_bit():
    assert rgb_of(saved(Image.new("1", (40, 40), 1))).getpixel((5, 5)) == (255, 255, 255)


def test_cmyk():
    image = rgb_of(saved(Image.new("CMYK", (40, 40), (0, 255, 255, 0)), "JPEG"))
    red, green, _ = image.getpixel((5, 5))
    assert red > 200
    assert green < 60


def test_an_animation_gives_its_first_frame():
    frames = [Image.new("RGB", (40, 40), colour) for colour in ((255, 0, 0), (0, 0, 255))]
    for kind, options in (("WEBP", {"lossless": True}), ("PNG", {})):
        raw = saved(frames[0], kind, save_all=True, append_images=frames[1:], **options)
        assert rgb_of(raw).getpixel((5, 5)) == (255, 0, 0)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied(orientation):
    upright = Image.new("RGB", (64, 48), "white")
    upright.paste((255, 0, 0), (0, 0, 32, 24))  # red at the top left
    undo = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }
    stored = upright.transpose(undo[orientation]) if orientation in undo else upright
    exif = Image.Exif()
    exif[0x0112] = orientation
    image = rgb_of(saved(stored, "JPEG", exif=exif, quality=95))
    assert image.size == (64, 48)
    assert image.getpixel((8, 8))[1] < 60
    assert image.getpixel((56, 40))[1] > 200


@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
def test_a_damaged_exif_block_does_not_matter():
    raw = saved(Image.new("RGB", (40, 40)), "JPEG", exif=b"Exif\x00\x00II*\x00\xff\xff\xff\xff")
    assert rgb_of(raw).size == (40, 40)


def test_a_large_photo_is_scaled_down_and_keeps_its_aspect():
    raw = saved(Image.new("RGB", (6000, 3000), "blue"), "JPEG")
    result = decoded(io.BytesIO(raw), "image")
    width, height = Image.open(io.BytesIO(result.png)).size
    assert width * height <= 2048 * 2048 * 1.01
    assert abs(width / height - 2) < 0.01


def refused(raw: bytes) -> ApiError:
    with pytest.raises(ApiError) as caught:
        header_size(io.BytesIO(raw), "image")
        decoded(io.BytesIO(raw), "image")
    assert (caught.value.status, caught.value.param) == (400, "image")
    return caught.value


@pytest.mark.parametrize(
    "raw",
    [
        b"GIF89a" + bytes(100),
        b"%PDF-1.7",
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        b"II*\x00" + bytes(100),
        b"\x00" * 100,
        b"\x89PNG\r\n\x1a\n",
        b"RIFF\x00\x00\x00\x00WEBPABCD" + bytes(30),
        b"\xff\xd8\xff",
    ],
)
def test_what_is_no_image_is_refused(raw):
    assert refused(raw).code in {"unsupported_file_mimetype", "invalid_image"}


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
@pytest.mark.parametrize("part", [0.3, 0.6, 0.95])
def test_a_cut_image_is_refused(kind, part):
    raw = saved(Image.effect_noise((200, 200), 80).convert("RGB"), kind)
    assert refused(raw[: int(len(raw) * part)]).code == "invalid_image"


def test_a_torn_png_is_refused():
    """Not cut but overwritten: its decoder stops with an error in the middle."""
    raw = bytearray(saved(Image.effect_noise((200, 200), 80).convert("RGB")))
    raw[len(raw) // 2 : len(raw) // 2 + 400] = bytes(400)
    assert refused(bytes(raw)).code == "invalid_image"


@pytest.mark.parametrize("size", [(31, 200), (200, 1), (1, 1)])
def test_a_tiny_image_is_refused(size):
    assert refused(saved(Image.new("RGB", size))).code == "image_too_small"


@pytest.mark.parametrize(
    ("raw", "size"),
    [
        (webp_header(b"VP8X", bytes(4) + b"\xff\xff\xff" + b"\x0f\x00\x00"), (16777216, 16)),
        (webp_header(b"VP8L", b"\x2f" + struct.pack("<I", 16383 | 16383 << 14)), (16384, 16384)),
        (webp_header(b"VP8 ", bytes(6) + struct.pack("<HH", 16383, 9)), (16383, 9)),
        (png_bomb(100_000, 100_000), (100_000, 100_000)),
    ],
)
def test_dimensions_come_from_the_header(raw, size):
    assert header_size(io.BytesIO(raw), "image") == size


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_header_and_decoder_agree(kind):
    for mode in ("RGB", "RGBA") if kind != "JPEG" else ("RGB",):
        for options in ({}, {"lossless": True}):
            raw = saved(Image.new(mode, (77, 41)), kind, **(options if kind == "WEBP" else {}))
            assert header_size(io.BytesIO(raw), "image") == (77, 41)


async def test_a_bomb_costs_no_memory():
    reader = ImageReader(GatewaySettings())
    raw = png_bomb(60_000, 60_000)
    tracemalloc.start()
    try:
        with pytest.raises(ApiError, match="60000x60000 pixels"):
            await reader.read(io.BytesIO(raw), len(raw), "image")
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()
        reader.close()


async def test_bytes_are_capped():
    reader = ImageReader(GatewaySettings(max_image_bytes=100))
    with pytest.raises(ApiError) as caught:
        await reader.read(io.BytesIO(bytes(101)), 101, "image")
    assert (caught.value.status, caught.value.param) == (413, "image")
    reader.close()


async def test_the_pixel_budget_is_never_exceeded_and_served_in_order():
    budget = PixelBudget(10)
    await budget.take(8)
    order: list[int] = []

    async def want(pixels: int) -> None:
        await budget.take(pixels)
        order.append(pixels)

    waiting = [asyncio.create_task(want(pixels)) for pixels in (9, 1)]
    await asyncio.sleep(0)
    assert order == []  # 1 would fit, but 9 came first
    budget.give_back(8)
    await asyncio.wait(waiting)
    assert order == [9, 1]


async def test_the_budget_comes_back_when_the_caller_left():
    reader = ImageReader(GatewaySettings(max_image_pixels=40_000))
    raw = saved(Image.new("RGB", (200, 200)))
    for _ in range(5):
        task = asyncio.create_task(reader.read(io.BytesIO(raw), len(raw), "image"))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert (await reader.read(io.BytesIO(raw), len(raw), "image")).size == (200, 200)
    reader.close()
