// Whether what is shown is still true. The server passes each answer of the database on as a heartbeat; how long ago the
// last one came is counted here, by itself: no event has to arrive for the page to notice that none arrives.
import { showTimes } from "./times.js";

const LIMIT = 5000; // milliseconds without a heartbeat
const ASK_EVERY = 2000;
const ASK_LIMIT = 4000;
const STREAM_LIMIT = 4000; // so long after the server answered again, the stream should have, too

const page = document.querySelector('meta[name="answered"]');
const title = document.title;
let follows = false; // has a stream
let connected = () => true;
let heard = performance.now();
let answeredAt = page?.content; // by the database's clock
let asked = -Infinity;
let cause = ""; // who does not answer: "Database" or "Server"; empty: both do
let answeredAgain = null; // since when the server answers while the stream still does not
let fault = ""; // why the server could not refresh the page, although the database answers
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
  if (cause && follows) return [`${cause} not answering since `, ". Figures below are from then."];
  if (cause) return [`${cause} not answering since `, ". Nothing can be saved until it answers; what you typed is kept."];
  if (fault) return [`${fault} Figures below are from `, "."];
  return null;
}

function show() {
  const told = sentence();
  const text = told ? told.join(answeredAt) : "";
  if (text === shown) return;
  if ((text === "") !== (shown === "")) swapIcon();
  shown = text;
  const banner = document.getElementById("stale");
  banner.replaceChildren(...(told ? parts(told) : []));
  banner.hidden = !told;
  document.documentElement.toggleAttribute("data-stale", Boolean(told));
  document.title = told ? `Not answering · ${title}` : title;
  showTimes(banner);
  measure();
  document.dispatchEvent(new CustomEvent("stale-changed"));
}

function swapIcon() {
  const icon = document.querySelector('link[rel="icon"][data-stale]');
  if (icon) [icon.href, icon.dataset.stale] = [icon.dataset.stale, icon.href];
}

// What sticks to the top of the window sticks below the banner.
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

// What the server says for itself: "Database" or "Server" does not answer, or "" when both do.
async function ask() {
  try {
    const answer = await fetch("/heartbeat", { cache: "no-store", signal: AbortSignal.timeout(ASK_LIMIT) });
    if (answer.ok) return ["", await answer.text()];
    return [answer.status === 503 ? "Database" : "Server", null];
  } catch {
    return ["Server", null];
  }
}

async function askAgain(now) {
  asked = now;
  const [silent, at] = await ask();
  if (performance.now() - heard < LIMIT && follows) return; // a heartbeat came meanwhile
  if (silent) {
    cause = silent;
    answeredAgain = null;
  } else if (!follows) {
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
  if (document.hidden) return; // the stream of a page in the background rests
  const now = performance.now();
  const late = now - heard > LIMIT;
  if (late && follows && !cause) {
    cause = connected() ? "Database" : "Server";
    show();
  }
  if ((late || !follows) && now - asked >= ASK_EVERY) askAgain(now);
  const waited = answeredAgain !== null && now - answeredAgain > STREAM_LIMIT;
  // The stream is lost although all answers: the page is loaded again, unless that would lose what somebody is at.
  if (waited && !document.querySelector("dialog[open]")) location.reload();
}

export function startWatching(hasStream, isConnected) {
  if (!page) return;
  follows = hasStream;
  connected = isConnected;
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) heard = performance.now();
  });
  addEventListener("pageshow", (event) => event.persisted && location.reload());
  addEventListener("resize", measure);
  setInterval(check, 500);
}

// A change is not sent while the database does not answer: it would wait there, and be made when nobody expects it.
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
