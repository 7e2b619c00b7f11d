// A worker for detent in plain JavaScript: node worker.mjs [queue]. Needs Node 18 or newer, and no packages.
// It claims runs of a queue whose jobs have a target such as {"type": "python", "function": "resize"}, whatever the
// language of the function, keeps their leases alive while they run, and reports what became of them.
import os from "node:os";

const url = process.env.DETENT_API_URL ?? "http://127.0.0.1:8787";
const key = process.env.DETENT_API_KEY;
const queue = process.argv[2] ?? "javascript";
const slots = Number(process.env.SLOTS ?? 16);
const lease_seconds = Number(process.env.LEASE_SECONDS ?? 30);

// Your functions. Each gets the run: payload, scheduled_at, attempt, idempotency_key, token, …; and a signal that fires
// when the run was cancelled or is no longer ours. What is returned is kept as the result; what is thrown is a failure.
const functions = {
  add: ({ payload }) => payload.a + payload.b,
  fail: ({ attempt }) => { throw new Error(`attempt ${attempt} fails on purpose`); },
  sleep: ({ payload }, signal) => new Promise((done, stop) => {
    const timer = setTimeout(() => done("slept"), payload.milliseconds);
    signal.addEventListener("abort", () => { clearTimeout(timer); stop(new Error("stopped")); });
  }),
};

async function post(path, body, signal) {
  const headers = { "Content-Type": "application/json", ...(key && { Authorization: `Bearer ${key}` }) };
  const answer = await fetch(url + "/api/v1" + path, { method: "POST", headers, body: JSON.stringify(body), signal });
  const document = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(document.detail), { status: answer.status });
  return document;
}

// A report is repeated until it is answered: saying it twice is saying it once. 409: too late, the run is somebody else's.
async function report(run, verb, body) {
  for (let wait = 100; ; wait = Math.min(wait * 2, 5000)) {
    try { return await post(`/runs/${run.run_id}/${verb}`, { token: run.token, ...body }); }
    catch (error) {
      if (error.status === 409) return console.error(error.message);
      if (error.status < 500 && error.status !== 429) throw error;
      await new Promise((done) => setTimeout(done, wait));
    }
  }
}

async function work(run) {
  const lost = new AbortController();
  const heart = setInterval(() => post(`/runs/${run.run_id}/heartbeat`, { token: run.token, lease_seconds }).then(
    (lease) => lease.cancel && lost.abort(), (error) => error.status === 409 && lost.abort()), lease_seconds * 1000 / 3);
  try { await report(run, "complete", { result: await functions[run.target.function](run, lost.signal) ?? null }); }
  catch (error) { await report(run, "fail", { error: String(error) }).catch(console.error); }
  finally { clearInterval(heart); }
}

const running = new Set();
const hangingUp = new AbortController();
let stopping = false;
// Told to stop, it listens a second longer before it hangs up: runs whose claim is being answered right now would
// otherwise wait until their lease ends.
const stop = () => { stopping = true; setTimeout(() => hangingUp.abort(), 1000).unref(); };
for (const name of ["SIGINT", "SIGTERM"]) process.once(name, stop);
while (!stopping) {
  const claim = { worker: `${os.hostname()}-${process.pid}`, functions: Object.keys(functions), lease_seconds,
    limit: Math.min(slots - running.size, 100), wait_seconds: 20 };
  try {
    const { runs } = await post(`/queues/${encodeURIComponent(queue)}/claim`, claim, hangingUp.signal);
    for (const run of runs) { const task = work(run).finally(() => running.delete(task)); running.add(task); }
    while (running.size > slots * 0.75) await Promise.race(running);
  } catch (error) {
    if (!stopping) { console.error(error.message); await new Promise((done) => setTimeout(done, 1000)); }
  }
}
await Promise.all(running); // claims nothing more, and finishes what it has
