import time

from celery.result import AsyncResult
from celery_setup import app, worker


@app.task(bind=True)
def import_orders(self) -> None:
    self.update_state(state="PROGRESS", meta={"fraction": 0.4})
    time.sleep(2)


sent = import_orders.delay()
with worker():
    while (seen := AsyncResult(sent.id, app=app)).state == "PENDING":
        time.sleep(0.05)
    print(seen.state, seen.info)
    assert seen.info == {"fraction": 0.4}
    sent.get(timeout=20)
print("yes: update_state(state=…, meta=…) with a state of your own")
