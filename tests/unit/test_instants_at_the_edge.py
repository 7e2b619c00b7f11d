"""Every input for an instant refuses those that cannot be computed with, in one sentence."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.cli import times
from detent.domain.documents import FIRST_YEAR, LAST_YEAR, utc_instant
from detent.domain.schedule import Schedule, ScheduleError
from detent.errors import UsageError

EDGES = (
    "0001-01-01T00:00:00+14:00",
    "0001-01-01T00:00:00+00:00",
    "9999-12-31T23:59:59-14:00",
    "9999-12-31T23:59:59+00:00",
)
OFFSETS = st.timezones() | st.just(UTC)


@given(moment=st.datetimes(timezones=OFFSETS))
def test_an_instant_is_in_utc_and_in_range_or_refused(moment: datetime) -> None:
    try:
        found = utc_instant(moment, "at", "/at")
    except UsageError as error:
        assert error.pointer == "/at" and f"{FIRST_YEAR} to {LAST_YEAR}" in error.message
    else:
        assert found.timestamp() == moment.timestamp() and found.tzinfo is UTC and FIRST_YEAR <= found.year <= LAST_YEAR


@pytest.mark.parametrize("text", EDGES)
def test_times_on_the_command_line_are_refused_at_the_edge(text: str) -> None:
    for written in (text, text[:19]):
        with pytest.raises(UsageError, match="of the years 1970 to 9000"):
            times.read_moment("--until", written, ahead=True)


@pytest.mark.parametrize("text", ["99999999999999w", "1e300", "9" * 300 + "d"])
@pytest.mark.parametrize("ahead", [True, False])
def test_durations_on_the_command_line_that_leave_the_calendar_are_refused(text: str, ahead: bool) -> None:
    with pytest.raises(UsageError, match="--until"):
        times.read_moment("--until", text, ahead=ahead)


@pytest.mark.parametrize("text", [*EDGES, "0001-01-01T00:00:00", "9999-12-31T23:59:59"])
@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "Etc/GMT+12"])
def test_schedules_refuse_instants_at_the_edge(text: str, zone: str) -> None:
    for spec in (text, {"at": text}, {"every": "1h", "anchor": text}):
        with pytest.raises(ScheduleError, match="out of range; years 1971 to 9000"):
            Schedule.parse(spec, timezone=zone)
    bound = datetime.fromisoformat(text)
    if bound.tzinfo is not None:
        for name in ("starts_at", "ends_at"):
            with pytest.raises(ScheduleError, match="out of range"):
                Schedule.parse("@daily", timezone=zone, **{name: bound})  # type: ignore[arg-type]  # one of the two
