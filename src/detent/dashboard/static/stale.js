// Whether the page is up to date. The server sends each answer of the database as a heartbeat. The page measures how long
// ago the last one came, so it notices an outage without any event.
import { BASE } from "./base.js";
import { showTimes } from "./times.js";

const LIMIT = 5000; // milliseconds without a heartbeat
const ASK_EVERY = 2000;
const ASK_LIMIT = 4000;
const STREAM_LIMIT = 4000; // how long the stream may take to reconnect after the server answers again

const page = document.querySelector('meta[name="answered"]');
const title = document.title;
let hasStream = false;
let connected = () => true;
let heard = performance.now();
let answeredAt = page?.content; // by the database's clock
let asked = -Infinity;
let cause = ""; // what does not answer: "Database" or "Server"; empty: both do
let answeredAgain = null; // when the server answered again while the stream was still down
let fault = ""; // why the server cannot refresh the page although the database answers
let shown = "";

export function isStale() {
  return shown !== "";
}

export function beat(at) {
  heard = performance.now();
  answeredAt = at || answeredAt;
  cause = "";
  answeredAgain = null;
  show();
}

export function trouble(text) {
  fault = text;
  show();
}

function sentence() {
  if (cause && hasStream) return [`${cause} not answering since `, ". This page shows data from that time."];
  if (cause) return [`${cause} not answering since `, ". You cannot save until it answers; your input is kept."];
  if (fault) return [`${fault} This page shows data from `, "."];
  return null;
}

function show() {
  const message = sentence();
  const text = message ? message.join(answeredAt) : "";
  if (text === shown) return;
  if ((text === "") !== (shown === "")) swapIcon();
  shown = text;
  const banner = document.getElementById("stale");
  banner.replaceChildren(...(message ? parts(message) : []));
  banner.hidden = !message;
  document.documentElement.toggleAttribute("data-stale", Boolean(message));
  document.title = message ? `Not answering · ${title}` : title;
  showTimes(banner);
  measure();
  document.dispatchEvent(new CustomEvent("stale-changed"));
}

function swapIcon() {
  const icon = document.querySelector('link[rel="icon"][data-stale]');
  if (icon) [icon.href, icon.dataset.stale] = [icon.dataset.stale, icon.href];
}

// Sticky elements stay below the banner.
function measure() {
  document.documentElement.style.setProperty("--banner", `${document.getElementById("stale").offsetHeight}px`);
}

function sign(text) {
  const made = document.createElement("span");
  made.className = "sign";
  made.setAttribute("aria-hidden", "true");
  made.textContent = text;
  return made;
}

function parts([before, after]) {
  const time = document.createElement("time");
  time.dateTime = answeredAt;
  time.dataset.show = "clock";
  const words = document.createElement("span");
  words.append(before, time, after);
  return [sign("!"), words];
}

// Ask the server: returns "Database" or "Server" if that does not answer, else "", and the database's time.
async function ask() {
  try {
    const answer = await fetch(`${BASE}/heartbeat`, { cache: "no-store", signal: AbortSignal.timeout(ASK_LIMIT) });
    if (answer.ok) return ["", await answer.text()];
    return [answer.status === 503 ? "Database" : "Server", null];
  } catch {
    return ["Server", null];
  }
}

async function askAgain(now) {
  asked = now;
  const [silent, at] = await ask();
  if (performance.now() - heard < LIMIT && hasStream) return; // a heartbeat came meanwhile
  if (silent) {
    cause = silent;
    answeredAgain = null;
  } else if (!hasStream) {
    const back = cause !== "";
    beat(at);
    if (back) document.body.dispatchEvent(new CustomEvent("schedule-changed", { bubbles: true }));
    return;
  } else {
    answeredAgain ??= performance.now();
  }
  show();
}

function check() {
  if (document.hidden) return; // a browser pauses the stream of a background page
  const now = performance.now();
  const late = now - heard > LIMIT;
  if (late && hasStream && !cause) {
    cause = connected() ? "Database" : "Server";
    show();
  }
  if ((late || !hasStream) && now - asked >= ASK_EVERY) askAgain(now);
  const waited = answeredAgain !== null && now - answeredAgain > STREAM_LIMIT;
  // The stream is lost although the server answers: reload, unless an open dialog would be lost.
  if (waited && !document.querySelector("dialog[open]")) location.reload();
}

export function startWatching(streams, isConnected) {
  if (!page) return;
  hasStream = streams;
  connected = isConnected;
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) heard = performance.now();
  });
  addEventListener("pageshow", (event) => event.persisted && location.reload());
  addEventListener("resize", measure);
  setInterval(check, 500);
}

// No change is sent while the database does not answer: it could be made later, when the user no longer expects it.
export function refuseChanges() {
  document.addEventListener("htmx:config:request", (event) => {
    if (!cause || event.detail.ctx.request.method.toUpperCase() !== "POST") return;
    event.preventDefault();
    const toast = document.createElement("p");
    toast.className = "toast bad";
    toast.append(sign("✕"), `${cause} not answering. Nothing was changed: try again when it answers.`);
    document.getElementById("toasts").append(toast);
  });
}
