// Settings that each browser stores: the theme, and the time zone of displayed times.
import { showTimes } from "./times.js";

const root = document.documentElement;

function keep(name, value) {
  try {
    localStorage.setItem(name, value);
  } catch {
    // Without local storage the setting lasts until the page is left.
  }
}

export function setClock(value) {
  root.dataset.clock = value;
  keep("detent-clock", value);
  const select = document.getElementById("clock");
  if (select) select.value = value;
  showTimes();
}

export function nextClock() {
  const order = ["utc", "local", "job"];
  setClock(order[(order.indexOf(root.dataset.clock) + 1) % order.length]);
}

export function startTheme() {
  const theme = document.getElementById("theme");
  const clock = document.getElementById("clock");
  if (theme) {
    theme.value = root.dataset.theme || "auto";
    theme.addEventListener("change", () => {
      if (theme.value === "auto") delete root.dataset.theme;
      else root.dataset.theme = theme.value;
      keep("detent-theme", theme.value);
      document.dispatchEvent(new CustomEvent("theme-changed"));
    });
  }
  if (clock) {
    clock.value = root.dataset.clock || "utc";
    clock.addEventListener("change", () => setClock(clock.value));
  }
}
