// The page: a form, one paint at a time, live previews, and a gallery.

import { ApiError, paint } from "./api.js";
import * as form from "./form.js";
import * as gallery from "./gallery.js";
import * as source from "./source.js";
import { showSplit } from "./split.js";
import { watch } from "./status.js";
import * as viewer from "./viewer.js";

const $ = (id) => document.getElementById(id);
const KEY = "diptych-key"; // sessionStorage: the API key lives as long as this tab
let running = null; // AbortController of the paint under way

const say = (text) => ($("progress-text").textContent = text);
const key = () => $("key").value;

function showProgress(comment) {
  const step = /step (\d+)\/(\d+)/.exec(comment);
  if (step) {
    $("progress").max = Number(step[2]);
    $("progress").value = Number(step[1]);
    say(`Step ${step[1]} of ${step[2]}`);
  } else {
    $("progress").removeAttribute("value");
    say(comment.replace(/^keep-alive\s*/, "") || "Waiting …");
  }
}

const mime = (format) => `image/${format}`;

function toBlob(base64, format) {
  const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  return new Blob([bytes], { type: mime(format) });
}

// One place a seed, in the order of the seeds: previews first, then the picture.
function place(seed) {
  const id = `now-${seed}`;
  const found = document.getElementById(id);
  if (found) return found;
  const image = Object.assign(document.createElement("img"), { id, alt: `Being painted, seed ${seed}` });
  $("now").append(image);
  return image;
}

function display(image, blob) {
  if (image.src) URL.revokeObjectURL(image.src);
  image.src = URL.createObjectURL(blob);
}

async function take(event, settings, before) {
  const format = event.output_format;
  const blob = toBlob(event.b64_json, format);
  const image = place(event.seed);
  display(image, blob);
  if (event.type.endsWith(".partial_image")) {
    image.dataset.partial = event.partial_image_index;
    return;
  }
  image.alt = settings.prompt;
  image.dataset.done = "true";
  const kept = { ...settings, n: 1, seed: event.seed, size: event.size };
  await gallery.keep({ when: Date.now(), settings: kept, blob, before });
  if (event.times) showSplit(event.times);
}

async function start() {
  form.clearErrors();
  if (running) return;
  let settings;
  try {
    if (!form.seedIsLocked()) $("seed").value = form.drawSeed();
    settings = form.read();
  } catch (problem) {
    form.showError(problem);
    return;
  }
  const before = source.image();
  running = new AbortController();
  $("paint").disabled = true;
  $("cancel").disabled = false;
  $("now").replaceChildren();
  $("progress").removeAttribute("value");
  say("Sent …");
  try {
    for await (const event of paint(settings, before, key(), running.signal)) {
      if (event.comment !== undefined) showProgress(event.comment);
      else await take(event, settings, before ?? undefined);
    }
    say("Done.");
    $("progress").value = $("progress").max;
  } catch (error) {
    ended(error);
  } finally {
    running = null;
    $("paint").disabled = false;
    $("cancel").disabled = true;
    await viewer.refresh();
  }
}

function ended(error) {
  $("progress").value = 0;
  if (error.name === "AbortError") return say("Cancelled.");
  say("Not painted.");
  if (error instanceof ApiError && error.status === 401) {
    $("key-row").hidden = false;
    return form.showError({ param: "key", message: error.message });
  }
  form.showError(error instanceof ApiError ? error : { message: `The gateway cannot be reached: ${error.message}` });
}

$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  start();
});
$("cancel").addEventListener("click", () => running?.abort());
document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) start();
});
$("key").value = sessionStorage.getItem(KEY) ?? "";
$("key-row").hidden = !$("key").value;
$("key").addEventListener("change", () => sessionStorage.setItem(KEY, $("key").value));

form.prepare();
source.prepare();
viewer.prepare({
  again: (picture) => {
    form.fill(picture.settings);
    form.lockSeed(true);
    source.choose(picture.before ?? null);
  },
  edit: source.choose,
});
viewer.refresh();
watch(key);
