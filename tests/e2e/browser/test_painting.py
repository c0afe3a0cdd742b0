"""Painting in a real browser, against the real stack on the tiny checkpoint."""

import asyncio
import io
import time

import httpx
import pytest
from PIL import Image
from playwright.async_api import expect

from services.wire.info import GatewayInfo
from tests.e2e.browser.playground import drawing
from tests.stack import Stack

RIGHT = {"prompt": "a", "size": "96x128", "num_inference_steps": 4, "guidance_scale": 1, "n": 1, "seed": 1}

pytestmark = [pytest.mark.browser, pytest.mark.e2e]

# Notes every picture that the easel shows, in order.
WATCH_EASEL = """() => {
  window.shown = [];
  new MutationObserver((changes) => {
    for (const { target, type } of changes) if (type === "attributes" && target.src) window.shown.push(target.src);
  }).observe(document.getElementById("now"), { subtree: true, attributes: true, attributeFilter: ["src"] });
}"""
LONG = {"prompt": "a long job", "size": "512x512", "num_inference_steps": 150}


async def idle(stack: Stack) -> None:
    """Return when the gateway and both stages have no job any more."""
    ends = time.monotonic() + 60
    async with httpx.AsyncClient(timeout=10) as client:
        while time.monotonic() < ends:
            info = (await client.get(f"{stack.gateway}/v1/info")).json()
            stages = [(await client.get(f"{url}/v1/info")).json() for url in (stack.ar, stack.dit)]
            jobs = [*info["jobs"].values(), *(stage.get("running", 0) for stage in stages)]
            if not any(jobs):
                return
            await asyncio.sleep(0.1)
    raise TimeoutError(f"jobs still run: {jobs}")


async def test_previews_come_before_the_picture(playground):
    await playground.page.evaluate(WATCH_EASEL)
    await playground.paint(num_inference_steps=12)
    tile = playground("#now .tile")
    assert await tile.get_attribute("data-partial") == "2"
    assert await tile.get_attribute("data-done") == "true"
    assert len(await playground.page.evaluate("window.shown")) == 4  # three previews, then the picture
    [kept] = await playground.stored()
    assert Image.open(io.BytesIO(kept.image)).size == (128, 96)
    assert kept.settings["prompt"] == "a red apple"


async def test_the_split_bar_shows_the_phases(playground):
    await playground.paint()
    [kept] = await playground.stored()
    assert {"ar", "handoff", "denoise", "vae", "encode"} <= set(kept.times)
    assert all(0 <= seconds < 120 for seconds in kept.times.values())
    for name in ("AR", "Hand-off", "Denoise", "VAE", "Encode"):
        await expect(playground("#split .legend")).to_contain_text(name)
    widths = "(bar) => [...bar.querySelectorAll('rect')].map((part) => Number(part.getAttribute('width')))"
    assert sum(await playground("#split .split").evaluate(widths)) == pytest.approx(1)


async def test_several_images_have_a_tile_and_a_seed_each(playground):
    await playground("#seed").fill("40")
    await playground.paint(n=3)
    await expect(playground("#now .tile[data-done]")).to_have_count(3)
    kept = await playground.stored()
    assert sorted(picture.settings["seed"] for picture in kept) == [40, 41, 42]
    assert len({picture.image for picture in kept}) == 3
    await playground("#now .tile").first.click()
    await expect(playground("#viewer")).to_be_visible()


async def test_steps_are_told_and_cancel_ends_the_job_everywhere(playground, stack):
    await playground.fill(**LONG)
    await playground("#paint").click()
    await expect(playground("#progress-text")).to_contain_text("Step", timeout=120_000)
    await expect(playground("#progress-text")).to_contain_text("of 150")
    assert 0 < float(await playground("#progress").get_attribute("value")) < 150
    await expect(playground("#state-queue")).to_contain_text("1 running")
    await expect(playground("#paint")).to_be_disabled()
    await playground("#cancel").click()
    await expect(playground("#progress-text")).to_have_text("Cancelled.")
    await expect(playground("#error")).to_be_hidden()
    await expect(playground("#now .tile")).to_have_count(0)
    await idle(stack)
    assert await playground.stored() == []
    await playground.paint()  # and the page still paints


