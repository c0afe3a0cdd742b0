"""200 uploads that mean harm: each a 4xx in the error shape, and memory stays within 300 MB of idle."""

import asyncio
import io
import random
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest
from PIL import Image

from tests.service.gateway.serving_process import served_process

FORM = "multipart/form-data; boundary=x"
LIMIT = 300 * 2**20  # bytes above idle


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(width: int, height: int, rows: bytes, bits: int = 8, colour: int = 2, extra: bytes = b"") -> bytes:
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + extra + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def saved(kind: str, size: tuple[int, int] = (120, 90)) -> bytes:
    out = io.BytesIO()
    Image.effect_noise(size, 90).convert("RGB").save(out, kind)
    return out.getvalue()


def bombs() -> Iterator[bytes]:
    """Small files that would be huge."""
    for side in (5_000, 20_000, 65_000, 2**31 - 1):
        yield png(side, side, bytes(2_000_000))
    for bits, colour in ((16, 6), (16, 0), (1, 3)):
        yield png(30_000, 30_000, bytes(500_000), bits, colour)
    for kind in (b"zTXt", b"iCCP"):
        yield png(64, 64, b"", extra=chunk(kind, b"a\0\0" + zlib.compress(bytes(80_000_000), 9)))
    text = chunk(b"iTXt", b"a\0\1\0\0\0" + zlib.compress(bytes(60_000_000), 9))
    yield png(64, 64, b"", extra=text * 8)
    yield b"RIFF\x20\0\0\0WEBPVP8X\x0a\0\0\0\x02\0\0\0" + b"\xff\xff\x00\xff\xff\x00" + bytes(30)
    yield b"RIFF\x20\0\0\0WEBPVP8L\x0a\0\0\0\x2f\xff\xff\xff\x0f" + bytes(30)
    jpeg = bytearray(saved("JPEG"))
    frame = jpeg.index(b"\xff\xc0")
    jpeg[frame + 5 : frame + 9] = b"\xff\xff\xff\xff"
    yield bytes(jpeg)
    yield png(4_800, 5_000, bytes(1000))  # just below the cap, and cut: everything is allocated, nothing decoded


def cut_and_torn(dice: random.Random) -> Iterator[bytes]:
    """Files that began well."""
    for kind in ("PNG", "JPEG", "WEBP"):
        raw = saved(kind)
        for _ in range(20):
            yield raw[: dice.randrange(1, len(raw) * 9 // 10)]
        for _ in range(10):
            torn = bytearray(raw[: len(raw) // 2])
            for _ in range(20):
                torn[dice.randrange(16, len(torn))] = dice.randrange(256)
            yield bytes(torn)


def wrong_types(dice: random.Random) -> Iterator[bytes]:
    """Files that are something else."""
    yield b""
    yield from (b"GIF89a" + bytes(50), b"BM" + bytes(50), b"%PDF-1.4\n", b"PK\3\4" + bytes(50), b"\x7fELF" + bytes(50))
    yield from (b"<svg onload='x'/>", b"II*\0\x08\0\0\0\xff\xff" + bytes(50), b"\0\0\1\0\1\0" + bytes(50))
    yield from (b"\0\0\0\x20ftypavif" + bytes(50), b"%!PS-Adobe\n(x) run", b"\x89PNG\r\n\x1a\n" + bytes(40))
    for _ in range(30):
        yield dice.randbytes(dice.randrange(1, 3000))


def form(raw: bytes, name: bytes = b"a") -> bytes:
    prompt = b'--x\r\ncontent-disposition: form-data; name="prompt"\r\n\r\nblue\r\n'
    head = b'--x\r\ncontent-disposition: form-data; name="image"; filename="%s"\r\ncontent-type: image/png\r\n\r\n'
    return prompt + head % name + raw + b"\r\n--x--\r\n"


def uploads() -> list[tuple[dict[str, str], bytes]]:
    """(headers, body) of 200 forms."""
    dice = random.Random(4)
    images = [*bombs(), *cut_and_torn(dice), *wrong_types(dice)]
    names = ["a.png", "", "../../etc/passwd", "\u202egnp.exe", "a" * 3000, 'x"; name="mask', "🐈.png", "CON", "%00"]
    found = []
    for index, raw in enumerate(images):
        name = names[index % len(names)].encode().replace(b'"', b"%22")
        found.append(({"content-type": FORM}, form(raw, name)))
    for index in range(200 - len(found)):
        found.append(_odd_form(index, dice))
    return found


def _odd_form(index: int, dice: random.Random) -> tuple[dict[str, str], bytes]:
    """Forms that are wrong themselves."""
    raw = saved("PNG", (40, 40))
    head = b'--x\r\ncontent-disposition: form-data; name="image"; filename="a"\r\n'
    kinds = [
        (FORM, head + b"x-padding: " + b"y" * (2000 * index + 20_000) + b"\r\n\r\n" + raw),
        (FORM, head + b"a: b\r\n" * (100 + index) + b"\r\n" + raw + b"\r\n--x--"),
        (FORM, (head + b"\r\n" + raw + b"\r\n") * (2 + index) + b"--x--"),
        ("multipart/form-data; boundary=y", head + b"\r\n" + raw + b"\r\n--x--"),
        ("multipart/form-data", head + b"\r\n" + raw),
        (FORM, head + b"\r\n" + dice.randbytes(60 * 2**20 if index == 5 else 2**20)),
        ("application/json", b'{"prompt":"x","images":[{"image_url":"data:image/png;base64,' + b"A" * 2**20 + b'"}]}'),
        ("application/json", b'{"prompt":"x","images":' + b"[" * 50_000),
    ]
    kind, body = kinds[index % len(kinds)]
    return {"content-type": kind}, body


@pytest.fixture(scope="module")
def process(tmp_path_factory):
    with served_process(tmp_path_factory.mktemp("hostile")) as running:
        yield running


def test_there_are_200():
    assert len(uploads()) == 200


async def test_each_is_a_4xx_and_memory_stays_low(process):
    watched = psutil.Process(process.pid)
    async with httpx.AsyncClient(base_url=process.url, timeout=60) as client:
        await client.get("/live")
        idle = peak = watched.memory_info().rss
        for headers, body in uploads():
            reply = await client.post("/v1/images/edits", content=body, headers=headers)
            peak = max(peak, watched.memory_info().rss)
            assert 400 <= reply.status_code < 500, (reply.status_code, reply.text, body[:200])
            assert set(reply.json()["error"]) == {"message", "type", "param", "code"}
        assert (await client.get("/live")).status_code == 200
    high = _high_water(process.pid)
    print(f"idle {idle / 2**20:.0f} MB, peak {high / 2**20:.0f} MB: {(high - idle) / 2**20:.0f} MB above idle")
    assert high - idle < LIMIT


async def test_many_at_once_stay_within_the_same_bound(process):
    """The kernel's high-water mark counts what a sample between two uploads would miss."""
    bomb = png(4_800, 5_000, bytes(1000))
    idle = psutil.Process(process.pid).memory_info().rss
    async with httpx.AsyncClient(base_url=process.url, timeout=60) as client:
        calls = (client.post("/v1/images/edits", content=form(bomb), headers={"content-type": FORM}) for _ in range(40))
        replies = await asyncio.gather(*calls)
    assert {reply.status_code for reply in replies} == {400}
    high = _high_water(process.pid)
    print(f"40 at once: {(high - idle) / 2**20:.0f} MB above")
    assert high - idle < LIMIT


def _high_water(pid: int) -> int:
    """VmHWM in bytes: the most that the process ever held (Linux)."""
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    [line] = [line for line in status if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024
