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

async function look(key) {
  try {
    const now = await state(key());
    show("state-gateway", now.ready ? "ready" : now.reason || "not ready", now.ready);
    const { queue, ready, ar, dit } = now.jobs;
    show("state-ar", ...stage(now, "ar"));
    show("state-dit", ...stage(now, "dit"));
    show("state-queue", `${queue + ready} waiting, ${ar + dit} running`);
  } catch (error) {
    const refused = error instanceof ApiError;
    show("state-gateway", refused ? error.message : "not reachable", false);
    for (const id of ["state-ar", "state-dit", "state-queue"]) show(id, "unknown");
  }
}

// Keeps looking; `key` says the API key to look with.
export async function watch(key) {
  for (;;) {
    if (!document.hidden) await look(key);
    await new Promise((resolve) => setTimeout(resolve, EVERY));
  }
}
