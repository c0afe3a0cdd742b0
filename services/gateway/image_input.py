"""An edit's image: any PNG, JPEG or WebP as RGB PNG bytes. What the type is, the bytes say, not the label.

Dimensions are read from the header before anything is decoded, so that a decompression bomb costs no memory; decoding
runs in threads, and all pixels that are decoded at once have a budget.
"""

import asyncio
import io
import struct
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import IO, TypeVar

from PIL import Image

from services.gateway.errors import ApiError, bad_request
from services.gateway.orders import InputImage
from services.gateway.settings import GatewaySettings
from services.gateway.sizes import Size

MIN_IMAGE_SIDE = 32  # pixels: one prior token
CONDITION_PIXELS = 2048 * 2048  # larger images are scaled down: no larger image can be painted either
THREADS = 2
EXIF_ORIENTATION = 0x0112
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}  # Exif 2.32, tag 0x0112: what turns the stored pixels upright

# What Pillow's decoders raise on bytes that are not what they claim to be; found by fuzzing, hence so many.
BROKEN = (
    OSError,
    SyntaxError,
    ValueError,
    ArithmeticError,
    LookupError,
    TypeError,
    AttributeError,
    EOFError,
    struct.error,
    zlib.error,
    Image.DecompressionBombError,
)

Result = TypeVar("Result")


class ImageReader:
    """Reads uploaded images, a bounded number of pixels at a time. `close` after use."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._max_bytes = settings.max_image_bytes
        self._budget = PixelBudget(settings.max_image_pixels)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="image-input")

    def close(self) -> None:
        """Let the threads end."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def read(self, file: IO[bytes], size: int, param: str) -> InputImage:
        """The image in `file` (of `size` bytes). Raises ApiError 400 or 413 that names `param`."""
        if size == 0:
            raise bad_request("The image is empty.", param, "invalid_image")
        if size > self._max_bytes:
            raise ApiError(413, f"The image is larger than {self._max_bytes} bytes.", param=param)
        stored = await self._in_thread(lambda: header_size(file, param))
        pixels = stored[0] * stored[1]
        if pixels > self._budget.total:
            message = f"The image has {stored[0]}x{stored[1]} pixels; at most {self._budget.total} are allowed."
            raise bad_request(message, param, "image_too_large")
        await self._budget.take(pixels)
        return await self._in_thread(lambda: decoded(file, param), lambda: self._budget.give_back(pixels))

    async def _in_thread(self, work: Callable[[], Result], done: Callable[[], None] = lambda: None) -> Result:
        """Run `work` in a thread. `done` is called when the thread is through, also if nobody waits any more."""
        loop = asyncio.get_running_loop()
        future = self._threads.submit(work)
        future.add_done_callback(lambda _: loop.call_soon_threadsafe(done))
        return await asyncio.wrap_future(future)


class PixelBudget:
    """At most `total` pixels at once; who comes first is served first."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._used = 0
        self._turn = asyncio.Lock()
        self._freed = asyncio.Event()

    async def take(self, pixels: int) -> None:
        """Wait for `pixels` (at most `total`) of the budget."""
        async with self._turn:
            while self._used + pixels > self.total:
                self._freed.clear()
                await self._freed.wait()
            self._used += pixels

    def give_back(self, pixels: int) -> None:
        """Give back what `take` took."""
        self._used -= pixels
        self._freed.set()


def header_size(file: IO[bytes], param: str) -> Size:
    """(width, height) as stored, from the header alone. Raises ApiError 400 if this is no PNG, JPEG or WebP."""
    file.seek(0)
    head = file.read(64)
    if head.startswith(b"\x89PNG\r\n\x1a\n") and head[12:16] == b"IHDR" and len(head) >= 24:
        return int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP" and (size := _webp_size(head)) is not None:
        return size
    if head.startswith(b"\xff\xd8\xff"):
        with _opened(file, param) as image:
            return image.size
    raise bad_request("The image is not a PNG, JPEG or WebP.", param, "unsupported_file_mimetype")


def _webp_size(head: bytes) -> Size | None:
    """From the first chunk; RFC 9649, sections 2.5 (VP8), 2.6 (VP8L) and 2.7 (VP8X)."""
    kind, chunk = head[12:16], head[20:]
    if kind == b"VP8X" and len(chunk) >= 10:
        return int.from_bytes(chunk[4:7], "little") + 1, int.from_bytes(chunk[7:10], "little") + 1
    if kind == b"VP8L" and len(chunk) >= 5:
        bits = int.from_bytes(chunk[1:5], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8 " and len(chunk) >= 10:
        return int.from_bytes(chunk[6:8], "little") & 0x3FFF, int.from_bytes(chunk[8:10], "little") & 0x3FFF
    return None


def _opened(file: IO[bytes], param: str) -> Image.Image:
    file.seek(0)
    try:
        return Image.open(file, formats=("PNG", "JPEG", "WEBP"))
    except BROKEN as error:
        raise _broken(param) from error


def _broken(param: str) -> ApiError:
    return bad_request("The image is damaged: it cannot be decoded.", param, "invalid_image")


def decoded(file: IO[bytes], param: str) -> InputImage:
    """The first frame, upright, RGB, transparency on white, at most CONDITION_PIXELS. Raises ApiError 400."""
    with _opened(file, param) as image:
        try:
            image.draft(None, (2048, 2048))  # JPEG only: decodes at 1/2, 1/4 or 1/8 of a much larger size
            image.load()  # before EXIF: reading that of a PNG loads the pixels too, and would hide that they are cut
            turn = TURNS.get(_orientation(image))
            stored = image.size
            rgb = _on_white(image)
        except BROKEN as error:
            raise _broken(param) from error
    if turn is not None:
        rgb = rgb.transpose(turn)
    if min(rgb.size) < MIN_IMAGE_SIDE:
        message = f"The image has {stored[0]}x{stored[1]} pixels; each side must have {MIN_IMAGE_SIDE} at least."
        raise bad_request(message, param, "image_too_small")
    seen = rgb.size
    if seen[0] * seen[1] > CONDITION_PIXELS:
        scale = (CONDITION_PIXELS / (seen[0] * seen[1])) ** 0.5
        smaller = max(round(seen[0] * scale), MIN_IMAGE_SIDE), max(round(seen[1] * scale), MIN_IMAGE_SIDE)
        rgb = rgb.resize(smaller, Image.Resampling.LANCZOS, reducing_gap=3)
    out = io.BytesIO()
    rgb.save(out, "PNG", compress_level=1)
    return InputImage(png=out.getvalue(), size=seen)


def _orientation(image: Image.Image) -> int:
    """The EXIF orientation; upright if the EXIF block is damaged, as viewers do."""
    try:
        return int(image.getexif().get(EXIF_ORIENTATION, 1))
    except BROKEN:
        return 1


def _on_white(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):  # 16 bit greyscale; the other 16 bit kinds are read as 8 bit
        return image.convert("I").point(lambda value: value * (1 / 257)).convert("L").convert("RGB")
    if not image.has_transparency_data:
        return image.convert("RGB")
    clear = image.convert("RGBA")
    white = Image.new("RGB", clear.size, "white")
    white.paste(clear, mask=clear.getchannel("A"))
    return white
