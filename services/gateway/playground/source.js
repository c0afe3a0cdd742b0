// The image to edit: dropped, pasted or chosen.

const $ = (id) => document.getElementById(id);
let chosen = null;

export const image = () => chosen;

export function choose(file) {
  if ($("chosen-image").src) URL.revokeObjectURL($("chosen-image").src);
  chosen = file;
  $("chosen").hidden = !file;
  if (file) $("chosen-image").src = URL.createObjectURL(file);
  else {
    $("chosen-image").removeAttribute("src");
    $("image").value = "";
  }
  $("form-title").textContent = file ? "Edit" : "Paint";
}

const firstImage = (files) => [...files].find((file) => file.type.startsWith("image/"));

export function prepare() {
  const drop = $("drop");
  $("image").addEventListener("change", () => choose($("image").files[0] ?? null));
  $("unchoose").addEventListener("click", () => choose(null));
  drop.addEventListener("dragover", (event) => {
    event.preventDefault();
    drop.classList.add("over");
  });
  drop.addEventListener("dragleave", () => drop.classList.remove("over"));
  drop.addEventListener("drop", (event) => {
    event.preventDefault();
    drop.classList.remove("over");
    const file = firstImage(event.dataTransfer.files);
    if (file) choose(file);
  });
  document.addEventListener("paste", (event) => {
    const file = firstImage(event.clipboardData?.files ?? []);
    if (file) choose(file);
  });
}
