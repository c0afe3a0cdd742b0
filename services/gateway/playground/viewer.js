// The gallery's list, and the dialog around one picture: settings, re-run, download, code, before and after.

import * as gallery from "./gallery.js";
import { asCurl, asPython } from "./snippets.js";

const $ = (id) => document.getElementById(id);
let shown = null; // the picture in the dialog
let urls = []; // object URLs of the dialog
let thumbnails = [];

export async function refresh() {
  const pictures = (await gallery.all()).reverse();
  thumbnails.forEach((url) => URL.revokeObjectURL(url));
  thumbnails = pictures.map((picture) => URL.createObjectURL(picture.blob));
  $("gallery").replaceChildren(...pictures.map((picture, index) => item(picture, thumbnails[index])));
  $("clear").disabled = pictures.length === 0;
}

function item(picture, url) {
  const image = Object.assign(document.createElement("img"), { src: url, alt: picture.settings.prompt, loading: "lazy" });
  const button = Object.assign(document.createElement("button"), { type: "button" });
  button.append(image);
  button.addEventListener("click", () => open(picture));
  const entry = document.createElement("li");
  entry.append(button);
  return entry;
}

function open(picture) {
  shown = picture;
  const [after, before] = [picture.blob, picture.before].map((blob) => blob && URL.createObjectURL(blob));
  urls = [after, before].filter(Boolean);
  $("viewer-picture").replaceChildren(...(before ? comparison(before, after) : [picturePart(after, "The picture")]));
  $("viewer-settings").replaceChildren(...Object.entries(picture.settings).flatMap(definition));
  const link = $("viewer-download");
  link.href = after;
  link.download = `diptych-${picture.settings.seed}.${picture.settings.output_format}`;
  $("viewer-note").textContent = "";
  $("viewer").showModal();
}

function picturePart(src, alt, name = "") {
  return Object.assign(document.createElement("img"), { src, alt, className: name });
}

function comparison(before, after) {
  const box = Object.assign(document.createElement("div"), { className: "compare" });
  const old = picturePart(before, "Before", "before");
  box.append(picturePart(after, "After"), old);
  const slider = Object.assign(document.createElement("input"), { type: "range", min: 0, max: 100, value: 50 });
  slider.setAttribute("aria-label", "Before and after: share of the image before");
  slider.addEventListener("input", () => (old.style.clipPath = `inset(0 ${100 - slider.value}% 0 0)`));
  return [box, slider];
}

function definition([name, value]) {
  const term = Object.assign(document.createElement("dt"), { textContent: name.replaceAll("_", " ") });
  return [term, Object.assign(document.createElement("dd"), { textContent: String(value) })];
}

async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    $("viewer-note").textContent = `Copied as ${what}.`;
  } catch {
    // Without a secure origin there is no clipboard: show the text for the user to copy.
    const box = Object.assign(document.createElement("textarea"), { value: text, rows: 8, readOnly: true });
    box.setAttribute("aria-label", `As ${what}`);
    $("viewer-note").replaceChildren(box);
    box.select();
  }
}

// again(settings) fills the form; edit(file) makes a picture the image to edit.
export function prepare({ again, edit }) {
  const close = () => $("viewer").close();
  $("viewer").addEventListener("close", () => urls.splice(0).forEach((url) => URL.revokeObjectURL(url)));
  $("viewer-close").addEventListener("click", close);
  $("viewer-again").addEventListener("click", () => {
    again(shown);
    close();
  });
  $("viewer-edit").addEventListener("click", () => {
    edit(new File([shown.blob], `image.${shown.settings.output_format}`, { type: shown.blob.type }));
    close();
  });
  $("viewer-curl").addEventListener("click", () => copy(asCurl(shown.settings, Boolean(shown.before)), "curl"));
  $("viewer-python").addEventListener("click", () => copy(asPython(shown.settings, Boolean(shown.before)), "Python"));
  $("viewer-forget").addEventListener("click", async () => {
    await gallery.forget(shown.id);
    close();
    await refresh();
  });
  $("clear").addEventListener("click", async () => {
    if (!confirm("Forget every picture in this browser?")) return;
    await gallery.forgetAll();
    await refresh();
  });
}
