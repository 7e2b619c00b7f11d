from detent_setup import app


@app.task(max_retries=5, retry_delays={ConnectionError: 60, TimeoutError: 5})
def fail(kind: str) -> None:
    raise {"slow": TimeoutError, "away": ConnectionError}[kind]()


with app.test() as t:
    for kind in ("slow", "away"):
        fail.enqueue_sync(kind)
    t.run_pending()
    start, due = t.now, []
    while len(due) < 2:
        t.advance(seconds=1)
        done = {run.payload["kind"] for run in t.runs if run.attempt > 1}
        due += [(kind, (t.now - start).total_seconds()) for kind in done - {kind for kind, _ in due}]
print(due)
assert due == [("slow", 5.0), ("away", 60.0)]
print("yes: retry_delays, by class; the most specific one counts")
