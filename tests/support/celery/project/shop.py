"""An ordinary Celery app that knows nothing about detent. Its tasks record in Redis that they were executed."""

from __future__ import annotations

import json
import os
import time
from datetime import timedelta
from typing import Any

import redis
from celery import Celery
from celery.schedules import BaseSchedule, crontab


class Sunrise(BaseSchedule):  # type: ignore[misc]  # Celery has no types
    """A schedule of the shop's own."""


app = Celery("shop", broker=os.environ["SHOP_BROKER"], backend=os.environ.get("SHOP_BACKEND"))
app.conf.update(
    include=["shop_cleaning"],
    task_default_queue="shop",
    broker_connection_retry_on_startup=True,
    timezone="Europe/Berlin",
    beat_schedule={
        "every-second": {"task": "shop.record", "schedule": 1.0, "args": ("beat",)},
        "report": {
            "task": "shop.report",
            "schedule": crontab(minute=30, hour="6,18", day_of_week="mon-fri"),
            "kwargs": {"week": True},
            "options": {"queue": "reports", "expires": 3600, "priority": 3},
        },
        "month-end": {"task": "shop.report", "schedule": crontab(minute=0, hour=3, day_of_month=1, day_of_week=1)},
        "poll": {"task": "shop.poll", "schedule": timedelta(minutes=5)},
        "sunrise": {"task": "shop.report", "schedule": Sunrise()},
    },
)


def executed() -> Any:
    return redis.Redis.from_url(os.environ["SHOP_RECORD"])


def _note(task: Any, *args: Any) -> None:
    facts = {"id": task.request.id, "args": args, "headers": task.request.headers or {}}
    executed().rpush("executed", json.dumps(facts))


@app.task(name="shop.record", bind=True)  # type: ignore[untyped-decorator]  # Celery has no types
def record(self: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
    _note(self, *args, kwargs)
    return {"args": list(args), "kwargs": kwargs}


@app.task(name="shop.fails", bind=True)  # type: ignore[untyped-decorator]  # Celery has no types
def fails(self: Any) -> None:
    _note(self)
    raise ConnectionError("the mail server is away")


@app.task(name="shop.fails_twice")  # type: ignore[untyped-decorator]  # Celery has no types
def fails_twice() -> None:
    raise ExceptionGroup("both servers are away", [ConnectionError("mail"), TimeoutError("fax")])


@app.task(name="shop.slow", bind=True)  # type: ignore[untyped-decorator]  # Celery has no types
def slow(self: Any, seconds: float) -> str:
    _note(self, seconds)
    time.sleep(seconds)
    executed().rpush("finished", self.request.id)
    return "done"
