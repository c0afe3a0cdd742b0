"""msgpack over HTTP for the stage services: bodies with a cap, typed errors, and jobs that end with their caller."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from services.wire import framing
from services.wire.dit_to_gateway import Failed, RenderEvent
from services.wire.errors import Cancelled, DiptychError, InvalidRequest

log = logging.getLogger(__name__)

Message = TypeVar("Message")
Result = TypeVar("Result")


def packed(message: object, status: int = 200) -> Response:
    """A reply with a msgpack body."""
    return Response(framing.encode(message), status_code=status, media_type=framing.MSGPACK)


async def error_reply(_request: Request, error: Exception) -> Response:
    """An exception as the msgpack `ErrorBody` of a non-2xx reply (a FastAPI exception handler)."""
    typed = error if isinstance(error, DiptychError) else DiptychError(f"{type(error).__name__}: {error}")
    return packed(typed.body(), typed.status)


async def read_message(request: Request, kind: type[Message], cap: int) -> Message:
    """The request's body as a `kind`. Raises InvalidRequest over `cap` bytes, ProtocolError if it does not fit."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > cap:
            raise InvalidRequest(f"the message is larger than {cap} bytes", param="body")
    return framing.decode(bytes(body), kind)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue


async def while_connected(request: Request, work: Coroutine[object, object, Result]) -> Result:
    """The result of `work`, which is cancelled when the caller leaves. Raises Cancelled then."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_gone(request.receive))
    try:
        await asyncio.wait({task, gone}, return_when="FIRST_COMPLETED")
        if not task.done():
            raise Cancelled("the caller left")
        return task.result()
    finally:
        gone.cancel()
        if not task.done():
            task.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


class EventReply(Response):
    """A chunked stream of frames. The events' generator is closed when the caller leaves.

    An error before the first event becomes a plain error reply, a later one the last event, `Failed`.
    """

    media_type = framing.MSGPACK

    def __init__(self, events: AsyncGenerator[RenderEvent, None]) -> None:
        super().__init__(b"", headers={"cache-control": "no-store"})
        del self.headers["content-length"]
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        task = asyncio.ensure_future(self._send_all(scope, receive, send))
        gone = asyncio.ensure_future(_gone(receive))
        try:
            await asyncio.wait({task, gone}, return_when="FIRST_COMPLETED")
            if task.done():
                task.result()
        finally:
            gone.cancel()
            if not task.done():
                task.cancel()
            await asyncio.gather(task, gone, return_exceptions=True)

    async def _send_all(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False
        error: DiptychError | None = None
        try:
            async with aclosing(self._events) as events:
                async for event in events:
                    if not begun:
                        begun = True
                        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                    await send({"type": "http.response.body", "body": framing.frame(event), "more_body": True})
        except DiptychError as typed:
            error = typed
        except Exception as unexpected:
            log.exception("a render failed in a way that has no type yet")
            error = DiptychError(f"{type(unexpected).__name__}: {unexpected}")
        if error is not None and not begun:
            await packed(error.body(), error.status)(scope, receive, send)
            return
        if error is not None:
            await send({"type": "http.response.body", "body": framing.frame(Failed(error.body())), "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
