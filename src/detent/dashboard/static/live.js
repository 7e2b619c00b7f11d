// The one stream of a page: whether it is there, and a way to stop looking at changes for a while.
import { beat, isStale, startWatching, trouble } from "./stale.js";

let paused = false;
let connected = false;

export function isLive() {
  return connected && !paused && !isStale();
}

function show(state, text) {
  const button = document.getElementById("live-state");
  if (!button) return;
  button.dataset.live = state;
  button.querySelector(".text").textContent = text;
  button.setAttribute("aria-pressed", String(paused));
}

function tell() {
  if (isStale()) show("off", "not answering");
  else if (paused) show("paused", "stopped");
  else if (connected) show("on", "live");
  else show("off", "not reached");
}

export function toggleLive() {
  if (!document.getElementById("feed")) return;
  paused = !paused;
  tell();
  // What was missed meanwhile is in the page as it is now.
  if (!paused) location.reload();
}

export function startLive() {
  const feed = document.getElementById("feed");
  document.getElementById("live-state")?.addEventListener("click", toggleLive);
  startWatching(Boolean(feed), () => connected);
  if (!feed) return;
  document.addEventListener("stale-changed", tell);
  feed.addEventListener("htmx:sse:after:connection", () => {
    connected = true;
    tell();
  });
  for (const name of ["htmx:sse:error", "htmx:sse:close"]) {
    feed.addEventListener(name, () => {
      connected = false;
      tell();
    });
  }
  feed.addEventListener("htmx:sse:before:message", (event) => {
    const name = event.detail.message.event;
    if (name === "beat") beat(event.detail.message.data);
    else if (name === "trouble") trouble(event.detail.message.data);
    else trouble("");
    if (paused || document.querySelector("dialog[open]:not(#dialog)")) event.detail.cancelled = true;
  });
}
