"""Combined schedules against brute force: the ticks of every member, one by one, and the wall clock at each of them."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import pytest

from detent.domain.schedule import Schedule, ScheduleError
from tests.schedule.test_schedule_oracle import CHANGES, POLICIES, minutes
from tests.schedule.wall_oracle import Drawn, Timeline, draw_expression

DAYS = [date(2000, 1, 1) + timedelta(days=number) for number in range(366 * 28)]


class DrawnRange(NamedTuple):
    """Excluded days or local times: the text, and the wall times from the first up to the second."""

    text: str
    first: datetime
    end: datetime

    def excludes(self, wall: datetime) -> bool:
        return self.first <= wall < self.end


class DrawnCron(NamedTuple):
    drawn: Drawn

    @property
    def text(self) -> str:
        return self.drawn.text

    def excludes(self, wall: datetime) -> bool:
        drawn = self.drawn
        timely = wall.hour in drawn.hours and wall.minute in drawn.minutes
        return drawn.day_matches(wall.date()) and timely and (drawn.seconds == {0} or wall.second in drawn.seconds)


class DrawnRule(NamedTuple):
    """Days by a recurrence rule: some weekdays of every n-th week from a Monday on."""

    monday: date
    interval: int
    weekdays: tuple[int, ...]

    @property
    def text(self) -> str:
        names = ",".join(("MO", "TU", "WE", "TH", "FR", "SA", "SU")[day] for day in self.weekdays)
        return f"DTSTART:{self.monday:%Y%m%d}\nRRULE:FREQ=WEEKLY;INTERVAL={self.interval};BYDAY={names}"

    def excludes(self, wall: datetime) -> bool:
        weeks, day = divmod((wall.date() - self.monday).days, 7)
        return weeks >= 0 and weeks % self.interval == 0 and day in self.weekdays


def draw_exclusion(draw: random.Random, timeline: Timeline, day_match: str) -> DrawnRange | DrawnCron | DrawnRule:
    start = timeline.instant(draw.randrange(len(timeline.walls))).replace(tzinfo=None)
    match draw.randrange(5):
        case 0:
            day = start.replace(hour=0, minute=0, second=0)
            return DrawnRange(f"{day:%Y-%m-%d}", day, day + timedelta(days=1))
        case 1:
            day, length = start.replace(hour=0, minute=0, second=0), draw.randint(0, 20)
            text = f"{day:%Y-%m-%d}/{day + timedelta(days=length):%Y-%m-%d}"
            return DrawnRange(text, day, day + timedelta(days=length + 1))
        case 2:
            end = start + timedelta(minutes=draw.randint(1, 5_000))
            return DrawnRange(f"{start:%Y-%m-%dT%H:%M:%S}/{end:%Y-%m-%dT%H:%M:%S}", start, end)
        case 3:
            monday = start.date() - timedelta(days=start.weekday())
            return DrawnRule(monday, draw.randint(1, 4), tuple(sorted({draw.randrange(7) for _ in range(3)})))
        case _:
            drawn = draw_with(draw, day_match)
            parts = drawn.text.split()
            if draw.random() < 0.5:  # whole days
                parts[:2] = ["*", "*"]
                drawn.minutes, drawn.hours = set(range(60)), set(range(24))
            drawn.text = " ".join(parts)
            return DrawnCron(drawn)


def draw_with(draw: random.Random, day_match: str) -> Drawn:
    while (drawn := draw_expression(draw)).day_match not in (None, day_match) or not possible(drawn):
        pass
    return drawn


def possible(drawn: Drawn) -> bool:
    return any(map(drawn.day_matches, DAYS))


def agree(draw: random.Random, timeline: Timeline, zone: str, gap: str, overlap: str) -> int:
    """One random combination over a whole timeline, except a day at either end. Returns how many ticks it has."""
    day_match = draw.choice(("or", "and"))
    members = [draw_with(draw, day_match) for _ in range(draw.randint(1, 3))]
    excluded = [draw_exclusion(draw, timeline, day_match) for _ in range(draw.randint(0, 3))]
    start, end = timeline.instant(0) + timedelta(days=1), timeline.instant(len(timeline.walls) - 1) - timedelta(days=1)
    every, anchor = timedelta(minutes=draw.randint(7, 3_000)), start + timedelta(minutes=draw.randint(-99, 99))
    ticks = {tick for member in members for tick in timeline.ticks(member, gap, overlap)}
    also: list[Any] = [member.text for member in members[1:]]
    if draw.random() < 0.5 or not (also or excluded):
        also.append({"every": every.total_seconds(), "anchor": anchor.isoformat()})
        ticks |= {anchor + number * every for number in range(-100, int((end - anchor) / every) + 1)}
    info = ZoneInfo(zone)
    expected = sorted(
        tick
        for tick in ticks
        if start < tick <= end
        and not any(each.excludes(tick.astimezone(info).replace(tzinfo=None)) for each in excluded)
    )
    spec = {"cron": members[0].text, "also": also, "exclude": [each.text for each in excluded]}
    options: dict[str, Any] = {"timezone": zone, "dst_gap": gap, "dst_overlap": overlap, "day_match": day_match}
    try:
        schedule = Schedule.parse(spec, **options, anchor=start)
    except ScheduleError as error:
        assert "excluded" in error.message and not expected, (spec, error.message)
        return 0
    compare(schedule, expected, start, end, draw, (spec, zone, gap, overlap, day_match))
    return len(expected)


def compare(
    schedule: Schedule, expected: list[datetime], start: datetime, end: datetime, draw: random.Random, what: object
) -> None:
    assert schedule.between(start, end, len(expected) + 10) == expected, what
    assert schedule.count_between(start, end) == len(expected), what
    assert Schedule.from_stored(schedule.to_stored()) == schedule, what
    for _ in range(5):
        low = start + timedelta(seconds=draw.randrange(int((end - start).total_seconds())))
        high = low + timedelta(seconds=draw.randrange(int((end - low).total_seconds()) + 1))
        inside = [tick for tick in expected if low < tick <= high]
        assert schedule.count_between(low, high) == len(inside), (what, low, high)
        last = max((tick for tick in expected if low <= tick <= high), default=None)
        assert schedule.latest(low, high) == last, (what, low, high)


@pytest.mark.parametrize(
    "zone",
    [
        "Australia/Lord_Howe",
        *(pytest.param(name, marks=pytest.mark.long) for name in ("America/New_York", "Africa/Cairo")),
    ],
)
def test_random_combinations_agree_with_brute_force_over_eight_weeks_of_minutes(zone: str) -> None:
    draw = random.Random(f"combined {zone}")
    timeline = minutes(zone, datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 4, 28, tzinfo=UTC))
    assert sum(agree(draw, timeline, zone, *POLICIES[number % 9]) for number in range(18)) > 2_000


@pytest.mark.parametrize(("zone", "change"), CHANGES)
def test_random_combinations_agree_with_brute_force_on_every_minute_around_a_change(
    zone: str, change: datetime
) -> None:
    draw = random.Random(f"combined {zone} {change}")
    timeline = Timeline(zone, change - timedelta(days=4), change + timedelta(days=4), 60)
    for number in range(18):
        agree(draw, timeline, zone, *POLICIES[number % 9])


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/Santiago", "Antarctica/Troll", "Asia/Kathmandu"])
def test_many_random_combinations_agree_with_brute_force_over_a_year_of_minutes(zone: str) -> None:
    draw = random.Random(f"a year of combinations in {zone}")
    timeline = minutes(zone, datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC))
    assert sum(agree(draw, timeline, zone, *POLICIES[number % 9]) for number in range(90)) > 100_000
