"""The gallery: kept, opened, painted again, downloaded, and turned into code that works."""

import io
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image
from playwright.async_api import expect

from tests.e2e.browser.playground import drawing

HARD_TO_QUOTE = 'it\'s "quoted" $HOME `here` \\n\nand on'

pytestmark = [pytest.mark.browser, pytest.mark.e2e]


async def test_a_reload_keeps_the_gallery(playground):
    await playground.paint(prompt="the first")
    await playground.paint(prompt="the second")
    await playground.page.reload()
    pictures = playground("#gallery img")
    await expect(pictures).to_have_count(2)
    assert [await picture.get_attribute("alt") for picture in await pictures.all()] == ["the second", "the first"]
    await playground.open_latest()
    await expect(playground("#viewer-settings")).to_contain_text("the second")
    await playground("#viewer-forget").click()
    await expect(pictures).to_have_count(1)
    playground.page.on("dialog", lambda dialog: dialog.accept())
    await playground("#clear").click()
    await expect(pictures).to_have_count(0)
    await playground.page.reload()
    await expect(playground("#gallery-empty")).to_be_visible()


async def test_painting_again_gives_the_same_picture(playground):
    await playground.paint(negative_prompt="blurry", guidance_scale=2.5)
    await playground.fill(prompt="something else", seed="5", size="64x64")
    await playground.open_latest()
    await playground("#viewer-rerun").click()
    await expect(playground("#viewer")).to_be_hidden()
    await expect(playground("#gallery img")).to_have_count(2)
    await playground.done()
    first, second = await playground.stored()
    assert first.settings == second.settings
    assert first.image == second.image


async def test_using_the_settings_only_fills_the_form(playground):
    await playground.drop(drawing())
    await playground.paint(prompt="make it blue")
    await playground("#unchoose").click()
    await playground.fill(prompt="something else", size="64x64")
    await playground.open_latest()
    await playground("#viewer-again").click()
    await expect(playground("#prompt")).to_have_value("make it blue")
    await expect(playground("#size")).to_have_value("128x96")
    await expect(playground("#lock")).to_have_attribute("aria-pressed", "true")
    await expect(playground("#chosen-image")).to_be_visible()


async def test_a_picture_can_be_edited_on(playground):
    await playground.paint()
    await playground.open_latest()
    await playground("#viewer-edit").click()
    await expect(playground("#form-title")).to_have_text("Edit")
    await playground.paint(prompt="make it blue")
    first, second = await playground.stored()
    assert second.before == first.image


async def test_a_locked_seed_stays_and_an_open_one_moves(playground):
    await playground("#seed").fill("77")
    await expect(playground("#lock")).to_have_attribute("aria-pressed", "true")
    await playground.paint()
    await playground("#lock").click()
    await playground.paint()
    await playground("#dice").click()
    drawn = int(await playground("#seed").input_value())
    await playground.paint()
    seeds = [picture.settings["seed"] for picture in await playground.stored()]
    assert seeds[0] == 77
    assert seeds[1] != 77
    assert seeds[2] == drawn


@pytest.mark.parametrize("kind", ["png", "jpeg", "webp"])
async def test_a_download_is_the_picture_under_its_name(playground, tmp_path, kind):
    await playground("#output_format").select_option(kind)
    await playground("#seed").fill("9")
    await playground.paint()
    await playground.open_latest()
    async with playground.page.expect_download() as waiting:
        await playground("#viewer-download").click()
    download = await waiting.value
    assert download.suggested_filename == f"diptych-9.{kind}"
    await download.save_as(tmp_path / "saved")
    [kept] = await playground.stored()
    assert (tmp_path / "saved").read_bytes() == kept.image
    assert Image.open(io.BytesIO(kept.image)).format == kind.upper()


@pytest.mark.parametrize("edit", [False, True], ids=["generation", "edit"])
async def test_the_copied_code_makes_the_same_picture(playground, tmp_path: Path, edit: bool):
    if edit:
        await playground.drop(drawing())
    await playground.paint(prompt=HARD_TO_QUOTE, negative_prompt="@file;x", guidance_scale=2)
    await playground.open_latest()
    if edit:
        async with playground.page.expect_download() as waiting:
            await playground("#viewer-before").click()
        download = await waiting.value
        await download.save_as(tmp_path / download.suggested_filename)
    [kept] = await playground.stored()
    made = tmp_path / "image-0.png"
    for button, command in (("#viewer-curl", ["bash", "-ec"]), ("#viewer-python", [sys.executable, "-c"])):
        code = await playground.copied(button)
        subprocess.run([*command, code], cwd=tmp_path, check=True, timeout=120)
        assert made.read_bytes() == kept.image
        made.unlink()
