"""What happens at changes of the clock, case by case, for each of the nine policies, with and without seconds."""

from __future__ import annotations

import itertools
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from detent.domain.schedule import Schedule

GAPS = ("run", "shift", "skip")
OVERLAPS = ("first", "last", "both")
POLICIES = list(itertools.product(GAPS, OVERLAPS))

# name: zone, day, expression, {gap policy: wall times of that day and the next midnight}
IN_A_GAP = {
    "New York, daily 02:30": (
        "America/New_York",
        date(2026, 3, 8),
        "30 2 * * *",
        {"run": ["03:00"], "shift": ["03:30"], "skip": []},
    ),
    "New York, 01:30 02:30 and 03:30": (
        "America/New_York",
        date(2026, 3, 8),
        "30 1-3 * * *",
        {"run": ["01:30", "03:00", "03:30"], "shift": ["01:30", "03:30"], "skip": ["01:30", "03:30"]},
    ),
    "New York, twice in the missing hour": (
        "America/New_York",
        date(2026, 3, 8),
        "15,45 2 * * *",
        {"run": ["03:00"], "shift": ["03:15", "03:45"], "skip": []},
    ),
    "New York, moved between its neighbours": (
        "America/New_York",
        date(2026, 3, 8),
        "15,30 2,3 * * *",
        {"run": ["03:00", "03:15", "03:30"], "shift": ["03:15", "03:30"], "skip": ["03:15", "03:30"]},
    ),
    "Lord Howe, half an hour, daily 02:15": (
        "Australia/Lord_Howe",
        date(2026, 10, 4),
        "15 2 * * *",
        {"run": ["02:30"], "shift": ["02:45"], "skip": []},
    ),
    "Cairo, daily at midnight": (
        "Africa/Cairo",
        date(2026, 4, 24),
        "0 0 * * *",
        {"run": ["01:00"], "shift": ["01:00"], "skip": []},
    ),
    "Beirut, daily at midnight": (
        "Asia/Beirut",
        date(2026, 3, 29),
        "0 0 * * *",
        {"run": ["01:00"], "shift": ["01:00"], "skip": []},
    ),
    "Santiago, daily at midnight": (
        "America/Santiago",
        date(2026, 9, 6),
        "0 0 * * *",
        {"run": ["01:00"], "shift": ["01:00"], "skip": []},
    ),
    "Santiago, Sundays at 00:30": (
        "America/Santiago",
        date(2026, 9, 6),
        "30 0 * * SUN",
        {"run": ["01:00"], "shift": ["01:30"], "skip": []},
    ),
    "Troll, two hours, daily 02:30": (
        "Antarctica/Troll",
        date(2026, 3, 29),
        "30 2 * * *",
        {"run": ["03:00"], "shift": ["04:30"], "skip": []},
    ),
    "Apia, a whole day, 30 December at 12:00": (
        "Pacific/Apia",
        date(2011, 12, 31),
        "0 12 30 12 *",
        {"run": ["00:00"], "shift": ["12:00"], "skip": []},
    ),
    "Apia, a whole day, daily 12:00": (
        "Pacific/Apia",
        date(2011, 12, 31),
        "0 12 * * *",
        {"run": ["00:00", "12:00"], "shift": ["12:00"], "skip": ["12:00"]},
    ),
}

# name: zone, day, expression, wall time, offset of the first and of the second time in hours
IN_AN_OVERLAP = {
    "New York, daily 01:30": ("America/New_York", date(2026, 11, 1), "30 1 * * *", "01:30", (-4, -5)),
    "Berlin, daily 02:30": ("Europe/Berlin", date(2026, 10, 25), "30 2 * * *", "02:30", (2, 1)),
    "Dublin, daily 01:30": ("Europe/Dublin", date(2026, 10, 25), "30 1 * * *", "01:30", (1, 0)),
    "Cairo, daily 23:30": ("Africa/Cairo", date(2026, 10, 29), "30 23 * * *", "23:30", (3, 2)),
    "Lord Howe, daily 01:45": ("Australia/Lord_Howe", date(2026, 4, 5), "45 1 * * *", "01:45", (11, 10.5)),
    "Troll, daily 02:30": ("Antarctica/Troll", date(2026, 10, 25), "30 2 * * *", "02:30", (2, 0)),
}

# name: zone, day, expression, how many ticks that day has
IN_REAL_TIME = {
    "hourly on a day of 23 hours": ("America/New_York", date(2026, 3, 8), "0 * * * *", 23),
    "hourly on a day of 25 hours": ("America/New_York", date(2026, 11, 1), "0 * * * *", 25),
    "every 15 minutes on a day of 23 hours": ("America/New_York", date(2026, 3, 8), "*/15 * * * *", 92),
    "every 15 minutes on a day of 25 hours": ("America/New_York", date(2026, 11, 1), "*/15 * * * *", 100),
    "every second hour on a day of 23 hours": ("America/New_York", date(2026, 3, 8), "0 */2 * * *", 11),
    "every second hour on a day of 25 hours": ("America/New_York", date(2026, 11, 1), "0 */2 * * *", 12),
    "hourly at :45 when half an hour repeats": ("Australia/Lord_Howe", date(2026, 4, 5), "45 * * * *", 25),
    "hourly at :15 when half an hour is missing": ("Australia/Lord_Howe", date(2026, 10, 4), "15 * * * *", 23),
    "every 15 minutes of the missing hour": ("America/New_York", date(2026, 3, 8), "*/15 2 * * *", 0),
    "every 15 minutes of the repeated hour": ("America/New_York", date(2026, 11, 1), "*/15 1 * * *", 8),
    "every minute of Apia's missing day": ("Pacific/Apia", date(2011, 12, 30), "* * * * *", 0),
}

