from celery_setup import app, worker

calls = []


@app.task(
    autoretry_for=(Exception,),
    dont_autoretry_for=(KeyError,),
    max_retries=2,
    retry_backoff=False,
    default_retry_delay=0,
)
def fail(kind: str) -> None:
    calls.append(kind)
    raise {"slow": TimeoutError, "missing": KeyError}[kind]()


sent = [fail.delay("slow"), fail.delay("missing")]
with worker():
    for one in sent:
        one.get(timeout=30, propagate=False)
print(sorted(calls))
assert sorted(calls) == ["missing", "slow", "slow", "slow"]
print("yes: autoretry_for and dont_autoretry_for")
