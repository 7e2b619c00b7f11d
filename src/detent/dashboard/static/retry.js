import { BASE } from "./base.js";

// A page that could not be shown: reload it when the database answers. Each check has a timeout and none waits for the
// previous one.
const TRY_EVERY = 2000;
const TRY_LIMIT = 4000;

async function tryAgain() {
  try {
    const answer = await fetch(`${BASE}/heartbeat`, { cache: "no-store", signal: AbortSignal.timeout(TRY_LIMIT) });
    if (answer.ok) location.reload();
  } catch {
    // The server does not answer either: check again next time.
  }
}

setInterval(tryAgain, TRY_EVERY);
