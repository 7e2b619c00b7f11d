"""What the changes of the clock in the next two years do to a schedule, each once."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from detent.domain.schedule import Schedule
from detent.domain.schedule.preview import MAX_CHANGES, clock_changes

NOW = datetime(2026, 11, 16, tzinfo=UTC)


def changes(spec: Any, timezone: str = "Europe/Berlin", **options: Any) -> list[tuple[str, str, str]]:
    schedule = Schedule.parse(spec, timezone=timezone, anchor=NOW, **options)
    return [(change.on, change.effect, change.why) for change in clock_changes(schedule, NOW)]


def test_a_daily_job_shows_each_change_of_two_years_although_its_next_ticks_show_none() -> None:
    schedule = Schedule.parse("30 2 * * *", timezone="Europe/Berlin")
    assert {tick.dst for tick in schedule.preview(NOW, 6).ticks} == {None}
    assert changes("30 2 * * *") == [
        ("2027-03-28", "moved", "02:30 does not exist on 2027-03-28: runs at 03:00"),
        ("2027-10-31", "repeated", "02:30 comes twice on 2027-10-31: runs once, the first time"),
        ("2028-03-26", "moved", "02:30 does not exist on 2028-03-26: runs at 03:00"),
        ("2028-10-29", "repeated", "02:30 comes twice on 2028-10-29: runs once, the first time"),
    ]


def test_what_the_policies_do_is_said() -> None:
    skipping = changes("30 2 * * *", dst_gap="skip", dst_overlap="both")
    assert skipping[0] == ("2027-03-28", "skipped", "02:30 does not exist on 2027-03-28: does not run")
    assert skipping[1] == ("2027-10-31", "repeated", "02:30 comes twice on 2027-10-31: runs twice")


def test_many_times_at_one_change_are_one_entry() -> None:
    (first, *_) = changes("0,10,20,30,40,50 2 * * *")
    assert first[2] == (
        "02:00 does not exist on 2027-03-28: runs at 03:00. The same change touches 5 more of its times."
    )


def test_a_schedule_that_no_change_touches_shows_none() -> None:
    assert changes("0 9 * * *") == []
    assert changes("30 2 * * *", "UTC") == []
    assert changes("30 2 * * MON") == []
    assert changes("* * * * *") == []
    assert changes("every 90m") == []


def test_a_schedule_that_ends_before_the_change_shows_none() -> None:
    assert changes("30 2 * * *", ends_at=datetime(2027, 1, 1, tzinfo=UTC)) == []
    assert len(changes("30 2 * * *", starts_at=datetime(2028, 1, 1, tzinfo=UTC))) == 2


@pytest.mark.parametrize(
    "spec",
    [
        "* * 2 * * *",
        "30 2 29 2 *",
        {"rrule": "FREQ=MINUTELY;BYHOUR=2"},
        {"rrule": "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29;BYDAY=MO;BYHOUR=2;BYMINUTE=30;BYSECOND=0"},
    ],
)
@pytest.mark.parametrize("zone", ["Europe/Berlin", "Africa/Casablanca", "Pacific/Apia", "Australia/Lord_Howe"])
def test_however_many_times_a_schedule_names_what_is_looked_at_is_bounded(spec: Any, zone: str) -> None:
    schedule = Schedule.parse(spec, timezone=zone, anchor=NOW)
    resolver = schedule.ticks.resolver  # type: ignore[attr-defined]
    counting = Counting(resolver.source)
    resolver.source = counting
    try:
        found = clock_changes(schedule, NOW)
    finally:
        resolver.source = counting.source
    assert len(found) <= MAX_CHANGES
    assert counting.asked <= 3 * 100 * MAX_CHANGES


class Counting:
    """Counts how often the next match is looked for."""

    def __init__(self, source: Any) -> None:
        self.source = source
        self.asked = 0

    def next_wall(self, wall: int) -> int | None:
        self.asked += 1
        found: int | None = self.source.next_wall(wall)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self.source, name)
