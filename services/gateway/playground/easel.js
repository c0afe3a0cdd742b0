// What is being painted: words and a bar for the progress, and one tile a seed, previews first, then the picture.

import { drawSplit } from "./split.js";

const $ = (id) => document.getElementById(id);
const empty = $("now").firstElementChild; // what an easel without a picture shows

// Says how it stands. aloud: a screen reader should read it now.
function say(text, aloud = true) {
  $("progress-text").setAttribute("aria-live", aloud ? "polite" : "off");
  $("progress-text").textContent = text;
}

// Shows one comment of the stream, such as "keep-alive step 3/20, queued 1, about 12 s".
export function showProgress(comment) {
  const steps = [...comment.matchAll(/step (\d+)\/(\d+)/g)].map(([, done, of]) => [Number(done), Number(of)]);
  const queued = [...comment.matchAll(/queued (\d+), about (\d+) s/g)].map(([, place, seconds]) => [Number(place), Number(seconds)]);
  const texts = steps.slice(0, 3).map(([done, of]) => `step ${done} of ${of}`);
  if (steps.length > 3) texts.push("…");
  if (queued.length) {
    const [place, seconds] = queued[0];
    texts.push(`${place ? `${place} ahead in the queue` : "next in the queue"}, about ${seconds} s`);
  }
  if (texts.length) say(texts.join(", ").replace(/^./, (first) => first.toUpperCase()), false);
  if (steps.length) {
    $("progress").max = steps[0][1] * (steps.length + queued.length);
    $("progress").value = steps.reduce((sum, [done]) => sum + done, 0);
  }
}

export function begin() {
  $("now").replaceChildren();
  $("progress").removeAttribute("value");
  say("Sent …");
  const easel = document.querySelector(".easel");
  if (easel.getBoundingClientRect().top > innerHeight / 3) easel.scrollIntoView(); // on a phone it is below the form
}

export function finish(text, whole) {
  $("progress").value = whole ? $("progress").max : 0;
  say(text);
  if (!whole) for (const tile of $("now").querySelectorAll(".tile:not([data-done])")) tile.remove();
  if (!$("now").children.length) $("now").append(empty);
}

function tile(seed) {
  const found = document.getElementById(`now-${seed}`);
  if (found) return found;
  const made = Object.assign(document.createElement("button"), { type: "button", id: `now-${seed}`, className: "tile", disabled: true });
  made.append(Object.assign(document.createElement("img"), { alt: `Being painted, seed ${seed}` }));
  $("now").append(made);
  return made;
}

function display(image, blob) {
  if (image.src) URL.revokeObjectURL(image.src);
  image.src = URL.createObjectURL(blob);
}

export function preview(seed, index, blob) {
  const place = tile(seed);
  display(place.firstChild, blob);
  place.dataset.partial = index;
}

// A picture is done: `open` is called when it is chosen.
export function picture(seed, blob, alt, times, open) {
  const place = tile(seed);
  display(place.firstChild, blob);
  place.firstChild.alt = alt;
  place.dataset.done = "true";
  place.disabled = false;
  place.addEventListener("click", open);
  $("split-box").hidden = !drawSplit($("split"), times);
}
