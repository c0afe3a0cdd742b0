"""The JSON reply of images, written in pieces: multi-megabyte base64 never stalls the loop, and is never held whole."""

import asyncio
import json
import logging
import time
from collections.abc import Iterator
from typing import Any

import pybase64
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from services.gateway.jobs import Painted
from services.gateway.orders import Order

log = logging.getLogger(__name__)

RAW_PIECE = 3 * 64 * 1024  # bytes; a multiple of 3, so that the pieces' base64 joins without padding
STALL_SECONDS = 60.0  # that a caller may take to read one piece
Piece = str | bytes  # text as it is, or an image to encode


def usage(painted: list[Painted]) -> dict[str, Any]:
    """Token counts of the engines, summed over the images. Output tokens are the prior tokens."""
    text = sum(image.text_tokens for image in painted)
    pixels = sum(image.image_tokens for image in painted)
    output = sum(image.prior_tokens for image in painted)
    return {
        "input_tokens": text + pixels,
        "output_tokens": output,
        "total_tokens": text + pixels + output,
        "input_tokens_details": {"text_tokens": text, "image_tokens": pixels},
        "output_tokens_details": {"text_tokens": 0, "image_tokens": output},
    }


def facts(order: Order) -> dict[str, str]:
    """What the images are like."""
    return {"size": order.size, "quality": order.quality, "background": "opaque", "output_format": order.format}


def server_timing(painted: list[Painted]) -> str:
    """The longest that any image took in each phase, as a Server-Timing header (milliseconds)."""
    longest: dict[str, float] = {}
    for image in painted:
        for phase, seconds in image.times.items():
            longest[phase] = max(seconds, longest.get(phase, 0.0))
    return ", ".join(f"{phase};dur={seconds * 1000:.1f}" for phase, seconds in longest.items())


def images_reply(order: Order, painted: list[Painted], urls: list[str] | None) -> "PiecesResponse":
    """The reply of generations and edits. urls: where the images are stored, if the caller asked for that."""
    pieces: list[Piece] = [f'{{"created":{int(time.time())},"data":[']
    for index, image in enumerate(painted):
        pieces.append("," if index else "")
        if urls is None:
            pieces += ['{"b64_json":"', image.image, f'","seed":{image.seed}}}']
        else:
            pieces.append(f'{{"url":{json.dumps(urls[index])},"seed":{image.seed}}}')
    pieces.append("]," + json.dumps({**facts(order), "usage": usage(painted)}, separators=(",", ":"))[1:])
    return PiecesResponse(pieces, {"server-timing": server_timing(painted)})


def encoded(pieces: list[Piece]) -> Iterator[bytes]:
    """The bytes of `pieces`, images as base64, at most 256 KiB at a time."""
    for piece in pieces:
        if isinstance(piece, str):
            yield piece.encode("ascii")
            continue
        view = memoryview(piece)
        for start in range(0, len(view), RAW_PIECE):
            yield pybase64.b64encode(view[start : start + RAW_PIECE])


def _length(piece: Piece) -> int:
    return len(piece) if isinstance(piece, str) else -(-len(piece) // 3) * 4


class ReaderStalled(Exception):
    """The caller takes nothing of its reply any more."""


async def send_pieces(send: Send, pieces: list[Piece]) -> None:
    """Send `pieces` as body chunks; other requests get their turn between two chunks. Raises ReaderStalled."""
    for chunk in encoded(pieces):
        try:
            async with asyncio.timeout(STALL_SECONDS):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        except TimeoutError as error:
            raise ReaderStalled from error
        await asyncio.sleep(0)


class PiecesResponse(Response):
    """A JSON body of known length, sent piece by piece with the socket's back-pressure."""

    media_type = "application/json"

    def __init__(self, pieces: list[Piece], headers: dict[str, str]) -> None:
        super().__init__(headers=headers)
        self.headers["content-length"] = str(sum(map(_length, pieces)))
        self._pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            await send_pieces(send, self._pieces)
        except ReaderStalled:
            log.warning("a reply was not read for %g s: its connection is closed", STALL_SECONDS)
            return  # uvicorn closes a connection whose reply is not complete
        await send({"type": "http.response.body", "body": b""})
