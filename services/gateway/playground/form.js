// The form: what it says as settings, settings back into it, and errors beside the field they name.

const $ = (id) => document.getElementById(id);
const NUMBERS = ["n", "num_inference_steps", "guidance_scale"];
const TEXTS = ["prompt", "negative_prompt", "size", "output_format"];
const MAX_DRAWN = 2 ** 53 - 16; // JSON numbers are exact below 2 ** 53, and image i has seed + i
const STRIDE = 32; // pixels: the model paints in multiples of it
const [MIN_SIDE, MAX_SIDE] = [64, 2048]; // pixels, as the API takes them
let touched = false; // by the user: from then on, nothing is suggested

export function drawSeed() {
  const words = crypto.getRandomValues(new Uint32Array(2));
  return String((words[0] * 2 ** 21 + (words[1] >>> 11)) % MAX_DRAWN);
}

// The settings as the API takes them; an empty field is not sent. Throws {param, message} for what is no number.
export function read() {
  const settings = {};
  for (const name of TEXTS) if ($(name).value) settings[name] = $(name).value;
  for (const name of NUMBERS) {
    if ($(name).value !== "") settings[name] = Number($(name).value);
    else if ($(name).validity.badInput) throw { param: name, message: "This is not a number." };
  }
  const seed = $("seed").value.trim() || drawSeed();
  if (!/^\d+$/.test(seed) || Number(seed) > MAX_DRAWN) {
    throw { param: "seed", message: `A seed is a whole number from 0 to ${MAX_DRAWN}.` };
  }
  $("seed").value = seed;
  settings.seed = Number(seed);
  return settings;
}

export function fill(settings) {
  touched = true;
  for (const name of [...TEXTS, ...NUMBERS, "seed"]) if (name !== "output_format") $(name).value = settings[name] ?? "";
  $("output_format").value = settings.output_format ?? "png";
  $("n").value = settings.n ?? 1;
  matchPreset();
}

export function matchPreset() {
  const known = [...$("preset").options].some((option) => option.value === $("size").value);
  $("preset").value = known ? $("size").value : "";
}

export function clearErrors() {
  $("error").hidden = true;
  for (const text of document.querySelectorAll(".field-error")) text.hidden = true;
  for (const field of document.querySelectorAll("[aria-invalid]")) field.removeAttribute("aria-invalid");
}

// Says `error` in words; marks and focuses its field if it names one of the form's.
export function showError(error) {
  const place = error.param ? $(`${error.param}-error`) : null;
  const field = error.param ? $(error.param) : null;
  if (place && field) {
    place.textContent = error.message;
    place.hidden = false;
    field.setAttribute("aria-invalid", "true");
    field.focus();
  }
  const name = field?.labels?.[0]?.textContent ?? error.param;
  $("error").textContent = place ? `Not painted: “${name}” is not right.` : error.message;
  $("error").hidden = false;
}

// A size with the aspect of `width` x `height` and about as many pixels as the size that is asked for now.
export function fitSize(width, height) {
  const [, w, h] = /^(\d+)x(\d+)$/.exec($("size").value) ?? [0, 1024, 1024];
  const ratio = Math.min(Math.max(width / height, 1 / 4), 4);
  const side = (pixels) => Math.min(MAX_SIDE, Math.max(MIN_SIDE, Math.round(pixels / STRIDE) * STRIDE));
  $("size").value = `${side(Math.sqrt(w * h * ratio))}x${side(Math.sqrt((w * h) / ratio))}`;
  matchPreset();
}

// Small pictures and few steps, for engines that only make patterns.
export function suggestSmall() {
  if (touched) return;
  touched = true;
  $("size").value = "256x256";
  $("num_inference_steps").value = 20;
  matchPreset();
}

export function prepare() {
  $("form").addEventListener("input", () => (touched = true));
  $("preset").addEventListener("change", () => {
    if ($("preset").value) $("size").value = $("preset").value;
    else $("size").focus();
  });
  $("size").addEventListener("input", matchPreset);
  $("dice").addEventListener("click", () => {
    $("seed").value = drawSeed();
    lockSeed(true); // or the next paint would draw another
  });
  $("seed").addEventListener("input", () => lockSeed($("seed").value !== "")); // a typed seed is meant
  $("lock").addEventListener("click", () => lockSeed(!seedIsLocked()));
}

export function lockSeed(locked) {
  $("lock").setAttribute("aria-pressed", String(locked));
}

export const seedIsLocked = () => $("lock").getAttribute("aria-pressed") === "true";
