"""Fire times beside cronsim and croniter, in fifteen zones, close to changes of the clock and far from them.

Every tick that the other library does not have, or that only it has, must be one of the deliberate differences
named here (they are explained in docs/schedules.md); anything else fails.
"""

from __future__ import annotations

import functools
import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
from croniter import croniter
from cronsim import CronSim

from detent.domain.schedule import Schedule

ZONES = (
    "UTC",
    "America/New_York",
    "Europe/Berlin",
    "Europe/Dublin",
    "Australia/Lord_Howe",
    "Antarctica/Troll",
    "Pacific/Apia",
    "Africa/Cairo",
    "America/Santiago",
    "Africa/Casablanca",
    "Asia/Beirut",
    "Asia/Kolkata",
    "America/St_Johns",
    "America/Havana",
    "Pacific/Chatham",
)
TICKS_EACH = 40
HOUR = timedelta(hours=1)


@functools.cache
def changes(zone: str) -> list[tuple[datetime, timedelta]]:
    """The changes of the clock from 2009 to 2027, and by how much: found hour by hour, then minute by minute."""
    info = ZoneInfo(zone)
    found = []
    moment, offset = datetime(2009, 1, 1, tzinfo=UTC), None
    while moment.year < 2028:
        now = moment.astimezone(info).utcoffset()
        if offset is not None and now != offset:
            exact = moment - HOUR
            while exact.astimezone(info).utcoffset() == offset:
                exact += timedelta(minutes=1)
            found.append((exact, now - offset))
        offset = now
        moment += HOUR
    return found


