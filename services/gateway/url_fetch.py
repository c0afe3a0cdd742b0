"""Fetching an edit's image from the web, off by default: public addresses only, at every hop, within caps.

The name is resolved once a hop and the connection goes to that address (with the name in Host and SNI), so that a DNS
answer that changes between check and use (rebinding) gains nothing.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable
from tempfile import SpooledTemporaryFile
from typing import IO

import httpx

from services.gateway.errors import ApiError, bad_request

MAX_HOPS = 4
PORTS = frozenset({80, 443})
SPOOL = 2**20  # bytes in memory until a file on disk is used
Resolve = Callable[[str, int], Awaitable[list[str]]]
_NAT64 = ipaddress.ip_network("64:ff9b::/96")  # RFC 6052
_NAT64_LOCAL = ipaddress.ip_network("64:ff9b:1::/48")  # RFC 8215


async def resolve(host: str, port: int) -> list[str]:
    """All addresses of `host`. Raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


def is_public(text: str) -> bool:
    """Whether an address is one that anybody may reach: nothing private, loopback, link-local (metadata services live
    there), shared, reserved or multicast, also when wrapped in IPv6.
    """
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        if address in _NAT64 or address in _NAT64_LOCAL or address.teredo is not None:
            return False
        inner = address.ipv4_mapped or address.sixtofour
        if inner is not None:
            return is_public(str(inner))
        if int(address) < 2**32:  # the deprecated IPv4-compatible form
            return False
    return address.is_global and not address.is_multicast


class UrlFetcher:
    """Fetches images. resolve, allowed, ports: replaced in tests only."""

    def __init__(
        self,
        max_bytes: int,
        timeout: float,
        *,
        resolve: Resolve = resolve,
        allowed: Callable[[str], bool] = is_public,
        ports: frozenset[int] | None = PORTS,
    ) -> None:
        self._max_bytes = max_bytes
        self._timeout = timeout
        self._resolve = resolve
        self._allowed = allowed
        self._ports = ports

    async def fetch(self, url: str, param: str) -> tuple[IO[bytes], int]:
        """A temporary file and its size in bytes. Raises ApiError 400 that names `param`."""
        try:
            async with asyncio.timeout(self._timeout):
                return await self._follow(url, param)
        except TimeoutError as error:
            raise bad_request(f"The image did not arrive within {self._timeout:g} s.", param) from error
        except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError) as error:
            raise bad_request("The image could not be fetched from its URL.", param) from error

    async def _follow(self, url: str, param: str) -> tuple[IO[bytes], int]:
        target = httpx.URL(url)
        async with httpx.AsyncClient(follow_redirects=False, trust_env=False, timeout=self._timeout) as client:
            for _ in range(MAX_HOPS):
                request = await self._pinned(client, target, param)
                reply = await client.send(request, stream=True)
                try:
                    if reply.has_redirect_location:
                        target = target.join(reply.headers["location"])
                        continue
                    return await self._body(reply, param)
                finally:
                    await reply.aclose()
        raise bad_request(f"The image's URL was redirected more than {MAX_HOPS - 1} times.", param)

    async def _pinned(self, client: httpx.AsyncClient, url: httpx.URL, param: str) -> httpx.Request:
        """A request to a checked address of `url`'s host. Raises ApiError 400."""
        port = url.port or (443 if url.scheme == "https" else 80)
        if url.scheme not in {"http", "https"} or not url.host or url.userinfo:
            raise bad_request("The image's URL must be http(s), without credentials.", param)
        if self._ports is not None and port not in self._ports:
            raise bad_request("The image's URL must use port 80 or 443.", param)
        addresses = await self._resolve(url.host, port)
        if not addresses or not all(self._allowed(address) for address in addresses):
            raise bad_request("The image's URL does not lead to a public address.", param)
        return client.build_request(
            "GET",
            url.copy_with(host=addresses[0], fragment=None),
            headers={"host": url.netloc.decode("ascii"), "accept": "image/*", "accept-encoding": "identity"},
            extensions={"sni_hostname": url.host},
        )

    async def _body(self, reply: httpx.Response, param: str) -> tuple[IO[bytes], int]:
        if reply.status_code != httpx.codes.OK:
            raise bad_request(f"The image's URL answered with status {reply.status_code}.", param)
        file: IO[bytes] = SpooledTemporaryFile(SPOOL)  # noqa: SIM115 - the caller closes it
        size = 0
        async for chunk in reply.aiter_raw():
            size += len(chunk)
            if size > self._max_bytes:
                file.close()
                raise ApiError(413, f"The image is larger than {self._max_bytes} bytes.", param=param)
            file.write(chunk)
        return file, size
