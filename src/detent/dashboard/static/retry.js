// A page that could not be shown: loaded again as soon as the database answers. Each try is bounded, and none waits for
// the one before.
const TRY_EVERY = 2000;
const TRY_LIMIT = 4000;

async function tryAgain() {
  try {
    const answer = await fetch("/heartbeat", { cache: "no-store", signal: AbortSignal.timeout(TRY_LIMIT) });
    if (answer.ok) location.reload();
  } catch {
    // The server does not answer either: the next try tells.
  }
}

setInterval(tryAgain, TRY_EVERY);
