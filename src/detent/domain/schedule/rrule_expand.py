"""The days of a recurrence rule, by python-dateutil, kept short.

dateutil always walks from DTSTART and never gives up before the year 9999. So:

- DTSTART is moved close to the time that is asked for (a whole number of intervals, which changes nothing);
- the rule is moved forward by a multiple of 400 years, after which the calendar repeats: the year 9999 is
  then never more than 500 years away, and a rule that matches no day ends there instead of running on;
- a search for single days goes year by year instead of day by day.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from detent.domain.schedule.rrule_parse import EPOCH, LATEST, WEEKDAY_NAMES, RecurrenceRule

DAY_SECONDS = 86_400
CYCLE_YEARS = 400
CYCLE_SECONDS = 146_097 * DAY_SECONDS
NEAREST_END = 100
FREQ_DAYS = {"DAILY": 1, "WEEKLY": 7, "MONTHLY": 31, "YEARLY": 366}
DAY_FILTERS = ("BYMONTH", "BYMONTHDAY", "BYYEARDAY")


def to_seconds(wall: datetime) -> int:
    delta = wall - EPOCH
    return delta.days * DAY_SECONDS + delta.seconds


def to_wall(seconds: int) -> datetime:
    return EPOCH + timedelta(seconds=seconds)


def days_from(rule: RecurrenceRule, day: int) -> Iterator[int]:
    """The midnights of the days of a rule, from the midnight `day` on; its times of day do not matter."""
    if rule.freq in ("DAILY", "HOURLY", "MINUTELY") and (rule.freq != "DAILY" or rule.interval == 1):
        return _filtered_days(rule, day)
    midnight = datetime(rule.start.year, rule.start.month, rule.start.day)  # noqa: DTZ001  a wall time has no zone
    return expand(rule, restart(rule, midnight, day), rule.freq, rule.interval, days_only=True)


def _filtered_days(rule: RecurrenceRule, day: int) -> Iterator[int]:
    """Every day that passes the rule's filters."""
    if not rule.weekdays and not any(rule.numbers(name) for name in DAY_FILTERS):
        return iter(range(day, to_seconds(LATEST), DAY_SECONDS))
    return expand(rule, to_wall(day), "YEARLY", 1, days_only=True)


def restart(rule: RecurrenceRule, start: datetime, wall: int) -> datetime:
    """A start in step with DTSTART, at least one whole period before `wall`."""
    target = to_wall(wall)
    if rule.freq in ("DAILY", "WEEKLY"):
        stride = timedelta(days=FREQ_DAYS[rule.freq] * rule.interval)
        periods = (target - start) // stride - 1
        return start + periods * stride if periods > 0 else start
    stride_months = rule.interval * (12 if rule.freq == "YEARLY" else 1)
    months = (target.year - start.year) * 12 + target.month - start.month
    periods = months // stride_months - 1
    if periods <= 0:
        return start
    month = start.month - 1 if rule.freq == "MONTHLY" else 0
    index = start.year * 12 + month + periods * stride_months
    return datetime(index // 12, index % 12 + 1, 1)  # noqa: DTZ001  a wall time has no zone


def expand(
    rule: RecurrenceRule, start: datetime, freq: str, interval: int, *, days_only: bool = False
) -> Iterator[int]:
    """The rule from `start` on, by dateutil, moved into the last centuries that datetime can hold."""
    from dateutil import rrule as dateutil_rrule

    cycles = (9999 - NEAREST_END - start.year) // CYCLE_YEARS
    expanded = dateutil_rrule.rrule(
        getattr(dateutil_rrule, freq),
        dtstart=start.replace(year=start.year + cycles * CYCLE_YEARS),
        interval=interval,
        wkst=WEEKDAY_NAMES.index(rule.week_start),
        **_options(rule, dateutil_rrule, days_only),
    )
    back = cycles * CYCLE_SECONDS
    for moment in expanded:
        yield to_seconds(moment) - back


def _options(rule: RecurrenceRule, dateutil_rrule: Any, days_only: bool) -> dict[str, Any]:
    options: dict[str, Any] = {name.lower(): list(numbers) for name, numbers in rule.lists}
    if days_only:
        options |= {"byhour": 0, "byminute": 0, "bysecond": 0}
        options.pop("bysetpos", None)
    if rule.weekdays:
        options["byweekday"] = [
            getattr(dateutil_rrule, name)(ordinal) if ordinal else getattr(dateutil_rrule, name)
            for ordinal, name in rule.weekdays
        ]
    elif days_only and not {"bymonthday", "byyearday", "byweekno"} & options.keys():
        # Left alone, dateutil would take the day of the month from the start.
        options["byweekday"] = list(range(7))
    return options
