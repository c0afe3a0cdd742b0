// The page: a form, one paint at a time, live previews, and a gallery.

import { ApiError, paint } from "./api.js";
import * as easel from "./easel.js";
import * as form from "./form.js";
import * as gallery from "./gallery.js";
import * as source from "./source.js";
import { watch } from "./status.js";
import * as viewer from "./viewer.js";

const $ = (id) => document.getElementById(id);
const KEY = "diptych-key"; // sessionStorage: the API key lives as long as this tab
let running = null; // AbortController of the paint under way

const key = () => $("key").value;

function toBlob(base64, format) {
  const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  return new Blob([bytes], { type: `image/${format}` });
}

async function take(event, settings, before) {
  const blob = toBlob(event.b64_json, event.output_format);
  if (event.type.endsWith(".partial_image")) {
    easel.preview(event.seed, event.partial_image_index, blob);
    return;
  }
  const kept = { ...settings, n: 1, seed: event.seed, size: event.size };
  const picture = { when: Date.now(), settings: kept, blob, before, times: event.times };
  easel.picture(event.seed, blob, settings.prompt, event.times, () => viewer.open(picture));
  try {
    picture.id = await gallery.keep(picture);
    await viewer.refresh();
  } catch (problem) {
    form.showError({ message: `This picture is not in the gallery: the browser could not keep it (${problem?.message}).` });
  }
}

async function start() {
  if (running) return;
  form.clearErrors();
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
  easel.begin();
  let left = settings.n ?? 1;
  try {
    for await (const event of paint(settings, before, key(), running.signal)) {
      if (event.comment !== undefined) easel.showProgress(event.comment);
      else await take(event, settings, before ?? undefined);
      if (event.type?.endsWith(".completed")) left -= 1;
    }
    if (left) throw new Error("the stream ended early");
    easel.finish("Done.", true);
  } catch (error) {
    ended(error);
  } finally {
    running = null;
    $("paint").disabled = false;
    $("cancel").disabled = true;
    lookAgain();
  }
}

function ended(error) {
  if (error.name === "AbortError") {
    easel.finish("Cancelled.", false);
    return;
  }
  easel.finish("Not painted.", false);
  if (error instanceof ApiError && error.status === 401) {
    wantKey();
    form.showError({ param: "key", message: error.message });
    return;
  }
  form.showError(error instanceof ApiError ? error : { message: `The gateway cannot be reached (${error.message}).` });
}

function wantKey() {
  $("key-row").hidden = false;
}

function use(picture) {
  form.fill(picture.settings);
  form.lockSeed(true);
  source.choose(picture.before ?? null);
}

$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  start();
});
$("cancel").addEventListener("click", () => running?.abort());
document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !$("viewer").open) {
    event.preventDefault();
    start();
  }
});
for (const idea of document.querySelectorAll(".idea")) {
  idea.addEventListener("click", () => {
    $("prompt").value = idea.textContent;
    $("prompt").focus();
  });
}
$("key").value = sessionStorage.getItem(KEY) ?? "";
$("key-row").hidden = !$("key").value;
$("key").addEventListener("change", () => {
  sessionStorage.setItem(KEY, $("key").value);
  lookAgain();
});

form.prepare();
source.prepare(form.fitSize);
viewer.prepare({
  again: use,
  rerun: (picture) => {
    use(picture);
    start();
  },
  edit: source.give,
  keyed: () => !$("key-row").hidden,
});
const lookAgain = watch(key, { known: (patterns) => patterns && form.suggestSmall(), refused: wantKey });
viewer.refresh();
