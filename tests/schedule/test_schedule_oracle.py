"""The engine against brute force: every minute, and every second around each change of the clock."""

from __future__ import annotations

import functools
import itertools
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from detent.domain.schedule import Schedule, ScheduleError
from tests.schedule.wall_oracle import Drawn, Timeline, draw_expression, draw_foreign

GAPS = ("run", "shift", "skip")
OVERLAPS = ("first", "last", "both")
POLICIES = list(itertools.product(GAPS, OVERLAPS))
ZONES = (
    "America/New_York",
    "Europe/Berlin",
    "Australia/Lord_Howe",
    "Antarctica/Troll",
    "Africa/Cairo",
    "America/Santiago",
    "Africa/Casablanca",
    "Asia/Beirut",
    "America/St_Johns",
    "Asia/Kathmandu",
)
# (zone, an instant within a day of a change of its clock)
CHANGES = (
    ("America/New_York", datetime(2026, 3, 8, 7, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 11, 1, 6, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 4, 4, 15, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 10, 3, 15, 30, tzinfo=UTC)),
    ("Antarctica/Troll", datetime(2026, 3, 29, 1, tzinfo=UTC)),
    ("Antarctica/Troll", datetime(2026, 10, 25, 1, tzinfo=UTC)),
    ("Africa/Cairo", datetime(2026, 4, 23, 22, tzinfo=UTC)),
    ("Africa/Cairo", datetime(2026, 10, 29, 21, tzinfo=UTC)),
    ("America/Santiago", datetime(2026, 9, 6, 4, tzinfo=UTC)),
    ("Africa/Casablanca", datetime(2026, 2, 15, 2, tzinfo=UTC)),
    ("Pacific/Apia", datetime(2011, 12, 30, 10, tzinfo=UTC)),
    ("Europe/Dublin", datetime(2026, 10, 25, 1, tzinfo=UTC)),
)


def parse(drawn: Drawn, zone: str, gap: str, overlap: str, dialect: str) -> Schedule | None:
    options: dict[str, Any] = {"timezone": zone, "dst_gap": gap, "dst_overlap": overlap, "day_match": drawn.day_match}
    try:
        return Schedule.parse(drawn.text, dialect=dialect, **options)
    except ScheduleError as error:
        # The only thing a drawn expression may be refused for is a day that no year has.
        assert "no year has" in error.message, (drawn.text, error.message)
        return None


def agree(
    drawn: Drawn, timeline: Timeline, zone: str, gap: str, overlap: str, draw: random.Random, dialect: str = "unix"
) -> int:
    """Compares one expression over a whole timeline; a day at either end is left to other timelines,
    because a tick may be moved in or out of it. Returns how many ticks were compared."""
    schedule = parse(drawn, zone, gap, overlap, dialect)
    start, end = timeline.instant(0) + timedelta(days=1), timeline.instant(len(timeline.walls) - 1) - timedelta(days=1)
    expected = [tick for tick in timeline.ticks(drawn, gap, overlap) if start < tick <= end]
    if schedule is None:
        assert not expected
        return 0
    what = (drawn.text, zone, gap, overlap, drawn.day_match, dialect)
    assert schedule.between(start, end, len(expected) + 10) == expected, what
    assert schedule.count_between(start, end) == len(expected), what
    for _ in range(5):
        low = start + timedelta(seconds=draw.randrange(int((end - start).total_seconds())))
        high = low + timedelta(seconds=draw.randrange(int((end - low).total_seconds()) + 1))
        inside = [tick for tick in expected if low < tick <= high]
        assert schedule.count_between(low, high) == len(inside), (*what, low, high)
        last = max((tick for tick in expected if low <= tick <= high), default=None)
        assert schedule.latest(low, high) == last, (*what, low, high)
    return len(expected)


@functools.lru_cache(maxsize=2)
def minutes(zone: str, start: datetime, end: datetime) -> Timeline:
    return Timeline(zone, start, end, 60)


