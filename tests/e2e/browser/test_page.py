"""How the page looks, and for whom: colours, phones, screen readers, keys. Screenshots for docs/ on request."""

import os
from pathlib import Path

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from playwright.async_api import Page, expect

from tests.e2e.browser.playground import Playground, drawing
from tests.service.gateway.serve import serving

pytestmark = [pytest.mark.browser, pytest.mark.e2e]

IMAGES = Path(__file__).resolve().parents[3] / "docs/images"
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True, "device_scale_factor": 2}
TALL = {"width": 1280, "height": 1230}  # pixels: all of the page
SCHEMES = pytest.mark.parametrize("scheme", ["light", "dark"])
SHOWN = {"prompt": 'A shop window with a sign that says "OPEN"', "size": "512x384", "num_inference_steps": 20}


async def faults_of(page: Page) -> list[str]:
    """What axe-core calls serious or critical in the page as it is now. Runs as an extension would, past the CSP."""
    session = await page.context.new_cdp_session(page)
    await session.send("Runtime.evaluate", {"expression": AXE_SCRIPT})
    found = await page.evaluate("() => axe.run(document, { resultTypes: ['violations'] })")
    assert found["passes"], "axe-core looked at nothing"
    return [
        f"{fault['id']} ({fault['impact']}): {node['html'][:200]}"
        for fault in found["violations"]
        if fault["impact"] in {"serious", "critical"}
        for node in fault["nodes"]
    ]


async def shoot(page: Playground, name: str) -> None:
    """Write docs/images/playground-NAME.jpg if DIPTYCH_SCREENSHOTS is set."""
    if os.environ.get("DIPTYCH_SCREENSHOTS"):
        IMAGES.mkdir(parents=True, exist_ok=True)
        await page.page.screenshot(
            path=IMAGES / f"playground-{name}.jpg", type="jpeg", quality=85, animations="disabled"
        )


async def ready(page: Playground) -> Playground:
    await expect(page("#state-dit")).to_have_text("ready")
    return page


async def sideways(page: Playground) -> int:
    """Pixels by which the page is wider than its window."""
    return await page.page.evaluate("() => document.documentElement.scrollWidth - window.innerWidth")


@SCHEMES
async def test_axe_finds_no_serious_fault_in_any_state(open_page, base_url, scheme):
    page = await ready(await open_page(base_url, expected=("status of 400 ",), color_scheme=scheme))
    states = {"empty": await faults_of(page.page)}
    await page.fill(prompt="a red apple", size="1x1")
    await page("#paint").click()
    await expect(page("#size-error")).to_be_visible()
    states["error"] = await faults_of(page.page)
    await page.drop(drawing())
    await page.paint()
    states["painted"] = await faults_of(page.page)
    await page.open_latest()
    states["viewer"] = await faults_of(page.page)
    assert {state: faults for state, faults in states.items() if faults} == {}


@SCHEMES
async def test_it_follows_the_systems_colours(open_page, base_url, scheme):
    page = await ready(await open_page(base_url, color_scheme=scheme, viewport=TALL, reduced_motion="reduce"))
    colour = await page.page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    bright = sum(map(int, colour.removeprefix("rgb(").removesuffix(")").split(", "))) / 3
    assert (bright > 200) is (scheme == "light")
    assert (bright < 60) is (scheme == "dark")
    await page.paint(prompt="A lighthouse at dusk, oil on canvas", size="384x384")
    await page.paint(prompt="A cut-away drawing of a pocket watch", size="512x320")
    await page.paint(**SHOWN)
    await page("h1").hover()
    await shoot(page, scheme)


@pytest.mark.parametrize("width", [320, 390, 768])
async def test_no_window_is_too_narrow(open_page, base_url, width):
    page = await ready(await open_page(base_url, **(PHONE | {"viewport": {"width": width, "height": 844}})))
    assert await sideways(page) <= 0
    await page.paint(prompt="a-very-long-word-" * 12, size="256x64")
    assert await sideways(page) <= 0
    await page.open_latest()
    assert await sideways(page) <= 0
    box = await page("#viewer").bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= width


async def test_on_a_phone_the_easel_comes_into_view(open_page, base_url):
    page = await ready(await open_page(base_url, **PHONE, reduced_motion="reduce"))
    await page.paint(**SHOWN)
    await expect(page("#now .tile")).to_be_in_viewport()
    await shoot(page, "phone")
    for target in await page("#form button:visible").all():
        assert (await target.bounding_box())["height"] >= 44  # pixels: a finger


