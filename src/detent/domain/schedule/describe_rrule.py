"""Recurrence rules in plain English."""

from __future__ import annotations

from detent.domain.counts import plural
from detent.domain.schedule.english import DAY_NAMES, MONTH_NAMES, clock, every, join, names, ordinal
from detent.domain.schedule.rrule_parse import EPOCH, WEEKDAY_NAMES, RecurrenceRule

NOUNS = {
    "YEARLY": "year",
    "MONTHLY": "month",
    "WEEKLY": "week",
    "DAILY": "day",
    "HOURLY": "hour",
    "MINUTELY": "minute",
}
MAX_CLOCK_TIMES = 12


def describe_rule(rule: RecurrenceRule) -> str:
    parts = [every(rule.interval, NOUNS[rule.freq]), _days(rule), _months(rule), _times(rule)]
    text = " ".join(filter(None, parts)) + _positions(rule)
    if rule.start != EPOCH:
        text += f", from {rule.start:%Y-%m-%d}"
    if rule.count is not None:
        text += f", {plural(rule.count, 'time')}"
    if rule.until is not None:
        text += f", until {rule.until:%Y-%m-%d %H:%M}"
    if rule.include:
        text += f", and at {plural(len(rule.include), 'extra date')}"
    if rule.exclude:
        text += f", except {plural(len(rule.exclude), 'date')}"
    return text


def _days(rule: RecurrenceRule) -> str:
    items = []
    if rule.weekdays:
        items.append(_weekdays(rule))
    if rule.numbers("BYMONTHDAY"):
        items.append(_counted(rule.numbers("BYMONTHDAY"), "day", "month"))
    if rule.numbers("BYYEARDAY"):
        items.append(_counted(rule.numbers("BYYEARDAY"), "day", "year"))
    if rule.numbers("BYWEEKNO"):
        week = f"in {_numbered(rule.numbers('BYWEEKNO'), 'week')} of the year"
        return ", if that is also ".join([f"{items[0]} {week}", *items[1:]] if items else [week])
    return ", if that is also ".join(items)


def _weekdays(rule: RecurrenceRule) -> str:
    within = "year" if rule.freq == "YEARLY" and not rule.numbers("BYMONTH") else "month"
    plain = [day for number, day in rule.weekdays if not number]
    items = []
    if plain:
        # names() counts from Sunday, RFC 5545 from Monday.
        values = sorted((WEEKDAY_NAMES.index(day) + 1) % 7 for day in plain)
        items.append(names(values, DAY_NAMES, 0) if len(values) < 7 else "every day")
    nth = [
        f"the {_nth(number)} {DAY_NAMES[(WEEKDAY_NAMES.index(day) + 1) % 7]}" for number, day in rule.weekdays if number
    ]
    if nth:
        items.append(f"{join(nth)} of the {within}")
    return f"on {join(items)}"


def _nth(number: int) -> str:
    if number > 0:
        return ordinal(number)
    return "last" if number == -1 else f"{ordinal(-number)} last"


def _counted(numbers: tuple[int, ...], noun: str, within: str) -> str:
    forward = [number for number in numbers if number > 0]
    backward = [number for number in numbers if number < 0]
    items = [_numbered(forward, noun)] if forward else []
    items += [f"the {_nth(number)} {noun}" for number in reversed(backward)]
    return f"on {join(items)} of the {within}"


def _numbered(numbers: tuple[int, ...] | list[int], noun: str) -> str:
    return f"{noun}{'s' if len(numbers) > 1 else ''} {join(numbers)}"


def _months(rule: RecurrenceRule) -> str:
    months = list(rule.numbers("BYMONTH"))
    return f"in {names(months, MONTH_NAMES, 1)}" if months else ""


def _times(rule: RecurrenceRule) -> str:
    hours, minutes = rule.numbers("BYHOUR"), rule.numbers("BYMINUTE")
    seconds = rule.numbers("BYSECOND")
    if rule.freq not in ("HOURLY", "MINUTELY"):
        times = [clock(h * 3600 + m * 60 + s) for h in hours for m in minutes for s in seconds]
        if len(times) <= MAX_CLOCK_TIMES:
            return f"at {join(times)}"
    parts = []
    if minutes and (rule.freq != "HOURLY" or minutes != (0,)):
        parts.append(f"at {_numbered(minutes, 'minute')}")
    if seconds != (0,):
        parts.append(f"at {_numbered(seconds, 'second')}")
    if hours:
        parts.append("in the hours of " + join([f"{hour:02}:00" for hour in hours]))
    return ", ".join(parts)


def _positions(rule: RecurrenceRule) -> str:
    numbers = rule.numbers("BYSETPOS")
    if not numbers:
        return ""
    chosen = join([_nth(number) for number in (*[n for n in numbers if n > 0], *[n for n in numbers if n < 0])])
    return f", of these only the {chosen} of each {NOUNS[rule.freq]}"
