import time

from celery.exceptions import Ignore
from celery_setup import app, worker


@app.task(bind=True)
def busy(self) -> None:
    raise self.retry(countdown=30)


@app.task
def pointless() -> None:
    raise Ignore("no such order")


sent = [busy.delay(), pointless.delay()]
with worker():
    time.sleep(3)
print([one.state for one in sent])
assert [one.state for one in sent] == ["RETRY", "PENDING"]
print("partly: self.retry(countdown=30); after Ignore the task looks as if it still waits, without a reason")
