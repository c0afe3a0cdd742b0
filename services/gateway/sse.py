"""Images as server-sent events: partial images as they come, one `completed` an image, keep-alive comments between.

Event names and fields: OpenAI's `ImageGen*Event` and `ImageEdit*Event` schemas. No `[DONE]` at the end.
"""

import json
import math
import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from services.gateway.errors import from_any
from services.gateway.jobs import Job, Painted, Painter, Partial, Queued
from services.gateway.merging import Merged
from services.gateway.orders import Order
from services.gateway.painting import before, places
from services.gateway.reply import Piece, ReaderStalled, facts, send_pieces, usage
from services.serving.http import while_connected
from services.wire.errors import Cancelled

TICK = 1.0  # seconds between two looks at the progress
PATIENCE = 2.0  # seconds that a stream waits for its first sign of life, so that an early error is a plain HTTP error
AFTER_DEADLINE = 30.0  # seconds that a slow reader gets to take what was painted in time
HEADERS = {"cache-control": "no-cache, no-transform", "x-accel-buffering": "no"}


def _waiting(place: Queued | None) -> dict[str, str]:
    """Headers for those that wait: the place in the queue from 0, and whole seconds until the image should be done."""
    if place is None:
        return {}
    return {"x-queue-position": str(place.position), "x-estimated-seconds": str(math.ceil(place.estimate))}


class EventStream(Response):
    """The reply to `stream: true`. The caller's leaving ends the jobs."""

    media_type = "text/event-stream"

    def __init__(self, painter: Painter, order: Order, keep_alive: float) -> None:
        super().__init__(headers=HEADERS)
        del self.headers["content-length"]
        self._painter = painter
        self._order = order
        self._keep_alive = keep_alive

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises DiptychError or ApiError as long as nothing was sent."""
        request = Request(scope, receive)
        with places(self._painter, self._order.jobs):
            try:
                await while_connected(request, self._run(send))
            except Cancelled:
                if not await request.is_disconnected():
                    raise

    async def _run(self, send: Send) -> None:
        ends = max(job.deadline for job in self._order.jobs) + AFTER_DEADLINE
        async with before(ends), Merged(self._painter, self._order.jobs) as merged:
            await merged.first_sign(PATIENCE)
            self.headers.update(_waiting(merged.place()))
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            try:
                await self._pictures(merged, send)
            except ReaderStalled:
                return
            except Exception as error:  # noqa: BLE001 - the reply has begun: whatever it was, it travels as an event
                await send_pieces(send, [f"data: {json.dumps(from_any(error).body())}\n\n"])
            await send({"type": "http.response.body", "body": b""})

    async def _pictures(self, merged: Merged, send: Send) -> None:
        left = len(self._order.jobs)
        told, quiet_since = "", time.monotonic()
        while left:
            picture = await merged.next(min(TICK, self._keep_alive))
            if picture is None:
                news = merged.progress()
                if news == told and time.monotonic() - quiet_since < self._keep_alive:
                    continue
                await send_pieces(send, [f": keep-alive {news}\n\n"])
                told = news
            else:
                await send_pieces(send, self._event(*picture))
                left -= isinstance(picture[1], Painted)
            quiet_since = time.monotonic()

    def _event(self, job: Job, picture: Partial | Painted) -> list[Piece]:
        operation = "image_edit" if self._order.edit else "image_generation"
        rest: dict[str, Any] = {"created_at": int(time.time()), **facts(self._order)}
        if isinstance(picture, Partial):
            name = f"{operation}.partial_image"
            rest |= {"partial_image_index": picture.index, "seed": job.seed}
        else:
            name = f"{operation}.completed"
            times = {phase: round(seconds, 4) for phase, seconds in picture.times.items()}
            rest |= {"usage": usage([picture]), "seed": picture.seed, "times": times}
        head = f'event: {name}\ndata: {{"type":"{name}","b64_json":"'
        return [head, picture.image, '",' + json.dumps(rest, separators=(",", ":"))[1:] + "\n\n"]
