from datetime import UTC, datetime, timedelta

from celery_setup import app, worker

app.conf.broker_transport_options = {"queue_order_strategy": "priority"}
order = []


@app.task
def note(name: str) -> None:
    order.append(name)


note.apply_async(("delay",), countdown=1)
note.apply_async(("time",), eta=datetime.now(UTC) + timedelta(seconds=2))
note.apply_async(("low",), priority=9)
note.apply_async(("high",), priority=0)
first = note.apply_async(("twice",), task_id="welcome-d", countdown=3)
last = note.apply_async(("twice",), task_id="welcome-d", countdown=4)
with worker():
    import time

    time.sleep(7)
print(order)
assert order.index("high") < order.index("low") and order.count("twice") == 2
print("partly: delay, time and priority; the same task_id runs twice")
