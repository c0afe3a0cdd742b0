"""Fetched image URLs: public addresses only, at every hop, pinned, and within caps."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from services.gateway.errors import ApiError
from services.gateway.url_fetch import UrlFetcher, is_public


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "198.18.0.1",
        "::1",
        "::",
        "fe80::1%eth0",
        "fc00::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::7f00:1",
        "64:ff9b::7f00:1",
        "64:ff9b:1::1",
        "2002:7f00:1::",
        "2001:0:1::1",
        "2001:db8::1",
    ],
)
def test_private_addresses_are_not_public(address):
    assert not is_public(address)


@pytest.mark.parametrize("address", ["1.1.1.1", "93.184.215.14", "2606:4700:4700::1111", "::ffff:1.1.1.1"])
def test_public_addresses_are(address):
    assert is_public(address)


class Site:
    """A web server on loopback; `reply` is what it answers to each path. Remembers the requests."""

    def __init__(self) -> None:
        self.replies: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.port = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.requests.append(head)
        reply = self.replies[head.split(" ")[1]]
        writer.write(reply)
        if reply:
            await writer.drain()
            writer.close()


def ok(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body


def moved(location: str) -> bytes:
    return f"HTTP/1.1 302 Found\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n".encode()


@asynccontextmanager
async def running() -> AsyncIterator[Site]:
    site = Site()
    server = await asyncio.start_server(site.answer, "127.0.0.1", 0)
    site.port = server.sockets[0].getsockname()[1]
    try:
        yield site
    finally:
        server.close()


NAMES = {"public.example": "127.0.0.1", "private.example": "10.0.0.1"}


def fetcher(max_bytes=1000, timeout=5.0, names=NAMES, **options) -> UrlFetcher:
    """Takes loopback for public, since that is where the tests' site is."""

    async def resolve(host: str, _port: int) -> list[str]:
        if host not in names:
            raise OSError("no such name")
        return [names[host]]

    return UrlFetcher(max_bytes, timeout, resolve=resolve, allowed=lambda a: a == "127.0.0.1", ports=None, **options)


async def refused(fetch: UrlFetcher, url: str) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await fetch.fetch(url, "images[0].image_url")
    assert caught.value.param == "images[0].image_url"
    return caught.value


async def test_an_image_arrives_from_the_checked_address():
    async with running() as site:
        site.replies["/a.png"] = ok(b"image")
        file, size = await fetcher().fetch(f"http://public.example:{site.port}/a.png#x", "p")
        with file:
            file.seek(0)
            assert (file.read(), size) == (b"image", 5)
        assert f"host: public.example:{site.port}" in site.requests[0].lower()


async def test_the_name_is_resolved_once_a_hop():
    """What a rebinding attack would need: the second answer for the same connection."""
    asked: list[str] = []

    async def resolve(host: str, _port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1" if len(asked) == 1 else "10.0.0.1"]

    async with running() as site:
        site.replies["/"] = ok(b"x")
        fetch = UrlFetcher(10, 5, resolve=resolve, allowed=lambda a: a == "127.0.0.1", ports=None)
        file, _ = await fetch.fetch(f"http://rebind.example:{site.port}/", "p")
        file.close()
    assert asked == ["rebind.example"]


async def test_each_redirect_is_checked():
    async with running() as site:
        site.replies["/in"] = moved("http://private.example/secret")
        site.replies["/ok"] = moved("/a.png")
        site.replies["/a.png"] = ok(b"image")
        base = f"http://public.example:{site.port}"
        assert "public address" in (await refused(fetcher(), f"{base}/in")).message
        file, size = await fetcher().fetch(f"{base}/ok", "p")
        file.close()
        assert size == 5


async def test_redirects_end_somewhere():
    async with running() as site:
        site.replies["/loop"] = moved("/loop")
        assert "redirected" in (await refused(fetcher(), f"http://public.example:{site.port}/loop")).message
        assert len(site.requests) == 4


async def test_one_private_address_among_several_is_enough_to_refuse():
    async def resolve(_host: str, _port: int) -> list[str]:
        return ["1.1.1.1", "169.254.169.254"]

    assert (await refused(UrlFetcher(10, 5, resolve=resolve), "http://mixed.example/")).status == 400


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/x",
        "http://[::1]/x",
        "http://2130706433/x",
        "http://0x7f.1/x",
        "http://localhost/x",
        "http://169.254.169.254/latest/meta-data",
        "http://1.1.1.1:22/",
        "http://user:pass@1.1.1.1/",
        "ftp://1.1.1.1/",
        "http:///x",
        "http://",
        "https://" + "a" * 300 + "/",
        "http://ex\x00ample/",
    ],
)
async def test_urls_that_must_not_be_fetched(url):
    assert (await refused(UrlFetcher(10, 5), url)).status == 400


async def test_bytes_are_capped_whatever_is_declared():
    async with running() as site:
        site.replies["/big"] = b"HTTP/1.1 200 OK\r\n\r\n" + bytes(2000)
        assert (await refused(fetcher(), f"http://public.example:{site.port}/big")).status == 413


async def test_time_is_capped():
    async with running() as site:
        site.replies["/slow"] = b""
        error = await refused(fetcher(timeout=0.2), f"http://public.example:{site.port}/slow")
        assert "0.2 s" in error.message


@pytest.mark.parametrize("reply", [b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", b"garbage\r\n\r\n"])
async def test_other_answers_are_a_400(reply):
    async with running() as site:
        site.replies["/x"] = reply
        assert (await refused(fetcher(), f"http://public.example:{site.port}/x")).status == 400
