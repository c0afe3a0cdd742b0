"""Calls to one stage replica. The one boundary where httpx's errors become ours."""

import logging
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager

import httpx
import msgspec

from services.wire import framing
from services.wire.ar_to_gateway import Prior
from services.wire.dit_to_gateway import RenderEvent
from services.wire.errors import (
    DeadlineExceeded,
    DiptychError,
    ErrorBody,
    ProtocolError,
    StageUnavailable,
    from_body,
)
from services.wire.gateway_to_ar import PriorRequest
from services.wire.gateway_to_dit import RenderRequest
from services.wire.info import StageInfo
from services.wire.probe import Probe

log = logging.getLogger(__name__)

MAX_REPLY = 1024 * 1024  # bytes: a ticket is 1-12 KB, an info about 1 KB
GRACE = 2.0  # seconds that a stage gets to report its own deadline before the gateway's ends the call
PROBE_SECONDS = 10.0  # a first READ takes 0.04 s; a cut network would take for ever
HEADERS = {"content-type": framing.MSGPACK}


@contextmanager
def _typed(url: str) -> Iterator[None]:
    try:
        yield
    except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
        raise StageUnavailable(f"{url} is not reachable: {type(error).__name__} {error}".rstrip()) from error
    except httpx.TimeoutException as error:
        raise DeadlineExceeded(f"{url} did not answer in time ({type(error).__name__})") from error
    except httpx.TransportError as error:
        raise StageUnavailable(f"the connection to {url} broke: {type(error).__name__} {error}".rstrip()) from error


async def _capped(response: httpx.Response, url: str) -> bytes:
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > MAX_REPLY:
            raise ProtocolError(f"{url} sent more than {MAX_REPLY} bytes")
    return bytes(body)


def _refusal(response: httpx.Response, body: bytes, url: str) -> DiptychError:
    try:
        return from_body(framing.decode(body, ErrorBody))
    except ProtocolError:
        text = body[:200].decode("utf-8", "replace")
        return ProtocolError(f"{url} answered {response.status_code} with no error body: {text!r}")


class StageClient:
    """One replica at `url`. All calls raise DiptychError and nothing else, except for cancellation."""

    def __init__(self, url: str, *, connect_timeout: float, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self.url = url
        self._connect = connect_timeout
        self._http = httpx.AsyncClient(
            base_url=url,
            transport=transport,
            trust_env=False,
            limits=httpx.Limits(max_connections=256, max_keepalive_connections=32, keepalive_expiry=15),
        )

    def _timeout(self, budget: float) -> httpx.Timeout:
        return httpx.Timeout(connect=min(self._connect, budget), read=budget, write=min(30, budget), pool=self._connect)

    async def write(self, request: PriorRequest) -> Prior:
        """`POST /v1/priors`."""
        return framing.decode(await self._post("/v1/priors", framing.encode(request), request.budget), Prior)

    async def _post(self, path: str, body: bytes, budget: float) -> bytes:
        timeout = self._timeout(budget + GRACE)
        with _typed(self.url):
            async with self._http.stream("POST", path, content=body, headers=HEADERS, timeout=timeout) as response:
                reply = await _capped(response, self.url)
                if response.is_success:
                    return reply
                raise _refusal(response, reply, self.url)

    async def render(self, request: RenderRequest) -> AsyncGenerator[RenderEvent, None]:
        """`POST /v1/renders`. Closing the iterator early closes the connection, which aborts the render."""
        timeout = self._timeout(request.budget + GRACE)
        body = framing.encode(request)
        with _typed(self.url):
            async with self._http.stream(
                "POST", "/v1/renders", content=body, headers=HEADERS, timeout=timeout
            ) as response:
                if not response.is_success:
                    raise _refusal(response, await _capped(response, self.url), self.url)
                async for event in framing.events(response.aiter_raw()):
                    yield event

    async def probe(self) -> Probe:
        """`POST /v1/probes` of an AR: a ticket to a few bytes."""
        return framing.decode(await self._post("/v1/probes", b"", PROBE_SECONDS), Probe)

    async def fetch(self, probe: Probe) -> None:
        """`POST /v1/probes` of a DiT: fetch those bytes."""
        await self._post("/v1/probes", framing.encode(probe), PROBE_SECONDS)

    async def forget(self, path: str) -> None:
        """`DELETE` a prior or a render. Idempotent; a replica that cannot be reached has nothing to forget."""
        try:
            with _typed(self.url):
                response = await self._http.delete(path, timeout=self._timeout(10))
            if not response.is_success:
                log.warning("%s%s: DELETE answered %d", self.url, path, response.status_code)
        except DiptychError as error:
            log.info("DELETE %s%s failed, its lease will end it: %s", self.url, path, error)

    async def info(self, timeout: float) -> StageInfo:
        """`GET /v1/info`."""
        with _typed(self.url):
            async with self._http.stream("GET", "/v1/info", timeout=self._timeout(timeout)) as response:
                body = await _capped(response, self.url)
        if not response.is_success:
            raise ProtocolError(f"{self.url}/v1/info answered {response.status_code}")
        try:
            return msgspec.json.decode(body, type=StageInfo)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ProtocolError(f"{self.url}/v1/info is not a StageInfo: {error}") from error

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()
