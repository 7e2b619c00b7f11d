"""The ticks of imported crontabs are those that Celery computes itself."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from celery import Celery
from celery.schedules import crontab

from detent.cli.beat_sources import _schedule_of
from detent.declarative.celery_beat import BeatEntry, BeatOptions, translate_beat
from detent.domain.job_schedule import schedule_of

TICKS = 100
NOW = datetime(2026, 1, 14, 10, 17, 30, tzinfo=UTC)

CRONTABS: list[dict[str, Any]] = [
    {},
    {"minute": "*/7"},
    {"minute": "3,33", "hour": "*/5"},
    {"minute": 0, "hour": "9-17/2", "day_of_week": "mon-fri"},
    {"minute": 0, "hour": 0, "day_of_week": "fri-mon"},
    {"minute": 30, "hour": 6, "day_of_week": "sunday"},
    {"minute": 15, "hour": 4, "day_of_month": "1-7", "day_of_week": 1},
    {"minute": 0, "hour": 3, "day_of_month": "*/10", "day_of_week": "*/2"},
    {"minute": 0, "hour": 12, "day_of_month": "29-31"},
    {"minute": 0, "hour": 12, "day_of_month": 1, "month_of_year": "*/3"},
    {"minute": 0, "hour": 12, "day_of_month": "15,31", "month_of_year": "jan-mar,oct"},
    {"minute": {5, 50}, "hour": [22, 23, 0]},
    {"minute": "50-10/5"},
]


def ticks_of_celery(fields: dict[str, Any]) -> list[datetime]:
    """As beat computes them: the time that is left since the last run."""
    app = Celery("ticks", set_as_current=False, fixups=set())
    app.conf.timezone = "UTC"
    schedule = crontab(app=app, **fields)
    found, last = [], NOW
    for _ in range(TICKS):
        schedule.nowfun = lambda: last  # noqa: B023 - used in this turn only
        last = last + schedule.remaining_estimate(last)
        found.append(last.replace(microsecond=0))
    return found


def ticks_of_detent(fields: dict[str, Any]) -> list[datetime]:
    schedule, _ = _schedule_of(crontab(**fields))
    found = translate_beat([BeatEntry("job", "task", schedule)], BeatOptions({"app": "shop:app"}, "UTC"), NOW)
    (job,) = found.translation.jobs
    timing = schedule_of(job.spec, 1, NOW)
    ticks: list[datetime] = []
    last = NOW
    for _ in range(TICKS):
        tick = timing.first_after(last)
        assert tick is not None
        ticks.append(tick)
        last = tick
    return ticks


@pytest.mark.parametrize("fields", CRONTABS, ids=str)
def test_a_crontab_has_the_ticks_of_celery(fields: dict[str, Any]) -> None:
    assert ticks_of_detent(fields) == ticks_of_celery(fields)


def test_an_interval_has_the_length_of_celerys() -> None:
    from celery.schedules import schedule

    found, _ = _schedule_of(schedule(timedelta(minutes=5)))
    verdicts = translate_beat([BeatEntry("job", "task", found)], BeatOptions({"app": "shop:app"}, "UTC"), NOW)
    (job,) = verdicts.translation.jobs
    assert job.document["schedule"] == "every 5m"
