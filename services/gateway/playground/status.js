// The strip at the top: is each service up, and how long is the queue.

import { ApiError, state } from "./api.js";

const EVERY = 3000; // milliseconds between looks, while the page is visible

function show(id, text, ok) {
  const place = document.getElementById(id);
  place.textContent = text;
  place.classList.toggle("ok", ok === true);
  place.classList.toggle("down", ok === false);
}

function stage(gateway, name) {
  const replicas = (gateway.replicas ?? []).filter((replica) => replica.stage === name);
  const ready = replicas.filter((replica) => replica.state === "ready").length;
  return [replicas.length === 1 && ready ? "ready" : `${ready} of ${replicas.length} ready`, ready > 0];
}

// What must be known of the engines before one judges their pictures.
function warning(gateway) {
  if (gateway.engine === "sim") return "Simulated engines: they paint mosaics, whatever the prompt.";
  const models = (gateway.replicas ?? []).map((replica) => replica.said?.model ?? "");
  if (models.some((model) => model.includes("tiny-glm-image"))) {
    return "The built-in tiny checkpoint has random weights: it paints patterns, whatever the prompt.";
  }
  return "";
}

async function look(key, { known, refused }) {
  try {
    const now = await state(key());
    show("state-gateway", now.ready ? "ready" : now.draining ? "draining" : "not ready", now.ready);
    document.getElementById("state-gateway").title = now.reason ?? "";
    show("state-ar", ...stage(now, "ar"));
    show("state-dit", ...stage(now, "dit"));
    const { queue = 0, ready = 0, ar = 0, dit = 0 } = now.jobs ?? {};
    show("state-queue", `${queue + ready} waiting, ${ar + dit} running`);
    const text = warning(now);
    document.getElementById("notice").textContent = text;
    document.getElementById("notice").hidden = !text;
    known(Boolean(text));
  } catch (error) {
    const answered = error instanceof ApiError;
    show("state-gateway", answered ? (error.status === 401 ? "needs a key" : error.message) : "not reachable", false);
    for (const id of ["state-ar", "state-dit", "state-queue"]) show(id, "unknown");
    if (answered && error.status === 401) refused();
  }
}

// Keeps looking; `key` says the API key to look with, `known` hears whether the pictures are only patterns,
// `refused` that a key is wanted. Returns what looks again at once.
export function watch(key, heard) {
  let wake = () => undefined;
  (async () => {
    for (;;) {
      if (!document.hidden) await look(key, heard);
      await new Promise((resolve) => {
        wake = resolve;
        setTimeout(resolve, EVERY);
      });
    }
  })();
  return () => wake();
}