SECONDS = {"five fields": "", "seconds field 0": "0 ", "seconds field 15": "15 "}


def ticks_of_day(schedule: Schedule, zone: str, day: date) -> list[datetime]:
    """All ticks whose local date is `day`."""
    noon = datetime(day.year, day.month, day.day, 12, tzinfo=UTC)
    ticks = schedule.between(noon - timedelta(days=2), noon + timedelta(days=2), 10_000)
    local = [tick.astimezone(ZoneInfo(zone)) for tick in ticks]
    return [tick for tick in local if tick.date() == day]


@pytest.mark.parametrize("seconds", SECONDS)
@pytest.mark.parametrize("name", IN_A_GAP)
def test_a_fixed_time_in_a_gap_follows_the_gap_policy(name: str, seconds: str) -> None:
    zone, day, expression, expected = IN_A_GAP[name]
    for gap, overlap in POLICIES:
        text = SECONDS[seconds] + expression
        schedule = Schedule.parse(text, timezone=zone, dst_gap=gap, dst_overlap=overlap)
        got = [tick.strftime("%H:%M:%S") for tick in ticks_of_day(schedule, zone, day)]
        tail = 15 if seconds.endswith("15") else 0
        moved = {"03:00", "02:30", "01:00", "00:00"} if gap == "run" else set()
        wanted = [f"{wall}:{0 if wall in moved else tail:02}" for wall in expected[gap]]
        assert got == wanted, (name, text, gap, overlap)


@pytest.mark.parametrize("seconds", SECONDS)
@pytest.mark.parametrize("name", IN_AN_OVERLAP)
def test_a_fixed_time_in_an_overlap_follows_the_overlap_policy(name: str, seconds: str) -> None:
    zone, day, expression, wall, offsets = IN_AN_OVERLAP[name]
    for gap, overlap in POLICIES:
        text = SECONDS[seconds] + expression
        schedule = Schedule.parse(text, timezone=zone, dst_gap=gap, dst_overlap=overlap)
        got = ticks_of_day(schedule, zone, day)
        chosen = {"first": offsets[:1], "last": offsets[1:], "both": offsets}[overlap]
        assert [tick.utcoffset() for tick in got] == [timedelta(hours=hours) for hours in chosen], (name, text)
        assert {tick.strftime("%H:%M") for tick in got} == {wall}


@pytest.mark.parametrize("seconds", SECONDS)
@pytest.mark.parametrize("name", IN_REAL_TIME)
def test_a_wildcard_hour_or_minute_runs_in_real_time_under_every_policy(name: str, seconds: str) -> None:
    zone, day, expression, expected = IN_REAL_TIME[name]
    for gap, overlap in POLICIES:
        text = SECONDS[seconds] + expression
        schedule = Schedule.parse(text, timezone=zone, dst_gap=gap, dst_overlap=overlap)
        assert len(ticks_of_day(schedule, zone, day)) == expected, (name, text, gap, overlap)


@pytest.mark.parametrize("name", IN_A_GAP)
def test_ticks_counted_one_by_one_and_counted_at_once_are_as_many(name: str) -> None:
    zone, day, expression, _ = IN_A_GAP[name]
    middle = datetime(day.year, day.month, day.day, 12, tzinfo=UTC)
    for gap, overlap in POLICIES:
        schedule = Schedule.parse(expression, timezone=zone, dst_gap=gap, dst_overlap=overlap)
        start, end = middle - timedelta(days=9), middle + timedelta(days=9)
        ticks = schedule.between(start, end, 1_000)
        assert schedule.count_between(start, end) == len(ticks)
        for earlier, later in itertools.pairwise(ticks):
            assert schedule.latest(earlier, later - timedelta(milliseconds=1)) == earlier
            assert schedule.latest(earlier + timedelta(milliseconds=1), later - timedelta(seconds=1)) is None


def test_starting_again_from_every_tick_gives_the_same_ticks_as_going_on() -> None:
    for name in IN_AN_OVERLAP:
        zone, day, expression, _, _ = IN_AN_OVERLAP[name]
        start = datetime(day.year, day.month, day.day, tzinfo=UTC) - timedelta(days=3)
        for gap, overlap in POLICIES:
            schedule = Schedule.parse(expression, timezone=zone, dst_gap=gap, dst_overlap=overlap)
            ticks = schedule.between(start, start + timedelta(days=7), 100)
            for earlier, later in itertools.pairwise(ticks):
                fresh = Schedule.from_stored(schedule.to_stored())
                assert fresh.next_after(earlier) == later
                assert fresh.next_after(later - timedelta(milliseconds=1)) == later
