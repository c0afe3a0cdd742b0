// The image to edit: dropped or pasted anywhere on the page, or chosen.

const $ = (id) => document.getElementById(id);
let chosen = null;

export const image = () => chosen;

export function choose(file) {
  if ($("chosen-image").src) URL.revokeObjectURL($("chosen-image").src);
  chosen = file;
  $("chosen").hidden = !file;
  if (file) $("chosen-image").src = URL.createObjectURL(file);
  else $("chosen-image").removeAttribute("src");
  if ($("image").files[0] !== file) $("image").value = "";
  $("form-title").textContent = file ? "Edit" : "Paint";
}

const firstImage = (files) => [...files].find((file) => file.type.startsWith("image/"));

let fresh = false; // the image was just given: its size matters

export function give(file) {
  if (!file) return;
  fresh = true;
  choose(file);
}

// fit(width, height): called with the size of an image that was just given, in pixels.
export function prepare(fit) {
  $("chosen-image").addEventListener("load", () => {
    if (fresh) fit($("chosen-image").naturalWidth, $("chosen-image").naturalHeight);
    fresh = false;
  });
  $("image").addEventListener("change", () => give($("image").files[0]));
  $("unchoose").addEventListener("click", () => {
    choose(null);
    $("image").focus();
  });
  document.addEventListener("dragover", (event) => {
    if (![...event.dataTransfer.types].includes("Files")) return;
    event.preventDefault();
    document.body.classList.add("over");
  });
  document.addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) document.body.classList.remove("over");
  });
  document.addEventListener("drop", (event) => {
    if (!event.dataTransfer.files.length) return;
    event.preventDefault();
    document.body.classList.remove("over");
    give(firstImage(event.dataTransfer.files));
  });
  document.addEventListener("paste", (event) => give(firstImage(event.clipboardData?.files ?? [])));
}
