// Where the last image's time went, as one bar: seconds by phase, from the event's `times`.

const PHASES = [
  ["queue", "Queue"],
  ["ar", "AR"],
  ["handoff", "Hand-off"],
  ["denoise", "Denoise"],
  ["vae", "VAE"],
  ["encode", "Encode"],
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
  svg.append(...shapes);
  return svg;
}

export function showSplit(times) {
  const parts = PHASES.filter(([name]) => times[name] > 0);
  const total = parts.reduce((sum, [name]) => sum + times[name], 0);
  if (!total) return;
  let x = 0;
  const shapes = parts.map(([name]) => {
    const width = times[name] / total;
    x += width;
    return rect(name, x - width, width);
  });
  document.getElementById("split").replaceChildren(drawing(shapes));
  document.getElementById("split-legend").replaceChildren(
    ...parts.map(([name, label]) => {
      const entry = document.createElement("li");
      entry.append(drawing([rect(name, 0, 1)]), `${label} ${times[name].toFixed(times[name] < 1 ? 3 : 1)} s`);
      return entry;
    }),
  );
  document.getElementById("split-box").hidden = false;
}
