// Selected rows (checkbox or x): bulk actions then apply to these instead of all matching jobs.
const chosen = new Set();
let all = "";

function boxes() {
  return [...document.querySelectorAll(".pick")];
}

// Live updates replace the rows, so the selection is kept here.
function show() {
  for (const box of boxes()) {
    box.checked = chosen.has(box.value);
    box.closest("tr").classList.toggle("chosen", box.checked);
  }
  const label = document.querySelector("[data-many]");
  if (!label) return;
  all ||= label.textContent;
  label.textContent = chosen.size ? `${chosen.size} selected:` : all;
  document.querySelector("[data-unselect]").hidden = !chosen.size;
}

function pick(box, wanted) {
  if (wanted) chosen.add(box.value);
  else chosen.delete(box.value);
}

export function toggle(row) {
  const box = row?.querySelector(".pick");
  if (!box) return;
  pick(box, !chosen.has(box.value));
  show();
}

export function toggleAll() {
  const found = boxes();
  const wanted = found.some((box) => !chosen.has(box.value));
  for (const box of found) pick(box, wanted);
  show();
}

function unselect() {
  chosen.clear();
  show();
}

export function startSelection() {
  if (!document.querySelector("[data-many]")) return;
  document.addEventListener("change", (event) => {
    if (!event.target.matches(".pick")) return;
    pick(event.target, event.target.checked);
    show();
  });
  document.querySelector("[data-unselect]").addEventListener("click", unselect);
  document.addEventListener("htmx:after:swap", () => {
    const there = new Set(boxes().map((box) => box.value));
    for (const id of chosen) if (!there.has(id)) chosen.delete(id);
    show();
  });
  show();
}
