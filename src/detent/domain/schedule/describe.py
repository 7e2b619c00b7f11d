"""Schedules in plain English, generated from the parsed schedule and not from its text."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from detent.domain.counts import plural
from detent.domain.schedule.cron import CronWalls
from detent.domain.schedule.cron_fields import YEAR, CronField
from detent.domain.schedule.cron_parse import CronFields
from detent.domain.schedule.english import (
    DAY_NAMES,
    MONTH_NAMES,
    NUMBER_WORDS,
    bits,
    capital,
    clock,
    cycle_run,
    every,
    join,
    names,
    ordinal,
)
from detent.domain.schedule.instants import format_instant
from detent.domain.schedule.interval import UNITS_MS, IntervalTicks
from detent.domain.schedule.schedule import COMBINED, DelayTicks, WallTicks

if TYPE_CHECKING:
    from detent.domain.schedule.schedule import Schedule
    from detent.domain.schedule.zones import Zone

MAX_CLOCK_TIMES = 6
UNIT_NOUNS = {"d": "day", "h": "hour", "m": "minute", "s": "second", "ms": "millisecond"}


def describe(schedule: Schedule) -> str:
    return capital(body(schedule)) + _bounds(schedule)


def body(schedule: Schedule) -> str:
    ticks = schedule.ticks
    if schedule.never:
        return "on demand"
    if isinstance(ticks, DelayTicks):
        words = describe_interval(ticks.every).removeprefix("every ")
        return f"{words if words[0].isdigit() else f'1 {words}'} after the end of the previous run"
    if isinstance(ticks, IntervalTicks):
        return describe_interval(ticks.every)
    if schedule.kind == COMBINED:
        from detent.domain.schedule.describe_combined import describe_combined

        return describe_combined(schedule)
    if isinstance(ticks, WallTicks):
        source = ticks.resolver.source
        if isinstance(source, CronWalls):
            return describe_cron(source.fields)
        from detent.domain.schedule.describe_rrule import describe_rule
        from detent.domain.schedule.rrule import RuleWalls

        if isinstance(source, RuleWalls):
            return describe_rule(source.rule)
    return "once" if schedule.at is None else f"once, at {_local(schedule.at, schedule.zone)}"


def _local(moment: datetime, zone: Zone) -> str:
    """In the zone of the schedule, with its offset."""
    if zone.name == "UTC":
        return format_instant(moment)
    return moment.astimezone(zone.info).isoformat(timespec="milliseconds" if moment.microsecond else "seconds")


def _bounds(schedule: Schedule) -> str:
    starts, ends = schedule.bounds()
    return (f", from {starts}" if starts else "") + (f", until {ends}" if ends else "")


def describe_interval(milliseconds: int) -> str:
    parts: list[tuple[int, str]] = []
    for unit, noun in UNIT_NOUNS.items():
        number, milliseconds = divmod(milliseconds, UNITS_MS[unit])
        if number:
            parts.append((number, noun))
    if parts == [(1, "day")]:
        return "every 24 hours"  # a day on the wall clock may be longer or shorter
    if len(parts) == 1:
        return every(*parts[0])
    return "every " + join([plural(number, noun) for number, noun in parts])


def describe_cron(fields: CronFields) -> str:
    time, names_times = _time(fields)
    day = _days(fields)
    if not day and names_times:
        day = "every day" if fields.month.open else "each day"
    text = f"{time} {day}" if names_times and day else ", ".join(filter(None, (time, day)))
    return text + _months(fields) + _years(fields)


def _time(fields: CronFields) -> tuple[str, bool]:
    """The time of day, and whether it is a list of clock times."""
    seconds, minutes, hours = bits(fields.second.mask), bits(fields.minute.mask), bits(fields.hour.mask)
    if len(seconds) * len(minutes) * len(hours) <= MAX_CLOCK_TIMES:
        times = [clock(h * 3600 + m * 60 + s) for h in hours for m in minutes for s in seconds]
        return f"at {join(times)}", True
    parts = []
    if seconds != [0]:
        parts.append(_unit_phrase(seconds, "second"))
    if len(minutes) == 1 and len(seconds) == 1:
        return ", ".join([_hourly(hours, minutes[0]), *parts]), False
    if not (parts and len(minutes) == 60):
        parts.append(_unit_phrase(minutes, "minute"))
    parts.append(_hours(hours))
    return ", ".join(filter(None, parts)), False


def _unit_phrase(values: list[int], noun: str) -> str:
    step = _even_step(values, 60)
    if step is not None:
        return every(step, noun)
    ends = cycle_run(values, 0, 59)
    if ends is not None:
        return f"every {noun} from {ends[0]} to {ends[1]}"
    return f"at {noun}{'s' if len(values) > 1 else ''} {join(values)}"


def _even_step(values: list[int], size: int) -> int | None:
    """n when the values are 0, n, 2n, … and n divides the field, so that the rhythm never breaks."""
    if size % len(values):
        return None
    step = size // len(values)
    return step if values == list(range(0, size, step)) else None


def _hourly(hours: list[int], minute: int) -> str:
    """One minute in many hours."""
    step = _even_step(hours, 24)
    if step is not None:
        return every(step, "hour") + (f" at minute {minute}" if minute else "")
    ends = cycle_run(hours, 0, 23)
    if ends is not None:
        first, last = (clock(hour * 3600 + minute * 60) for hour in ends)
        return f"every hour from {first} to {last}"
    return "at " + join([clock(hour * 3600 + minute * 60) for hour in hours])


def _hours(hours: list[int]) -> str:
    if len(hours) == 24:
        return ""
    ends = (hours[0], hours[0]) if len(hours) == 1 else cycle_run(hours, 0, 23)
    if ends is not None:
        return f"from {ends[0]:02}:00 to {ends[1]:02}:59"
    step = _even_step(hours, 24)
    if step is not None:
        return f"in every {ordinal(step)} hour from 00:00"
    return "in the hours of " + join([f"{hour:02}:00" for hour in hours])


def describe_days(fields: CronFields) -> str:
    """The days of an expression, whatever its times are."""
    return (_days(fields) or "every day") + _months(fields) + _years(fields)


def _days(fields: CronFields) -> str:
    day = "" if fields.day.open else _days_of_month(fields.day)
    weekday = "" if fields.weekday.open else _weekdays(fields.weekday)
    if day and weekday:
        return f"{day} or {weekday}" if fields.day_match == "or" else f"{day}, if that is also {weekday}"
    return day or weekday


def _days_of_month(field: CronField) -> str:
    items = []
    values = bits(field.mask)
    if field.star and values == list(range(1, 32, values[1] - 1)):
        items.append(f"every {ordinal(values[1] - 1)} day from day 1")
    elif values:
        ends = cycle_run(values, 1, 31)
        listed = f"days {ends[0]} to {ends[1]}" if ends else f"{'days' if len(values) > 1 else 'day'} {join(values)}"
        items.append(listed)
    items += [
        f"the day {plural(back, 'day')} before the last" if back else "the last day"
        for back in sorted(field.last_offsets)
    ]
    items += [f"the weekday nearest to day {day}" for day in sorted(field.workdays)]
    for back in sorted(field.last_workday_offsets):
        near = f"the weekday nearest to {plural(back, 'day')} before the last"
        items.append(near if back else "the last weekday (Monday to Friday)")
    return f"on {join(items)} of the month"


def _weekdays(field: CronField) -> str:
    values = bits(field.mask)
    plain = names(values, DAY_NAMES, 0) if len(values) < 7 else "every day"
    items = [plain] if values else []
    nth = [
        f"the {NUMBER_WORDS[number] if number else 'last'} {DAY_NAMES[weekday]}"
        for weekday, number in sorted(field.nth, key=lambda pair: (pair[1] or 9, pair[0]))
    ]
    if nth:
        items.append(f"{join(nth)} of the month")
    if not nth and cycle_run(values, 0, 6) is not None:
        return plain
    return f"on {join(items)}"


def _months(fields: CronFields) -> str:
    if fields.month.open:
        return ""
    values = bits(fields.month.mask)
    if len(values) == 12:
        return ""
    ends = cycle_run(values, 1, 12)
    if ends is not None:
        return f", from {MONTH_NAMES[ends[0] - 1]} to {MONTH_NAMES[ends[1] - 1]}"
    return f", in {names(values, MONTH_NAMES, 1)}"


def _years(fields: CronFields) -> str:
    if fields.year is None or fields.year.open:
        return ""
    values = [YEAR.low + bit for bit in bits(fields.year.mask)]
    ends = cycle_run(values, YEAR.low, YEAR.high)
    return f", from {ends[0]} to {ends[1]}" if ends else f", in {join(values)}"