@pytest.mark.parametrize("zone", ["America/New_York", "Australia/Lord_Howe", "Africa/Cairo"])
def test_random_expressions_agree_with_brute_force_over_nine_months_of_minutes(zone: str) -> None:
    draw = random.Random(zone)
    timeline = minutes(zone, datetime(2026, 2, 20, tzinfo=UTC), datetime(2026, 11, 20, tzinfo=UTC))
    compared = sum(agree(draw_expression(draw), timeline, zone, *POLICIES[number % 9], draw) for number in range(18))
    assert compared > 1_000


@pytest.mark.parametrize("dialect", ["quartz", "aws"])
def test_expressions_of_other_programs_agree_with_brute_force_over_nine_months(dialect: str) -> None:
    draw = random.Random(dialect)
    zone = "America/New_York"
    timeline = minutes(zone, datetime(2026, 2, 20, tzinfo=UTC), datetime(2026, 11, 20, tzinfo=UTC))
    compared = 0
    for number in range(40):
        drawn = draw_foreign(draw, dialect)
        if drawn.seconds != {0}:  # every minute is looked at, so each minute has its tick at second 0
            drawn.text, drawn.seconds = " ".join(["0", *drawn.text.split()[1:]]), {0}
        compared += agree(drawn, timeline, zone, *POLICIES[number % 9], draw, dialect)
    assert compared > 1_000


@pytest.mark.parametrize("dialect", ["quartz", "aws"])
@pytest.mark.parametrize(("zone", "change"), CHANGES[:2])
def test_expressions_of_other_programs_agree_on_every_second_around_a_change(
    zone: str, change: datetime, dialect: str
) -> None:
    draw = random.Random(f"{zone} {change} {dialect}")
    timeline = Timeline(zone, change - timedelta(days=1.6), change + timedelta(days=1.6), 1)
    for number in range(9):
        drawn = draw_foreign(draw, dialect)
        drawn.months, drawn.text = set(range(1, 13)), _any_month(drawn.text, dialect)
        agree(drawn, timeline, zone, *POLICIES[number], draw, dialect)


def _any_month(text: str, dialect: str) -> str:
    parts = text.split()
    parts[4 if dialect == "quartz" and len(parts) > 5 else 3] = "*"
    return " ".join(parts)


@pytest.mark.parametrize(("zone", "change"), CHANGES)
def test_random_expressions_agree_with_brute_force_on_every_second_around_a_change(zone: str, change: datetime) -> None:
    draw = random.Random(f"{zone} {change}")
    timeline = Timeline(zone, change - timedelta(days=1.6), change + timedelta(days=1.6), 1)
    for number in range(9):
        drawn = narrow(draw_expression(draw, with_seconds=True), draw, timeline)
        agree(drawn, timeline, zone, *POLICIES[number], draw)


def narrow(drawn: Drawn, draw: random.Random, timeline: Timeline) -> Drawn:
    """Most random days are not the three around a change: let every day match half of the time."""
    if draw.random() < 0.5:
        return drawn
    parts = drawn.text.split()
    parts[3:6] = ["*", "*", "*"]
    return Drawn(
        " ".join(parts),
        drawn.seconds,
        drawn.minutes,
        drawn.hours,
        None,
        set(range(1, 13)),
        None,
        None,
        False,
        None,
        drawn.real_time,
    )


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("zone", ZONES)
def test_fifty_random_expressions_a_zone_agree_with_brute_force_over_two_years(zone: str) -> None:
    draw = random.Random(f"two years in {zone}")
    timeline = minutes(zone, datetime(2025, 12, 31, tzinfo=UTC), datetime(2028, 1, 2, tzinfo=UTC))
    compared = sum(agree(draw_expression(draw), timeline, zone, *POLICIES[number % 9], draw) for number in range(50))
    assert compared > 10_000


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("zone", "change"), CHANGES)
def test_many_random_expressions_agree_on_every_second_of_the_three_days_around_a_change(
    zone: str, change: datetime
) -> None:
    draw = random.Random(f"long {zone} {change}")
    timeline = Timeline(zone, change - timedelta(days=2.5), change + timedelta(days=2.5), 1)
    for number in range(45):
        drawn = narrow(draw_expression(draw, with_seconds=True), draw, timeline)
        agree(drawn, timeline, zone, *POLICIES[number % 9], draw)
