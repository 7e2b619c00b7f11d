"""Times as people write them on the command line."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.cli import times
from detent.domain import moments
from detent.domain.schedule import Schedule
from detent.errors import UsageError

# A Wednesday.
HERE = datetime(2026, 11, 18, 10, 30, tzinfo=ZoneInfo("Europe/Berlin"))


@pytest.mark.parametrize(
    ("text", "ahead", "seconds"),
    [
        ("now", True, 0),
        ("10m", True, 600),
        ("10m", False, -600),
        ("+10m", False, 600),
        ("in 10 minutes", False, 600),
        ("-1h", True, -3600),
        ("1h ago", True, -3600),
        ("2 hours ago", True, -7200),
        ("1h30m", True, 5400),
        ("1 day and 2 hours from now", False, 93_600),
        ("90", True, 90),
        ("1.5h", True, 5400),
    ],
)
def test_a_duration_lies_ahead_or_behind_as_its_sign_says(text: str, ahead: bool, seconds: float) -> None:
    assert moments.offset_of(text, ahead=ahead) == seconds


@pytest.mark.parametrize(
    ("text", "ahead", "wall"),
    [
        ("tomorrow 09:00", True, "2026-11-19T09:00:00"),
        ("Tomorrow at 9am", True, "2026-11-19T09:00:00"),
        ("9:30 pm tomorrow", True, "2026-11-19T21:30:00"),
        ("yesterday", False, "2026-11-17T00:00:00"),
        ("today 12:00", True, "2026-11-18T12:00:00"),
        ("tomorrow noon", True, "2026-11-19T12:00:00"),
        ("monday 9:00", True, "2026-11-23T09:00:00"),
        ("monday 9:00", False, "2026-11-16T09:00:00"),
        ("wed 9:00", True, "2026-11-25T09:00:00"),
        ("wed 9:00", False, "2026-11-18T09:00:00"),
        ("next friday 18:00:30", False, "2026-11-20T18:00:30"),
        ("last friday", True, "2026-11-13T00:00:00"),
        ("09:00", True, "2026-11-19T09:00:00"),
        ("09:00", False, "2026-11-18T09:00:00"),
        ("2030-01-31 9:00", True, "2030-01-31T09:00:00"),
        ("2030-01-31", True, "2030-01-31T00:00:00"),
        ("2030-01-31T12:00:00.123", True, "2030-01-31T12:00:00.123000"),
    ],
)
def test_a_time_of_the_wall_clock_is_the_next_or_the_latest_one(text: str, ahead: bool, wall: str) -> None:
    found = moments.read(text, HERE, ahead=ahead)
    assert found is not None and found.wall is not None and found.wall.isoformat() == wall


def test_a_time_with_an_offset_is_an_instant() -> None:
    found = moments.read("2030-01-31T12:00:00+01:00", HERE, ahead=True)
    assert found is not None and found.instant == datetime(2030, 1, 31, 11, tzinfo=UTC) and found.wall is None


@pytest.mark.parametrize(
    "text",
    ["", "soon", "25:00", "13pm", "next", "tomorrow monday", "9", "tomorrow 9", "2030-02-30", "next 09:00", "at"],
)
def test_what_is_no_time_is_refused_with_examples(text: str) -> None:
    assert moments.read(text, HERE, ahead=True) is None
    if text != "9":  # nine seconds
        with pytest.raises(UsageError, match=r"--at is .*: give a time such as now, 10m, 2h ago, tomorrow 09:00"):
            times.read_moment("--at", text, ahead=True)


@given(st.text(max_size=30), st.booleans())
def test_no_text_breaks_the_reader(text: str, ahead: bool) -> None:
    moments.offset_of(text, ahead=ahead)
    moments.read(text, HERE, ahead=ahead)


def test_an_instant_finer_than_a_millisecond_is_rounded_down() -> None:
    assert times.read_moment("--at", "2030-01-31T12:00:00.123999Z", ahead=True).microsecond == 123_000
    for written in ("2030-01-31T12:00:00.123999Z", "2030-01-31T12:00:00.123999999Z"):
        assert Schedule.parse({"at": written}).at == datetime(2030, 1, 31, 12, 0, 0, 123_000, tzinfo=UTC)
