from detent_setup import app

from detent import Discard, Retry, Run


@app.task(max_retries=3)
def busy(run: Run) -> str:
    if run.attempt == 1:
        raise Retry("the bank is busy", after=30)
    return "done"


@app.task
def pointless() -> None:
    raise Discard("no such order")


with app.test() as t:
    first, second = busy.enqueue_sync(), pointless.enqueue_sync()
    t.run_pending()
    print(first.status(), second.status(), t.runs_of("pointless")[0].reason)
    t.advance(seconds=29)
    assert first.status() == "retrying"
    t.advance(seconds=2)
    print(first.result())
print("yes: raise Retry(after=30), raise Discard(why); the reason is kept with the run")
