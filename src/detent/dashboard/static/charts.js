// Time series charts, drawn with uPlot in the theme's colours.
const charts = new WeakMap();

function colour(name) {
  const probe = document.createElement("span");
  probe.className = `probe ${name}`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

function stacked(chart) {
  const good = chart.succeeded;
  const both = good.map((value, n) => value + chart.dead[n]);
  const all = both.map((value, n) => value + chart.other[n]);
  return [chart.times, all, both, good];
}

function spanOf(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  return seconds < 1 ? `${Math.round(seconds * 1000)} ms` : seconds < 60 ? `${Number(seconds.toFixed(1))} s` : `${Math.round(seconds / 60)} min`;
}

function shownDate(seconds) {
  const date = new Date(seconds * 1000);
  if (document.documentElement.dataset.clock === "local") return date;
  return new Date(date.getTime() + date.getTimezoneOffset() * 60000);
}

const two = (value) => String(value).padStart(2, "0");

function clockText(seconds, before) {
  const at = shownDate(seconds);
  const clock = `${two(at.getHours())}:${two(at.getMinutes())}`;
  const newDay = before !== undefined && shownDate(before).getDate() !== at.getDate();
  return newDay ? at.toLocaleDateString("en-GB", { day: "2-digit", month: "short" }) : clock;
}

function axes(values) {
  const ink = colour("ink");
  const line = colour("line");
  const grid = { stroke: line, width: 1 };
  const common = { stroke: ink, font: "11px system-ui, sans-serif", ticks: { show: false } };
  return [
    { ...common, grid: { show: false }, space: 64, size: 26, values: (u, ticks) => ticks.map((at, n) => clockText(at, ticks[n - 1])) },
    { ...common, grid, size: 54, values, space: 28 },
  ];
}

const moment = { label: "", value: (_u, at) => (at ? `${shownDate(at).toLocaleDateString("en-GB", { day: "2-digit", month: "short" })} ${two(shownDate(at).getHours())}:${two(shownDate(at).getMinutes())}` : "") };

function runsOptions(chart) {
  const bars = uPlot.paths.bars({ size: [0.8, 12] });
  const series = (label, name, value) => ({ label, fill: colour(name), stroke: colour(name), width: 0, paths: bars, points: { show: false }, value });
  const own = (name) => (u, _value, _series, index) => (index === null ? "" : chart()[name][index]);
  return {
    series: [moment, series("– skipped, missed, cancelled", "other", own("other")), series("✕ dead", "dead", own("dead")), series("✓ succeeded", "succeeded", own("succeeded"))],
    axes: axes((_u, ticks) => ticks.map((value) => (value >= 1000 ? `${value / 1000}k` : value))),
    scales: { y: { range: (_u, _low, high) => [0, Math.max(high * 1.08, 4)] } },
  };
}

function lateOptions() {
  const series = (label, name, dash) => ({ label, stroke: colour(name), width: 1.5, dash, points: { show: false }, value: (_u, value) => (value === null ? "" : spanOf(value)), spanGaps: true });
  const tens = (u, _axis, low, high) => [0.001, 0.01, 0.1, 1, 10, 100, 1000].filter((value) => value >= low && value <= high);
  const [time, span] = axes((_u, ticks) => ticks.map(spanOf));
  return {
    series: [moment, series("━ p50", "p50"), series("╍ p99", "p99", [5, 3])],
    axes: [time, { ...span, splits: tens, filter: (_u, ticks) => ticks }],
    scales: { y: { distr: 3, range: (_u, _low, high) => [0.001, 10 ** Math.ceil(Math.log10(Math.max(high || 0, 0.1)))] } },
  };
}

function draw(figure) {
  const canvas = figure.querySelector(".canvas");
  const data = JSON.parse(figure.closest("[data-chart]").dataset.chart);
  const columns = figure.dataset.kind === "runs" ? stacked(data) : [data.times, data.p50, data.p99];
  const known = charts.get(canvas);
  if (known) {
    known.data = data;
    known.plot.setData(columns);
    return;
  }
  const held = { data };
  const options = figure.dataset.kind === "runs" ? runsOptions(() => held.data) : lateOptions();
  const size = { width: Math.max(canvas.clientWidth, 200), height: figure.dataset.kind === "runs" ? 190 : 140 };
  held.plot = new uPlot({ ...size, ...options, cursor: { y: false, points: { size: 5 } }, legend: { show: true, live: true } }, columns, canvas);
  charts.set(canvas, held);
  new ResizeObserver(() => held.plot.setSize({ width: Math.max(canvas.clientWidth, 200), height: size.height })).observe(canvas);
}

function drawAll() {
  for (const figure of document.querySelectorAll("figure.chart")) draw(figure);
}

function redrawAll() {
  for (const canvas of document.querySelectorAll("figure.chart .canvas")) {
    charts.get(canvas)?.plot.destroy();
    charts.delete(canvas);
  }
  drawAll();
}

export function startCharts() {
  if (!document.querySelector("figure.chart")) return;
  drawAll();
  document.addEventListener("htmx:after:swap", drawAll);
  document.addEventListener("theme-changed", redrawAll);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);
}
