"""The tick before that of a run, according to the schedule that the run was fired with."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from detent.domain.identity import MANUAL
from detent.domain.job import Definition, HttpTarget, JobSpec
from detent.domain.job_schedule import schedule_of
from detent.domain.run import Claim
from detent.worker.windows import Windows

CREATED = datetime(2026, 3, 10, 7, 12, 13, 456_789, tzinfo=UTC)
HTTP = HttpTarget(url="http://127.0.0.1:9/")


def job(schedule: Any, **fields: Any) -> Definition:
    return Definition(uuid4(), "report", JobSpec(schedule=schedule, target=HTTP, **fields), CREATED)


@pytest.mark.parametrize(
    ("schedule", "fields"),
    [
        ("0 9 * * *", {"timezone": "Europe/Berlin"}),
        ("0 9 * * *", {"timezone": "Asia/Tokyo"}),
        ("0 9 29 2 *", {}),
        ("H 3 * * *", {}),
        ("h 3 * * *", {}),
        ("@daily", {}),
        ("every 7m", {}),
        ("FREQ=WEEKLY;INTERVAL=2;BYDAY=MO", {}),
        ({"every": "90s"}, {}),
        ("30 6 * * *", {"starts_at": datetime(2026, 4, 1, tzinfo=UTC)}),
    ],
    ids=str,
)
def test_the_window_of_each_tick_begins_with_the_one_before(schedule: Any, fields: dict[str, Any]) -> None:
    windows = Windows()
    for number in (4, 5):
        definition = job(schedule, name=f"report {number}", **fields)
        ticks = schedule_of(definition.spec, definition.tenant, CREATED).between(
            CREATED, CREATED + timedelta(days=9000), 5
        )
        starts = [windows.start(Claim(number, 0, tick, 0, 1, 1), definition) for tick in ticks]
        assert starts[1:] == ticks[:-1]
        if "starts_at" in fields:
            assert starts[0] is None


def test_a_one_off_has_no_window_and_a_run_by_hand_has_that_since_the_last_tick() -> None:
    at = datetime(2026, 5, 1, 12, 30, tzinfo=UTC)
    assert Windows().start(Claim(1, 0, at, 0, 1, 1), job(at.isoformat())) is None
    assert Windows().start(Claim(1, 0, at, 1 << 20, 1, 1), job("0 * * * *")) == at - timedelta(minutes=30)


def test_a_run_by_hand_of_an_interval_at_the_time_of_a_tick_has_the_window_of_the_job() -> None:
    """Jobs with the same interval share windows, but begin to count at different times."""
    windows, at = Windows(), datetime(2026, 5, 1, 12, tzinfo=UTC)
    definition = job("every 7m")
    assert windows.start(Claim(1, 0, at, 0, 1, 1), definition) == at - timedelta(minutes=7)
    by_hand = windows.start(Claim(1, 0, at, MANUAL, 1, 1), definition)
    assert by_hand is not None and at - timedelta(minutes=7) < by_hand < at
    assert windows.start(Claim(2, 0, at, 0, 1, 1), job("every 7m")) == at - timedelta(minutes=7)


def test_a_job_that_was_edited_has_the_window_of_the_revision_that_was_fired() -> None:
    windows, at = Windows(), datetime(2026, 5, 1, 12, tzinfo=UTC)
    before = job({"cron": "0 * * * *"})
    after = before._replace(spec=JobSpec(schedule={"cron": "0 12 * * *"}, target=HTTP))
    assert windows.start(Claim(1, 0, at, 0, 1, 1), before) == at - timedelta(hours=1)
    assert windows.start(Claim(1, 0, at, 0, 1, 2), after) == at - timedelta(days=1)


@pytest.mark.parametrize("tick", [datetime.min, datetime.min + timedelta(days=1), datetime(90, 1, 1)])
def test_a_tick_at_the_beginning_of_the_calendar_has_a_window_too(tick: datetime) -> None:
    tick = tick.replace(tzinfo=UTC)
    before = Windows().start(Claim(7, 0, tick, 0, 1, 1), job("0 0 * * *"))
    assert before is None or before < tick
