// Where an image's time went, as one bar with its legend: seconds by phase, from the event's `times`.

const PHASES = [
  ["queue", "Queue", ["queue", "ar_queue", "dit_queue"]],
  ["ar", "AR", ["ar"]],
  ["handoff", "Hand-off", ["publish", "handoff"]],
  ["denoise", "Denoise", ["denoise"]],
  ["vae", "VAE", ["vae"]],
  ["encode", "Encode", ["encode"]],
];
const SVG = "http://www.w3.org/2000/svg";

function rect(name, x, width) {
  const shape = document.createElementNS(SVG, "rect");
  for (const [key, value] of Object.entries({ x, width, y: 0, height: 1, class: `phase-${name}` })) shape.setAttribute(key, value);
  return shape;
}

function drawing(shapes) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 1 1");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  svg.append(...shapes);
  return svg;
}

function words(seconds) {
  if (seconds < 0.001) return "< 1 ms";
  return seconds < 1 ? `${Math.round(seconds * 1000)} ms` : `${seconds.toFixed(1)} s`;
}

// Fills `place`; says whether there was anything to show.
export function drawSplit(place, times) {
  const parts = PHASES.map(([name, label, keys]) => {
    return { name, label, seconds: keys.reduce((sum, key) => sum + (times?.[key] ?? 0), 0) };
  }).filter((part) => part.seconds > 0);
  const total = parts.reduce((sum, part) => sum + part.seconds, 0);
  let x = 0;
  const shapes = parts.map(({ name, seconds }) => {
    x += seconds / total;
    return rect(name, x - seconds / total, seconds / total);
  });
  const bar = Object.assign(document.createElement("div"), { className: "split" });
  bar.append(drawing(shapes));
  const legend = Object.assign(document.createElement("ul"), { className: "legend" });
  for (const { name, label, seconds } of parts) {
    const entry = document.createElement("li");
    entry.append(drawing([rect(name, 0, 1)]), `${label} ${words(seconds)}`);
    legend.append(entry);
  }
  place.replaceChildren(...(total ? [bar, legend] : []));
  return total > 0;
}