async def test_the_place_in_the_queue_is_told(playground, open_page, base_url):
    others = [await open_page(base_url) for _ in range(3)]
    for page in others:
        await page.fill(**LONG)
        await page("#paint").click()
        await expect(page("#cancel")).to_be_enabled()
    await playground.fill(**LONG)
    await playground("#paint").click()
    await expect(playground("#progress-text")).to_contain_text("in the queue, about", timeout=60_000)
    await expect(playground("#state-queue")).to_contain_text("waiting")
    for page in (playground, *others):
        await page("#cancel").click()
        await expect(page("#progress-text")).to_have_text("Cancelled.")


async def test_edit_by_drop_and_compare(playground):
    await playground.drop(drawing())
    await expect(playground("#form-title")).to_have_text("Edit")
    await expect(playground("#size")).to_have_value("320x192")  # the image's aspect, about 256x256 pixels
    await playground.paint(prompt="make it blue", size="160x96")
    [kept] = await playground.stored()
    assert kept.before == drawing()
    assert Image.open(io.BytesIO(kept.image)).size == (160, 96)
    await playground.open_latest()
    slider = playground("#viewer-picture input[type=range]")
    before = playground("#viewer-picture .before")
    clip = "(image) => getComputedStyle(image).clipPath"
    half = await before.evaluate(clip)
    await slider.focus()
    for _ in range(20):
        await slider.press("ArrowRight")
    assert await slider.input_value() == "70"
    assert await before.evaluate(clip) != half
    whole = await playground("#viewer-picture .compare").bounding_box()
    await slider.click(position={"x": whole["width"] * 0.1, "y": whole["height"] / 2})
    assert 5 <= int(await slider.input_value()) <= 15


async def test_a_pasted_image_is_edited_too(playground):
    data = drawing()
    paste = """(bytes) => {
      const clipboardData = new DataTransfer();
      clipboardData.items.add(new File([Uint8Array.from(bytes)], "pasted.png", { type: "image/png" }));
      document.dispatchEvent(new ClipboardEvent("paste", { clipboardData, bubbles: true }));
    }"""
    await playground.page.evaluate(paste, list(data))
    await expect(playground("#chosen-image")).to_be_visible()
    await playground("#unchoose").click()
    await expect(playground("#chosen-image")).to_be_hidden()
    await expect(playground("#form-title")).to_have_text("Paint")


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("size", "100x9000", "between 64 and 2048"),
        ("size", "huge", "WIDTHxHEIGHT"),
        ("prompt", "", ""),
        ("num_inference_steps", "100000", ""),
        ("guidance_scale", "99", ""),
        ("n", "11", ""),
        ("seed", "minus one", "whole number"),
    ],
)
async def test_a_bad_value_is_said_in_words_at_its_field(open_page, base_url, field, value, words):
    page = await open_page(base_url, expected=("status of 400 ",))
    await expect(page("#state-dit")).to_have_text("ready")
    await page.fill(**({"prompt": "a red apple", "size": "128x96"} | {field: value}))
    await page("#paint").click()
    await expect(page(f"#{field}")).to_have_attribute("aria-invalid", "true")
    await expect(page(f"#{field}")).to_be_focused()
    await expect(page(f"#{field}-error")).to_be_visible()
    await expect(page(f"#{field}-error")).to_contain_text(words)
    await expect(page("#error")).to_contain_text("is not right")
    assert field + "-error" in await page(f"#{field}").get_attribute("aria-describedby")
    await page.paint(**{field: RIGHT[field]})
    await expect(page("[aria-invalid]")).to_have_count(0)


async def test_an_image_that_is_none_marks_the_image(open_page, base_url):
    page = await open_page(base_url, expected=("status of 400 ",))
    await page.drop(b"this is no picture")
    await page.fill(prompt="make it blue", size="128x96")
    await page("#paint").click()
    await expect(page("#image-error")).to_be_visible()
    await expect(page("#image")).to_be_focused()


async def test_ctrl_enter_paints(playground):
    await playground.fill(prompt="a red apple", size="128x96", num_inference_steps=4)
    await playground("#prompt").press("Control+Enter")
    await playground.done()


async def test_the_status_strip_says_what_the_gateway_says(playground, base_url):
    async with httpx.AsyncClient() as client:
        info = (await client.get(f"{base_url}/v1/info")).json()
    assert {replica["stage"] for replica in info["replicas"]} == {"ar", "dit"}
    for place in ("#state-gateway", "#state-ar", "#state-dit"):
        await expect(playground(place)).to_have_text("ready")
        await expect(playground(place)).to_have_class("state ok")
    await expect(playground("#notice")).to_contain_text("whatever the prompt")
    assert set(info) <= set(GatewayInfo.__struct_fields__)
