// Keyboard shortcuts: g jumps, j and k move between rows, x selects, / searches, ? shows help.
import { BASE } from "./base.js";
import { nextClock } from "./settings.js";
import { toggleLive } from "./live.js";
import { toggle, toggleAll } from "./selection.js";

const JUMPS = { o: "/", j: "/jobs", k: "/tasks", r: "/runs", t: "/timeline", d: "/dead-letters", c: "/cluster", p: "/cluster/problems", h: "/changes" };
let jumping = 0;

function rows() {
  return [...document.querySelectorAll("tr[data-href], .lane:not(.axis)")];
}

function linkOf(row) {
  return row.querySelector("a[href]");
}

function current() {
  return rows().find((row) => row.contains(document.activeElement));
}

function move(step) {
  const all = rows();
  if (!all.length) return;
  const current = all.findIndex((row) => row.contains(document.activeElement));
  const next = all[Math.min(Math.max(current + step, 0), all.length - 1)];
  linkOf(next)?.focus();
  next.scrollIntoView({ block: "nearest" });
}

function onKey(event) {
  const typing = event.target.closest?.("input:not([type=checkbox]), textarea, select, dialog[open]");
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const key = event.key;
  if (jumping && Date.now() - jumping < 1500 && JUMPS[key]) {
    location.href = BASE + JUMPS[key];
    return;
  }
  jumping = key === "g" ? Date.now() : 0;
  const actions = {
    "/": () => document.getElementById("search")?.focus(),
    "?": () => document.getElementById("help")?.showModal(),
    j: () => move(1),
    k: () => move(-1),
    x: () => toggle(current()),
    X: toggleAll,
    n: () => (location.href = `${BASE}/jobs/new`),
    l: toggleLive,
    u: nextClock,
  };
  const arrow = document.querySelector(`[data-key="${CSS.escape(key)}"]`);
  if (actions[key]) {
    actions[key]();
    event.preventDefault();
  } else if (arrow) {
    location.href = arrow.href;
  }
}

export function startKeys() {
  document.addEventListener("keydown", onKey);
  // A click anywhere in a row opens its link.
  document.addEventListener("click", (event) => {
    const mark = event.target.closest("[data-run]");
    if (mark) {
      location.href = `${BASE}/runs/${mark.dataset.run}`;
      return;
    }
    const row = event.target.closest("tr[data-href]");
    if (!row || event.target.closest("a, button, input, label") || getSelection().toString()) return;
    location.href = row.dataset.href;
  });
}
