"""Schedules of several parts in the job form: what it shows is what it sends."""

from __future__ import annotations

from typing import Any

import pytest

from detent.dashboard.form import schedule_from, schedule_values
from detent.errors import UsageError


def form_of(schedule: str | dict[str, Any] | None) -> dict[str, list[str]]:
    """As a browser sends it."""
    return {name: [value.replace("\n", "\r\n")] for name, value in schedule_values(schedule).items()}


@pytest.mark.parametrize(
    "schedule",
    [
        "0 9 * * *",
        {"cron": "0 9 * * *", "also": ["0 11 * * SAT", {"every": "6h", "anchor": "2030-01-01T00:00:00Z"}]},
        {
            "cron": "0 9 * * *",
            "exclude": ["2030-12-24", "DTSTART:20300101\nRRULE:FREQ=DAILY;COUNT=2", {"cron": "* * 1 * *"}],
        },
        {"every": "10m", "after": "finish"},
        {"every": "10m", "anchor": "2030-01-01T00:00:00Z", "exclude": ["2030-12-24"]},
        {"rrule": "FREQ=DAILY", "also": ["@weekly"]},
        {"at": "2030-01-01T00:00:00", "also": ["2030-02-01T00:00:00"]},
        None,
    ],
)
def test_a_schedule_is_preserved_by_the_form(schedule: str | dict[str, Any] | None) -> None:
    assert schedule_from(form_of(schedule)) == schedule


def test_a_line_that_is_not_json_is_refused_with_its_place() -> None:
    form = {**form_of("0 9 * * *"), "also": ["@daily\n{every"]}
    with pytest.raises(UsageError, match="is not JSON") as refused:
        schedule_from(form)
    assert refused.value.pointer == "/schedule/also"
