from celery_setup import app, worker


@app.task(bind=True, max_retries=1)
def fail(self) -> None:
    try:
        raise ConnectionError
    except ConnectionError as error:
        raise self.retry(exc=error, countdown=60)  # the function catches, and asks
    except Exception as error:
        raise self.retry(exc=error, countdown=5)


sent = fail.delay()
with worker():
    import time

    while sent.state == "PENDING":
        time.sleep(0.1)
print(sent.state)
assert sent.state == "RETRY"
print("no: one default_retry_delay or backoff for all; the function catches each class itself")
