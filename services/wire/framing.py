"""msgpack bodies, and the chunked stream of length-prefixed msgpack events that a render answers with.

A frame is a 4-byte big-endian length, then that many bytes of msgpack.
"""

from collections.abc import AsyncIterator
from typing import TypeVar

import msgspec

from services.wire.dit_to_gateway import RenderEvent
from services.wire.errors import ProtocolError

MSGPACK = "application/msgpack"
MAX_FRAME = 128 * 2**20  # bytes: a 2048x2048 RGB PNG of noise is 13 MB

_encoder = msgspec.msgpack.Encoder()
_event_decoder: msgspec.msgpack.Decoder[RenderEvent] = msgspec.msgpack.Decoder(RenderEvent)
Message = TypeVar("Message")


def encode(message: object) -> bytes:
    """`message` (a msgspec Struct) as msgpack."""
    return _encoder.encode(message)


def decode(raw: bytes, kind: type[Message]) -> Message:
    """`raw` as a `kind`. Raises ProtocolError with the path of the field that does not fit."""
    try:
        return msgspec.msgpack.decode(raw, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ProtocolError(f"not a {kind.__name__}: {error}") from error


def frame(event: RenderEvent) -> bytes:
    """`event` as one frame."""
    body = _encoder.encode(event)
    return len(body).to_bytes(4, "big") + body


async def events(chunks: AsyncIterator[bytes]) -> AsyncIterator[RenderEvent]:
    """The events in a stream of byte chunks of any split. Raises ProtocolError on garbage or a cut frame."""
    buffer = bytearray()
    async for chunk in chunks:
        buffer += chunk
        while len(buffer) >= 4:
            size = int.from_bytes(buffer[:4], "big")
            if size > MAX_FRAME:
                raise ProtocolError(f"a frame of {size} bytes; at most {MAX_FRAME} are allowed")
            if len(buffer) < 4 + size:
                break
            body = bytes(buffer[4 : 4 + size])
            del buffer[: 4 + size]
            try:
                yield _event_decoder.decode(body)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise ProtocolError(f"not a render event: {error}") from error
    if buffer:
        raise ProtocolError(f"the stream ended inside a frame ({len(buffer)} bytes left over)")
