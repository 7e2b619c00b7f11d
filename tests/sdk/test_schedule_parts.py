"""`also`, `exclude` and `after` in code, and under the clock of test mode."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from detent import Detent
from detent.errors import UsageError


def ticks(runs: list[Any]) -> list[str]:
    return [f"{run.scheduled_at:%m-%d %H:%M:%S}" for run in runs]


def test_parts_of_a_schedule_are_registered_as_documents_have_them() -> None:
    app = Detent()

    @app.job(cron="0 9 * * *", also=["every 6h", {"cron": "@weekly"}], exclude=[date(2030, 12, 24), "* * * * SAT"])
    def report() -> None: ...

    @app.job(every="10m", after="finish")
    def poll() -> None: ...

    parts = {"also": ["every 6h", {"cron": "@weekly"}], "exclude": ["2030-12-24", "* * * * SAT"]}
    assert [job["schedule"] for job in app.jobs] == [
        {"cron": "0 9 * * *", **parts},
        {"every": "10m", "after": "finish"},
    ]


def test_a_part_that_is_not_a_list_is_refused() -> None:
    with pytest.raises(UsageError, match=r"give a list, such as exclude=\['2030-12-24'\]"):
        Detent().job(cron="@daily", exclude="2030-12-24")


def test_combined_schedules_tick_under_the_clock_of_the_test() -> None:
    app = Detent()

    @app.job(cron="0 9 * * *", also=["0 12 * * *"], exclude=["2026-05-06"])
    def report() -> None: ...

    with app.test(start="2026-05-05T00:00:00Z") as t:
        t.advance(days=3)
    assert ticks(t.runs) == ["05-05 09:00:00", "05-05 12:00:00", "05-07 09:00:00", "05-07 12:00:00"]


def test_a_fixed_delay_counts_from_the_last_attempt_and_from_runs_by_hand() -> None:
    app, calls = Detent(), 0

    @app.job(every="10m", after="finish", max_retries=1, retry_backoff="fixed", retry_base_seconds=90)
    def poll() -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise RuntimeError("once")

    with app.test(start="2026-05-05T00:00:00Z") as t:
        t.advance(minutes=45)
        assert ticks(t.runs) == ["05-05 00:10:00", "05-05 00:20:00", "05-05 00:31:30", "05-05 00:41:30"]
        t.trigger("poll")
        t.advance(minutes=12)
    assert ticks(t.runs)[4:] == ["05-05 00:45:00", "05-05 00:55:00"]
