"""The Celery application: a no-op task, on the Redis whose address is in the environment."""

from __future__ import annotations

import os

from celery import Celery

BROKER = os.environ["PEER_REDIS"]
RESULTS = BROKER.removesuffix("/0") + "/1"

app = Celery("peers", broker=BROKER, backend=RESULTS)
app.conf.update(
    # What its guide advises for many short tasks: take many messages at once.
    worker_prefetch_multiplier=int(os.environ.get("PEER_PREFETCH", "128")),
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
    task_default_queue="peers",
    redbeat_redis_url=BROKER,
    redbeat_lock_key=None,
    beat_max_loop_interval=1,
    worker_send_task_events=False,
    result_expires=None,
)


@app.task(name="noop")
def noop() -> None:
    return None
