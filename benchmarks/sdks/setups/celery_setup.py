"""What all cells of Celery share: an app on Redis, and its worker in a thread of this process."""

import os

from celery import Celery
from celery.contrib.testing.worker import start_worker

app = Celery("cell", broker=os.environ["REDIS_URL"], backend=os.environ["REDIS_URL"])


def worker():
    return start_worker(app, perform_ping_check=False, shutdown_timeout=30)
