from detent_setup import app

from detent import Run


@app.task(max_retries=1, retry_delays={TimeoutError: 3600})
def fail_once(run: Run) -> str:
    if run.attempt == 1:
        raise TimeoutError
    return "done"


with app.test() as t:
    handle = fail_once.enqueue_sync()
    t.run_pending()
    t.advance(minutes=59)
    print(handle.status())
    assert handle.status() == "retrying"
    t.advance(minutes=2)
    print(handle.result())
print("yes: app.test() needs no database and moves its clock; pytest fixtures come along")
