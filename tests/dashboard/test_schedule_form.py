"""Schedules of several parts in the job form: what it shows is what it sends."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest

from detent.dashboard.form import schedule_from, schedule_values
from detent.dashboard.moment_fields import at_from, instant_from
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


NOW = datetime(2026, 11, 18, 9, 30, 0, 123_456, tzinfo=UTC)  # a Wednesday, 10:30 in Berlin


@pytest.mark.parametrize(
    ("text", "instant", "at"),
    [
        ("10m", "2026-11-18T09:40:00.123Z", "2026-11-18T09:40:00Z"),
        ("in 2 hours", "2026-11-18T11:30:00.123Z", "2026-11-18T11:30:00Z"),
        ("tomorrow 09:00", "2026-11-19T08:00:00Z", "2026-11-19T09:00:00"),
        ("friday noon", "2026-11-20T11:00:00Z", "2026-11-20T12:00:00"),
        ("2026-12-24 18:00", "2026-12-24T17:00:00Z", "2026-12-24T18:00"),
        ("2026-12-24T18:00:00Z", "2026-12-24T18:00:00Z", "2026-12-24T18:00:00Z"),
    ],
)
def test_times_are_read_as_people_write_them(text: str, instant: str, at: str) -> None:
    """On the wall clock of the job."""
    assert instant_from(text, "until", "Europe/Berlin", NOW) == datetime.fromisoformat(instant)
    assert at_from(text, "Europe/Berlin", NOW) == at


@pytest.mark.parametrize("text", ["soon", "200000d", "2026", "+90"])
def test_what_is_no_time_is_refused_with_examples(text: str) -> None:
    with pytest.raises(UsageError, match=r"until is .*: give a time such as 2h, tomorrow 09:00 or"):
        instant_from(text, "until", "UTC", NOW)


def test_at_in_the_form_is_a_time_as_people_write_it() -> None:
    form = {"kind": ["at"], "at": ["tomorrow 09:00"], "timezone": ["Europe/Berlin"]}
    found: Any = schedule_from(form)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT09:00:00", found["at"])
    assert schedule_from({**form, "at": ["whenever"]}) == {"at": "whenever"}
    assert schedule_from({**form, "at": ["2026"]}) == {"at": "2026"}, "a year, not seconds"


def test_a_line_that_is_not_json_is_refused_with_its_place() -> None:
    form = {**form_of("0 9 * * *"), "also": ["@daily\n{every"]}
    with pytest.raises(UsageError, match="is not JSON") as refused:
        schedule_from(form)
    assert refused.value.pointer == "/schedule/also"
