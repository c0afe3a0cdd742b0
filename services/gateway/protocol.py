"""The HTTP/1.1 front of the gateway: uvicorn's httptools protocol with bounds on the header block.

uvicorn leaves both open with this parser: a client may send headers for ever, in size and in time.
"""

import asyncio
from asyncio import TimerHandle
from typing import cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from services.gateway.errors import ApiError

MAX_HEADERS = 64 * 1024  # bytes of request line and headers
HEADER_SECONDS = 20.0  # from the first byte (or the connection) to the end of the headers
LINGER_SECONDS = 30.0  # that a client may go on sending a body that was refused: closed at once, it never sees why


class BoundedHttp(HttpToolsProtocol):
    """Refuses header blocks that are too long or too slow, and malformed requests, in the error shape."""

    header_seconds = HEADER_SECONDS
    linger_seconds = LINGER_SECONDS
    _header_bytes = 0
    _in_body = False
    _ended = False  # a message ended in the chunk that is being read
    _timer: TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._ended = False
        super().data_received(data)
        if not self._in_body and not self._ended:
            self._header_bytes += len(data)
            if self._header_bytes > MAX_HEADERS and not self.transport.is_closing():
                self._refuse(ApiError(431, f"The request's headers are longer than {MAX_HEADERS} bytes."))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._expect_headers()

    def on_headers_complete(self) -> None:
        self._in_body = True
        self._stop_timer()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_body, self._ended, self._header_bytes = False, True, 0
        self._stop_timer()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._in_body:
            self._stop_timer()
            self._timer = self.loop.call_later(self.linger_seconds, self.transport.close)

    def send_400_response(self, msg: str) -> None:
        """uvicorn's hook for what its parser refuses."""
        if not self.transport.is_closing():
            self._refuse(ApiError(400, msg, code="invalid_http"))

    def _expect_headers(self) -> None:
        self._header_bytes = 0
        self._stop_timer()
        self._timer = self.loop.call_later(self.header_seconds, self._too_slow)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        if not self.transport.is_closing():
            self._refuse(ApiError(408, f"The request's headers took longer than {self.header_seconds:g} s."))

    def _refuse(self, error: ApiError) -> None:
        body = bytes(error.response().body)
        head = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
        self.transport.write(STATUS_LINE[error.status] + head + body)
        self.transport.close()


def bounded(config: uvicorn.Config) -> uvicorn.Config:
    """`config` with this protocol, and without WebSockets, which the gateway has none of."""
    config.http = cast("type[asyncio.Protocol]", BoundedHttp)
    config.ws = "none"
    return config
