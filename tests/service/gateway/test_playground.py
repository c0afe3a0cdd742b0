"""The playground as bytes and headers; tests/e2e/browser drives it."""

import gzip
import re
from urllib.parse import urljoin

import pytest
from click.testing import CliRunner

from services import cli
from services.gateway.app import create_app
from services.gateway.routes.playground import read_pages
from services.wire.info import GatewayInfo
from tests.service.gateway.fakes import FakePainter
from tests.service.gateway.serve import serving

LOADED = re.compile(r'(?:src|href)="(/playground/[^"]+)"|from "(\./[^"]+)"')
NAMESPACE = "http://www.w3.org/2000/svg"  # a name, not an address: nothing is fetched from it
SMALL = 100_000  # bytes, gzipped: the page must open at once on a phone


async def loaded(gateway) -> dict[str, str]:
    """The page and everything that it loads, followed as a browser would: text by path."""
    found: dict[str, str] = {}
    left = ["/"]
    while left:
        path = left.pop()
        reply = await gateway.http.get(path)
        assert reply.status_code == 200, path
        found[path] = reply.text
        links = (urljoin(path, absolute or relative) for absolute, relative in LOADED.findall(reply.text))
        left += [link for link in links if link not in found and link not in left]
    return found


async def test_the_page_is_whole_small_and_loads_nothing_from_elsewhere(gateway):
    files = await loaded(gateway)
    assert {path.rpartition("/")[2] or "index.html" for path in files} == set(read_pages())
    for path, text in files.items():
        assert not re.search(r"https?://", text.replace(NAMESPACE, "")), path
    assert sum(len(gzip.compress(text.encode())) for text in files.values()) < SMALL


async def test_the_policy_is_strict_and_the_page_needs_no_exception(gateway):
    reply = await gateway.http.get("/")
    policy = dict(part.strip().partition(" ")[::2] for part in reply.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\bon[a-z]+=", reply.text)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("main.js", "text/javascript"), ("style.css", "text/css"), ("icon.svg", "image/svg+xml")],
)
async def test_each_file_has_its_type_and_a_head(gateway, name, kind):
    reply = await gateway.http.head(f"/playground/{name}")
    assert (reply.status_code, reply.content) == (200, b"")
    assert reply.headers["content-type"].partition(";")[0] == kind


@pytest.mark.parametrize("name", ["nothing.js", "__init__.py", "..%2fapp.py", "%2e%2e%2fapp.py"])
async def test_nothing_else_is_served(gateway, name):
    reply = await gateway.http.get(f"/playground/{name}")
    assert (reply.status_code, reply.json()["error"]["code"]) == (404, "not_found")


async def test_the_page_needs_no_key_and_what_it_calls_does():
    async with serving(api_keys="secret") as gateway:
        assert set(await loaded(gateway)) > {"/", "/playground/main.js"}
        assert (await gateway.http.get("/v1/info")).status_code == 401
        reply = await gateway.http.get("/v1/info", headers={"authorization": "Bearer secret"})
        assert reply.status_code == 200


async def test_the_strip_gets_what_it_reads(gateway):
    gateway.painter.told = GatewayInfo(
        instance="gateway-1", ready=True, jobs={"queue": 2, "ar": 1, "ready": 0, "dit": 1}, max_jobs=8
    )
    said = (await gateway.http.get("/v1/info")).json()
    assert said["ready"] is True
    assert said["jobs"] == {"queue": 2, "ar": 1, "ready": 0, "dit": 1}


@pytest.mark.parametrize("path", ["/", "/playground/main.js"])
async def test_off_means_that_it_is_not_there(path):
    async with serving(playground=False) as gateway:
        reply = await gateway.http.get(path)
        assert (reply.status_code, reply.json()["error"]["code"]) == (404, "not_found")
        assert (await gateway.generate()).status_code == 200


@pytest.mark.parametrize(
    ("flags", "variable", "served"),
    [
        ([], "", True),
        (["--no-playground"], "", False),
        ([], "false", False),
        (["--no-playground"], "true", False),
        (["--playground"], "false", True),
    ],
)
def test_a_flag_beats_the_variable(monkeypatch, flags, variable, served):
    started = []
    monkeypatch.setattr("services.gateway.main.run", lambda settings: started.append(settings) or 0)
    result = CliRunner().invoke(cli.main, ["gateway", *flags], env={"DIPTYCH_PLAYGROUND": variable})
    assert result.exit_code == 0, result.output
    app = create_app(started[0], FakePainter())
    assert ("/" in {route.path for route in app.routes}) is served
