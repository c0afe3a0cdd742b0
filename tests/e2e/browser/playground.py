"""The playground page as a test uses it."""

import base64
import io
from dataclasses import dataclass
from typing import Any

from PIL import Image
from playwright.async_api import Locator, Page, expect

# Everything that the page keeps, newest last; images as base64.
STORED = """() => new Promise((resolve, reject) => {
  const opening = indexedDB.open("diptych", 1);
  opening.onerror = () => reject(opening.error);
  opening.onsuccess = () => {
    const asked = opening.result.transaction("pictures").objectStore("pictures").getAll();
    asked.onsuccess = async () => {
      const text = async (blob) => {
        const bytes = new Uint8Array(await blob.arrayBuffer());
        return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
      };
      const pictures = asked.result.map(async ({ settings, blob, before, times }) =>
        ({ settings, times, image: await text(blob), before: before ? await text(before) : "" }));
      resolve(await Promise.all(pictures));
      opening.result.close();
    };
  };
})"""
DROP = """(target, { name, type, data }) => {
  const bytes = Uint8Array.from(atob(data), (character) => character.charCodeAt(0));
  const dataTransfer = new DataTransfer();
  dataTransfer.items.add(new File([bytes], name, { type }));
  for (const kind of ["dragenter", "dragover", "drop"]) {
    target.dispatchEvent(new DragEvent(kind, { dataTransfer, bubbles: true, cancelable: true }));
  }
}"""


def drawing(size: tuple[int, int] = (160, 96)) -> bytes:
    """A PNG to edit."""
    out = io.BytesIO()
    ramps = (Image.linear_gradient("L").resize(size), Image.radial_gradient("L").resize(size), Image.new("L", size, 90))
    Image.merge("RGB", ramps).save(out, "PNG")
    return out.getvalue()


@dataclass(frozen=True)
class Stored:
    """One picture of the gallery, encoded; before: the image that it edits, or b"". times: seconds by phase."""

    settings: dict[str, Any]
    times: dict[str, float]
    image: bytes
    before: bytes


@dataclass(frozen=True)
class Playground:
    """`self(selector)` finds; the rest are the acts that many tests share."""

    page: Page

    def __call__(self, selector: str) -> Locator:
        return self.page.locator(selector)

    async def fill(self, **fields: object) -> None:
        for name, value in fields.items():
            await self(f"#{name}").fill(str(value))

    async def paint(self, **fields: object) -> None:
        """Paint one small image and wait for it."""
        await self.fill(**({"prompt": "a red apple", "size": "128x96", "num_inference_steps": 6} | fields))
        await self("#paint").click()
        await self.done()

    async def done(self) -> None:
        await expect(self("#progress-text")).to_have_text("Done.", timeout=120_000)

    async def drop(self, image: bytes, name: str = "photo.png") -> None:
        data = {"name": name, "type": "image/png", "data": base64.b64encode(image).decode()}
        await self("#drop").evaluate(DROP, data)

    async def stored(self) -> list[Stored]:
        """What this browser keeps, oldest first."""
        found = await self.page.evaluate(STORED)
        images = [{name: base64.b64decode(entry[name]) for name in ("image", "before")} for entry in found]
        return [Stored(entry["settings"], entry["times"], **image) for entry, image in zip(found, images, strict=True)]

    async def open_latest(self) -> None:
        """Open the newest picture of the gallery."""
        await self("#gallery button").first.click()
        await expect(self("#viewer")).to_be_visible()

    async def copied(self, button: str) -> str:
        """What a copy button puts on the clipboard."""
        await self(button).click()
        await expect(self("#viewer-note")).to_contain_text("Copied as")
        return await self.page.evaluate("() => navigator.clipboard.readText()")
