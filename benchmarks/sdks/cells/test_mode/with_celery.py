from celery_setup import app

calls = []
app.conf.task_always_eager = True


@app.task(autoretry_for=(TimeoutError,), max_retries=1, default_retry_delay=3600, retry_backoff=False)
def fail_once() -> str:
    calls.append(1)
    if len(calls) == 1:
        raise TimeoutError
    return "done"


print(fail_once.delay().get(), len(calls))
assert len(calls) == 2
print("partly: task_always_eager calls in place, at once and without the delay: countdown and eta are ignored")