async def test_an_edit_beside_its_original(open_page, base_url):
    page = await ready(await open_page(base_url))
    await page.drop(drawing((512, 384)))
    await page.paint(**(SHOWN | {"prompt": "Make it blue"}))
    await page.open_latest()
    await expect(page("#viewer-split .legend")).to_contain_text("Denoise")
    await shoot(page, "edit")
    await page.page.keyboard.press("Escape")
    await expect(page("#viewer")).to_be_hidden()
    await expect(page("#gallery button").first).to_be_focused()


async def test_all_of_it_works_with_the_keyboard(playground):
    await playground.page.keyboard.press("Tab")
    await expect(playground(".skip")).to_be_focused()
    await expect(playground(".skip")).to_be_in_viewport()
    await playground.page.keyboard.press("Enter")
    await playground.page.keyboard.type("a red apple")
    await expect(playground("#prompt")).to_have_value("a red apple")
    await playground.fill(size="128x96", num_inference_steps="4")
    await playground("#size").press("Enter")
    await playground.done()
    await playground("#gallery button").first.focus()
    await playground.page.keyboard.press("Enter")
    await expect(playground("#viewer")).to_be_visible()
    await playground.page.keyboard.press("Control+Enter")  # not through the dialog
    await expect(playground("#progress-text")).to_have_text("Done.")


async def test_an_api_key_is_asked_for_sent_and_never_copied(open_page):
    async with serving(api_keys="secret-one") as gateway:
        page = await open_page(gateway.url, expected=("status of 401 ",))
        await expect(page("#key")).to_be_visible()
        await expect(page("#state-gateway")).to_have_text("needs a key")
        await page.fill(prompt="a red apple", size="128x96")
        await page("#paint").click()
        await expect(page("#key")).to_have_attribute("aria-invalid", "true")
        await expect(page("#key-error")).to_contain_text("API key")
        await page.paint(key="secret-one")
        await expect(page("#state-gateway")).to_have_text("ready")
        await page.page.reload()
        await expect(page("#key")).to_have_value("secret-one")
        await page.open_latest()
        for button in ("#viewer-curl", "#viewer-python"):
            code = await page.copied(button)
            assert "secret-one" not in code
            assert "DIPTYCH_API_KEY" in code


async def test_a_gateway_that_goes_away_is_said(open_page):
    async with serving() as gateway:
        page = await open_page(gateway.url, expected=("ERR_INTERNET_DISCONNECTED",))
        await expect(page("#state-gateway")).to_have_text("ready")
        await page.page.context.set_offline(True)
        await page.fill(prompt="a red apple", size="128x96")
        await page("#paint").click()
        await expect(page("#error")).to_contain_text("The gateway cannot be reached")
        await expect(page("#state-gateway")).to_have_text("not reachable")
        await page.page.context.set_offline(False)
        await page.paint()
        await expect(page("#error")).to_be_hidden()


async def test_the_policy_stops_inline_scripts_and_styles(open_page, base_url):
    page = await open_page(base_url, expected=("Content Security Policy",))
    blocked = await page.page.evaluate("""() => new Promise((resolve) => {
      const found = [];
      document.addEventListener("securitypolicyviolation", (event) => {
        found.push(event.effectiveDirective);
        if (found.length === 2) resolve(found.sort());
      });
      document.body.append(Object.assign(document.createElement("script"), { textContent: "window.ran = true" }));
      document.body.append(Object.assign(document.createElement("div"), { innerHTML: "<p style='color: red'></p>" }));
    })""")
    assert blocked == ["script-src-elem", "style-src-attr"]
    assert await page.page.evaluate("window.ran") is None


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (": keep-alive step 1/6\n\n", "the stream ended early"),
        (
            'data: {"error": {"message": "The engine failed.", "param": null, "code": "engine_failed"}}\n\n',
            "The engine failed.",
        ),
    ],
    ids=["cut", "error"],
)
async def test_a_stream_that_ends_badly_is_said(open_page, body, words):
    async with serving() as gateway:
        page = await open_page(gateway.url)
        reply = {"status": 200, "content_type": "text/event-stream", "body": body}
        await page.page.route("**/v1/images/generations", lambda route: route.fulfill(**reply))
        await page.fill(prompt="a red apple", size="128x96")
        await page("#paint").click()
        await expect(page("#error")).to_contain_text(words)
        await expect(page("#progress-text")).to_have_text("Not painted.")
        await expect(page("#paint")).to_be_enabled()
        assert await page.page.locator("#gallery img").count() == 0
