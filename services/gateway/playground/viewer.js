// The gallery's list, and the dialog around one picture: settings, re-run, download, code, before and after.

import * as gallery from "./gallery.js";
import { asCurl, asPython } from "./snippets.js";
import { drawSplit } from "./split.js";

const $ = (id) => document.getElementById(id);
const make = (tag, properties) => Object.assign(document.createElement(tag), properties);
const NAMES = { num_inference_steps: "steps", guidance_scale: "guidance", output_format: "format", negative_prompt: "negative" };
let shown = null; // the picture in the dialog
let urls = []; // object URLs of the dialog
let thumbnails = [];

export async function refresh() {
  const pictures = (await gallery.all()).reverse();
  thumbnails.forEach((url) => URL.revokeObjectURL(url));
  thumbnails = pictures.map((picture) => URL.createObjectURL(picture.blob));
  $("gallery").replaceChildren(...pictures.map((picture, index) => item(picture, thumbnails[index])));
  $("clear").hidden = pictures.length === 0;
  $("gallery-empty").hidden = pictures.length > 0;
}

function item(picture, url) {
  const button = make("button", { type: "button", title: picture.settings.prompt });
  button.append(make("img", { src: url, alt: picture.settings.prompt, loading: "lazy" }));
  if (picture.before) button.append(make("span", { className: "badge", textContent: "edit" }));
  button.addEventListener("click", () => open(picture));
  const entry = document.createElement("li");
  entry.append(button);
  return entry;
}

export function open(picture) {
  shown = picture;
  const [after, before] = [picture.blob, picture.before].map((blob) => blob && URL.createObjectURL(blob));
  urls = [after, before].filter(Boolean);
  const whole = () => make("img", { src: after, alt: picture.settings.prompt });
  $("viewer-picture").replaceChildren(before ? comparison(before, after) : whole());
  $("viewer-title").textContent = picture.before ? "Edited picture" : "Picture";
  $("viewer-settings").replaceChildren(...Object.entries(picture.settings).filter(([name]) => name !== "n").flatMap(definition));
  drawSplit($("viewer-split"), picture.times);
  const link = $("viewer-download");
  link.href = after;
  link.download = `diptych-${picture.settings.seed}.${picture.settings.output_format}`;
  $("viewer-before").hidden = !before;
  if (before) $("viewer-before").href = before;
  $("viewer-note").replaceChildren();
  $("viewer").showModal();
}

function comparison(before, after) {
  const box = make("div", { className: "compare" });
  const slider = make("input", { type: "range", min: 0, max: 100, value: 50 });
  slider.setAttribute("aria-label", "Before and after: share of the image before");
  slider.addEventListener("input", () => box.style.setProperty("--at", `${slider.value}%`));
  const tag = (textContent) => make("span", { textContent });
  box.append(
    make("img", { src: after, alt: "After" }),
    make("img", { src: before, alt: "Before", className: "before" }),
    make("i", {}),
    tag("Before"),
    tag("After"),
    slider,
  );
  return box;
}

function definition([name, value]) {
  return [make("dt", { textContent: NAMES[name] ?? name }), make("dd", { textContent: String(value) })];
}

async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    const needs = shown.before ? " It reads the picture before the edit from image.png: see Download before." : "";
    $("viewer-note").textContent = `Copied as ${what}.${needs}`;
  } catch {
    // Without a secure origin there is no clipboard: show the text for the user to copy.
    const box = make("textarea", { value: text, rows: 8, readOnly: true });
    box.setAttribute("aria-label", `As ${what}`);
    $("viewer-note").replaceChildren(box);
    box.select();
  }
}

// again(picture) fills the form, rerun(picture) paints at once too; edit(file) makes a picture the image to edit;
// keyed() says whether this server wants an API key.
export function prepare({ again, rerun, edit, keyed }) {
  const close = () => $("viewer").close();
  const closing = (work) => () => {
    close();
    return work();
  };
  const code = (write, what) => () => copy(write(shown.settings, Boolean(shown.before), keyed()), what);
  const file = () => new File([shown.blob], `image.${shown.settings.output_format}`, { type: shown.blob.type });
  $("viewer").addEventListener("close", () => urls.splice(0).forEach((url) => URL.revokeObjectURL(url)));
  $("viewer").addEventListener("click", (event) => event.target === $("viewer") && close()); // the backdrop
  $("viewer-close").addEventListener("click", close);
  $("viewer-again").addEventListener("click", closing(() => again(shown)));
  $("viewer-rerun").addEventListener("click", closing(() => rerun(shown)));
  $("viewer-edit").addEventListener("click", closing(() => edit(file())));
  $("viewer-curl").addEventListener("click", code(asCurl, "curl"));
  $("viewer-python").addEventListener("click", code(asPython, "Python"));
  $("viewer-forget").addEventListener("click", closing(async () => {
    await gallery.forget(shown.id);
    await refresh();
  }));
  $("clear").addEventListener("click", async () => {
    if (!confirm("Forget every picture in this browser?")) return;
    await gallery.forgetAll();
    await refresh();
  });
}
