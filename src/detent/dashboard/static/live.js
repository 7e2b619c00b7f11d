// The page's stream: its connection state, and a button that pauses live updates.
import { beat, isStale, startWatching, trouble } from "./stale.js";

const LEAVING = 10000; // milliseconds
let leftAt = -LEAVING;
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

function showState() {
  if (isStale()) show("off", "not answering");
  else if (paused) show("paused", "paused");
  else if (connected) show("on", "live");
  else show("off", "disconnected");
}

// The server redirects to the login. A logout is on its way there already: a reload would interrupt it.
function sessionEnded() {
  if (performance.now() - leftAt >= LEAVING) location.reload();
}

export function toggleLive() {
  if (!document.getElementById("feed")) return;
  paused = !paused;
  showState();
  // A reload shows the changes of the pause.
  if (!paused) location.reload();
}

export function startLive() {
  const feed = document.getElementById("feed");
  document.getElementById("live-state")?.addEventListener("click", toggleLive);
  addEventListener("beforeunload", () => {
    leftAt = performance.now();
  });
  startWatching(Boolean(feed), () => connected);
  if (!feed) return;
  document.addEventListener("stale-changed", showState);
  feed.addEventListener("htmx:sse:after:connection", () => {
    connected = true;
    showState();
  });
  for (const name of ["htmx:sse:error", "htmx:sse:close"]) {
    feed.addEventListener(name, (event) => {
      connected = false;
      showState();
      if (event.detail.status === 401) sessionEnded();
    });
  }
  feed.addEventListener("htmx:sse:before:message", (event) => {
    const name = event.detail.message.event;
    if (name === "ended") sessionEnded();
    else if (name === "beat") beat(event.detail.message.data);
    else if (name === "trouble") trouble(event.detail.message.data);
    else trouble("");
    if (paused || document.querySelector("dialog[open]:not(#dialog)")) event.detail.cancelled = true;
  });
}
