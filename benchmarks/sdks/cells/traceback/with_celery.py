from celery.result import AsyncResult
from celery_setup import app, worker


@app.task(autoretry_for=(ValueError,), max_retries=1, default_retry_delay=0, retry_backoff=False)
def fail() -> None:
    try:
        {}["missing"]
    except KeyError as cause:
        cause.add_note("order 17")
        raise ValueError("no such order") from cause


sent = fail.delay()
with worker():
    sent.get(timeout=20, propagate=False)
text = AsyncResult(sent.id, app=app).traceback
print(
    {"raised": "ValueError: no such order" in text, "cause": "KeyError: 'missing'" in text, "note": "order 17" in text}
)
print("partly: the traceback of the last attempt, kept for a day; that of the attempt before is overwritten")
