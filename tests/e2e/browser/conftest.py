"""The system's Chromium on the playground, and what every page must not do."""

import shutil
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import pytest
from playwright.async_api import Browser, Page, Request, async_playwright, expect

from tests.e2e.browser.playground import Playground

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--no-sandbox",  # CI runs as root
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)
USUAL = {"viewport": {"width": 1280, "height": 900}, "permissions": ["clipboard-read", "clipboard-write"]}
PAINTING_TIMEOUT = 120_000  # milliseconds; a small image on a busy CPU

expect.set_options(timeout=15_000)


@pytest.fixture(scope="session")
async def chromium() -> AsyncIterator[Browser]:
    """One headless browser for all tests."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        yield browser
        await browser.close()


@dataclass
class Faults:
    """What went wrong in a page. expected: parts of the errors that the test provokes (Chromium logs them all)."""

    origin: str
    expected: tuple[str, ...] = ()
    found: list[str] = field(default_factory=list)

    def watch(self, page: Page) -> None:
        page.on("console", lambda message: self._said(message.type, message.text))
        page.on("pageerror", lambda error: self.found.append(f"uncaught: {error}"))
        page.on("request", self._asked)

    def _said(self, kind: str, text: str) -> None:
        if any(part in text for part in self.expected):
            return
        if kind in {"error", "warning"}:
            self.found.append(f"{kind}: {text}")

    def _asked(self, request: Request) -> None:
        if not request.url.startswith((f"{self.origin}/", f"blob:{self.origin}/", "data:")):
            self.found.append(f"a request left the origin: {request.url}")


@pytest.fixture
async def open_page(chromium: Browser) -> AsyncIterator[Callable]:
    """`await open_page(url, **options of the browser context)`: a page of a fresh profile. Faults fail the test."""
    opened: list[tuple[Page, Faults]] = []

    async def open_one(url: str, expected: tuple[str, ...] = (), **options) -> Playground:
        context = await chromium.new_context(**(USUAL | options))
        context.set_default_timeout(PAINTING_TIMEOUT)
        page = await context.new_page()
        faults = Faults(url, expected)
        faults.watch(page)
        opened.append((page, faults))
        await page.goto(f"{url}/")
        return Playground(page)

    yield open_one
    for page, _ in opened:
        await page.context.close()
    assert [fault for _, faults in opened for fault in faults.found] == []


@pytest.fixture
async def playground(open_page, base_url: str) -> Playground:
    """The page of the real stack, when its services are ready."""
    page = await open_page(base_url)
    await expect(page("#state-dit")).to_have_text("ready")
    return page
