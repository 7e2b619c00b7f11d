// Displayed times: in UTC, the browser's zone or the job's zone, or relative to now. The server writes each as an instant;
// this script formats it and refreshes it once a second.
const root = document.documentElement;
const formats = new Map();

function format(zone, options) {
  const key = zone + JSON.stringify(options);
  if (!formats.has(key)) {
    let made;
    try {
      made = new Intl.DateTimeFormat("en-GB", { timeZone: zone, hourCycle: "h23", ...options });
    } catch {
      made = new Intl.DateTimeFormat("en-GB", { timeZone: "UTC", hourCycle: "h23", ...options });
    }
    formats.set(key, made);
  }
  return formats.get(key);
}

const DATE = { year: "numeric", month: "2-digit", day: "2-digit" };
const CLOCK = { hour: "2-digit", minute: "2-digit", second: "2-digit" };

export function zoneOf(element) {
  const mode = root.dataset.clock;
  if (mode === "local") return Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (mode === "job") return element.dataset.zone || "UTC";
  return "UTC";
}

function dateText(moment, zone) {
  const parts = Object.fromEntries(format(zone, DATE).formatToParts(moment).map((part) => [part.type, part.value]));
  return `${parts.year}-${parts.month}-${parts.day}`;
}

function absolute(moment, zone, short) {
  const clock = format(zone, CLOCK).format(moment);
  const mark = zone === "UTC" ? "Z" : "";
  if (short || dateText(moment, zone) === dateText(new Date(), zone)) return clock + mark;
  return `${dateText(moment, zone)} ${clock}${mark}`;
}

export function span(seconds) {
  if (seconds < 1) return "now";
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return minutes < 10 ? `${minutes} min ${Math.floor(seconds % 60)} s` : `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return minutes % 60 && hours < 10 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
  return `${Math.floor(hours / 24)} d`;
}

function shown(element, moment, now) {
  const away = (moment - now) / 1000;
  switch (element.dataset.show) {
    case "in":
      return away < 0 ? (away > -5 ? "now" : `${span(-away)} overdue`) : away < 1 ? "now" : `in ${span(away)}`;
    case "ago":
      return away > 0 ? `in ${span(away)}` : away > -1 ? "just now" : `${span(-away)} ago`;
    case "full":
      return `${dateText(moment, zoneOf(element))} ${absolute(moment, zoneOf(element), true)}`;
    case "clock":
      return absolute(moment, zoneOf(element), true);
    default:
      return absolute(moment, zoneOf(element), false);
  }
}

export function showTimes(within = document) {
  const now = Date.now();
  for (const element of within.querySelectorAll("time[datetime]")) {
    const moment = new Date(element.dateTime);
    const text = shown(element, moment, now);
    if (element.textContent !== text) element.textContent = text;
    const zone = zoneOf(element);
    const title = `${dateText(moment, zone)} ${format(zone, CLOCK).format(moment)} ${zone}\n${element.dateTime}`;
    if (element.title !== title) element.title = title;
  }
}

export function startTimes() {
  showTimes();
  setInterval(showTimes, 1000);
  document.addEventListener("htmx:after:swap", () => showTimes());
}