def draw_field(draw: random.Random, low: int, high: int, star: float) -> str:
    kind = draw.random()
    if kind < star:
        return "*"
    if kind < star + 0.15:
        return f"*/{draw.randint(1, min(high - low, 12) // 2)}"
    if kind < star + 0.3:
        first, last = sorted((draw.randint(low, high), draw.randint(low, high)))
        step = draw.randint(1, max((last - first) // 2, 1))
        if first == last:
            return str(first)  # cronsim reads '48-48/2' as '48/2', croniter reads '48-48' as '*'
        return f"{first}-{last}" if draw.random() < 0.5 else f"{first}-{last}/{step}"
    return ",".join(str(draw.randint(low, high)) for _ in range(draw.randint(1, 3)))


def draw_expression(draw: random.Random, day_forms: list[str], weekday_forms: list[str]) -> tuple[str, str | None]:
    """Five fields, and the day_match that means what Debian's cron does with them."""
    minute, hour = draw_field(draw, 0, 59, 0.15), draw_field(draw, 0, 23, 0.3)
    day, weekday = "*", "*"
    kind = draw.random()
    if kind < 0.3:
        day = draw.choice([*day_forms, draw_field(draw, 1, 28, 0)])
    elif kind < 0.6:
        weekday = draw.choice([*weekday_forms, draw_field(draw, 0, 6, 0)])
    elif kind > 0.9:
        # croniter takes L, W and # together with another day field to mean something else again.
        day, weekday = draw_field(draw, 1, 28, 0), draw_field(draw, 0, 6, 0)
    month = draw_field(draw, 1, 12, 0.9)
    day_match = None
    if day != "*" and weekday != "*":
        day_match = "and" if "*" in (day[0], weekday[0]) else "or"
    return f"{minute} {hour} {day} {month} {weekday}", day_match


def draw_start(draw: random.Random, zone: str) -> datetime:
    if changes(zone) and draw.random() < 0.7:
        # cronsim never returns at St. John's old changes at 00:01 ('35 */2 * * *' from 2009-10-31).
        safe = [change for change, _ in changes(zone) if change.year > 2011 or zone != "America/St_Johns"]
        change = draw.choice(safe)
        return change - timedelta(seconds=draw.randrange(2 * 86_400))
    return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=draw.randrange(500 * 86_400))


Explain = Callable[[str, str, datetime, bool], str | None]


def compare(
    ours: list[datetime], theirs: list[datetime], what: tuple[str, ...], explain: Explain, seen: Counter[str]
) -> int:
    zone, expression, *_ = what
    for tick in set(ours) ^ set(theirs):
        reason = explain(zone, expression, tick, tick in set(ours))
        assert reason is not None, (*what, tick.isoformat(), "only ours" if tick in set(ours) else "only theirs")
        seen[reason] += 1
    return len(theirs)


def real_time(expression: str) -> bool:
    minute, hour, *_ = expression.split()
    return "*" in minute or "*" in hour


def near(zone: str, tick: datetime, distance: timedelta) -> tuple[datetime, timedelta] | None:
    """The change of the clock within `distance` of a tick, and its size."""
    return next((change for change in changes(zone) if abs(change[0] - tick) <= distance), None)


def explain_cronsim(zone: str, expression: str, tick: datetime, only_ours: bool) -> str | None:
    close = near(zone, tick, 24 * HOUR)
    if close is None or not real_time(expression):
        return None
    change, size = close
    wall = change.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    if only_ours and (size % HOUR or wall.minute):
        return "cronsim loses ticks after the clock was changed by, or at, part of an hour"
    midnight_gap = size > timedelta(0) and (wall - size).time() == time()
    if midnight_gap and change <= tick < change + HOUR:
        return "cronsim confuses the missing hour with the next one when it begins at midnight"
    return None


def explain_croniter(zone: str, expression: str, tick: datetime, only_ours: bool) -> str | None:
    close = near(zone, tick, 26 * HOUR)
    if close is None:
        return None
    change, size = close
    if size > timedelta(0) and not only_ours and real_time(expression):
        return "croniter makes up for wildcard ticks that a gap leaves out"
    if size < timedelta(0) and only_ours and (size % HOUR or change.astimezone(ZoneInfo(zone)).minute):
        return "croniter loses ticks when the clock goes back by, or at, part of an hour"
    return None


def run_cronsim(count: int, seed: str) -> Counter[str]:
    draw = random.Random(seed)
    compared, seen = 0, Counter[str]()
    while compared < count:
        zone = draw.choice(ZONES)
        expression, day_match = draw_expression(
            draw, ["L", "LW", "29,30", "31", "L,15"], ["MON#1", "5L", "2#3", "0,7", "FRI", "1-5", "MON-WED,SUN"]
        )
        start = draw_start(draw, zone)
        iterator = CronSim(expression, start.astimezone(ZoneInfo(zone)))
        theirs = sorted({tick for _ in range(TICKS_EACH) if (tick := next(iterator).astimezone(UTC)) > start})
        schedule = Schedule.parse(expression, timezone=zone, day_match=day_match)
        ours = schedule.between(start, theirs[-1], TICKS_EACH * 3)
        compared += compare(ours, theirs, (zone, expression, start.isoformat()), explain_cronsim, seen)
    return seen


def run_croniter(count: int, seed: str) -> Counter[str]:
    draw = random.Random(seed)
    compared, seen = 0, Counter[str]()
    while compared < count:
        zone = draw.choice(ZONES)
        expression, day_match = draw_expression(
            draw, ["L", "15W", "1W", "28-3"], ["MON#1", "5L", "2#3", "FRI-MON", "SAT", "1-5"]
        )
        start = draw_start(draw, zone)
        text = expression.replace("5L", "L5")
        iterator = croniter(text, start.astimezone(ZoneInfo(zone)), day_or=day_match != "and")
        theirs = sorted({iterator.get_next(datetime).astimezone(UTC) for _ in range(TICKS_EACH)})
        # croniter runs a job at a fixed time twice when its hour is repeated; we do so when asked to.
        schedule = Schedule.parse(expression, timezone=zone, day_match=day_match, dst_overlap="both")
        ours = schedule.between(start, theirs[-1], TICKS_EACH * 3)
        compared += compare(ours, theirs, (zone, expression, start.isoformat()), explain_croniter, seen)
    return seen


def test_seven_thousand_fire_times_are_those_of_cronsim() -> None:
    run_cronsim(7_000, "cronsim")


def test_four_thousand_fire_times_are_those_of_croniter() -> None:
    run_croniter(4_000, "croniter")


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_one_hundred_and_sixty_thousand_fire_times_are_those_of_cronsim() -> None:
    run_cronsim(160_000, "cronsim long")


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_sixty_thousand_fire_times_are_those_of_croniter() -> None:
    run_croniter(60_000, "croniter long")
