"""What every request passes through, as plain ASGI: identity and timing, the last error net, and body caps."""

import asyncio
import re
import secrets
import time

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.gateway.errors import ApiError, from_any
from services.gateway.settings import GatewaySettings
from services.observe import metrics
from services.observe.context import enter_trace, request_context

_SANE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
EDITS = "/v1/images/edits"
FORM_OVERHEAD = 2**20  # bytes that a form may have around its image


class Identity:
    """Gives each request an id and a start time, and each reply `x-request-id` and `openai-processing-ms`."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begun = time.monotonic()
        given = Headers(scope=scope).get("x-request-id", "")
        request_id = given if _SANE_ID.fullmatch(given) else f"req_{secrets.token_hex(12)}"
        scope.setdefault("state", {})["request_id"] = request_id
        status = 500

        async def stamped(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["x-request-id"] = request_id
                headers["openai-processing-ms"] = str(round((time.monotonic() - begun) * 1000))
                headers["x-content-type-options"] = "nosniff"
            await send(message)

        with request_context(request_id):
            enter_trace(Headers(scope=scope).get("traceparent"))
            try:
                await self.app(scope, receive, stamped)
            finally:
                route = getattr(scope.get("route"), "path", "none")
                metrics.REQUESTS.labels(route, str(status)).inc()
                metrics.REQUEST_SECONDS.labels(route).observe(time.monotonic() - begun)


class ErrorNet:
    """Any exception that is left becomes a reply in the error shape, inside CORS, so that browsers can read it."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def watched(message: Message) -> None:
            nonlocal begun
            begun = begun or message["type"] == "http.response.start"
            await send(message)

        try:
            await self.app(scope, receive, watched)
        except asyncio.CancelledError:  # a second SIGTERM: the process ends now
            if not begun and scope["type"] == "http":
                await ApiError(503, "This gateway was told to stop at once.", retry_after=5).response()(
                    scope, receive, send
                )
            raise
        except Exception as error:
            if begun or scope["type"] != "http":
                raise
            await from_any(error).response()(scope, receive, send)


class Cors(CORSMiddleware):
    """Starlette's, with refusals in the error shape."""

    def preflight_response(self, request_headers: Headers) -> Response:
        reply = super().preflight_response(request_headers)
        if reply.status_code < 400:
            return reply
        kept = {name: value for name, value in reply.headers.items() if not name.startswith("content-")}
        return ApiError(400, f"{bytes(reply.body).decode()}.", code="cors_refused", headers=kept).response()


class BodyCap:
    """Counts the bytes that arrive, whatever length was declared, and gives every body a deadline.

    JSON is held in memory while its request runs, so all JSON bodies together have a budget too; forms spool to disk.
    Too many requests at once get a 503.
    """

    def __init__(self, app: ASGIApp, settings: GatewaySettings) -> None:
        self.app = app
        self.settings = settings
        self.buffered = 0
        self.requests = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if self.requests >= self.settings.max_requests and scope["path"].startswith("/v1/images"):
            raise ApiError(503, "Too many requests are in flight.")
        body = _Body(self, receive, Headers(scope=scope), scope["path"])
        self.requests += 1
        try:
            await self.app(scope, body.receive, send)
        finally:
            self.requests -= 1
            self.buffered -= body.held

    def cap(self, path: str, headers: Headers) -> tuple[int, bool]:
        """Bytes allowed, and whether they stay in memory."""
        if path == EDITS and headers.get("content-type", "").lower().startswith("multipart/form-data"):
            return self.settings.max_image_bytes + FORM_OVERHEAD, False
        return (self.settings.max_json_edit_bytes if path == EDITS else self.settings.max_json_bytes), True


class _Body:
    def __init__(self, owner: BodyCap, receive: Receive, headers: Headers, path: str) -> None:
        self.owner = owner
        self.source = receive
        self.limit, self.in_memory = owner.cap(path, headers)
        self.declared = headers.get("content-length", "")
        self.seen = self.held = 0
        self.done = False
        self.ends = asyncio.get_running_loop().time() + owner.settings.upload_timeout

    async def receive(self) -> Message:
        if self.done:
            return await self.source()
        if self.declared.isdigit() and int(self.declared[:20]) > self.limit:
            raise self._too_large()
        message = await self._next()
        self.done = message["type"] != "http.request" or not message.get("more_body", False)
        self._count(len(message.get("body", b"")))
        return message

    async def _next(self) -> Message:
        now = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout_at(min(now + self.owner.settings.body_timeout, self.ends)):
                return await self.source()
        except TimeoutError as late:
            self.done = True
            raise ApiError(408, "The body did not arrive in time.", headers={"connection": "close"}) from late

    def _count(self, size: int) -> None:
        self.seen += size
        if self.seen > self.limit:
            raise self._too_large()
        if self.in_memory:
            self.held += size
            self.owner.buffered += size
            if self.owner.buffered > self.owner.settings.max_buffered_bytes:
                raise ApiError(503, "Too many large requests are in flight.")

    def _too_large(self) -> ApiError:
        self.done = True
        return ApiError(413, f"The body is larger than {self.limit} bytes.")
