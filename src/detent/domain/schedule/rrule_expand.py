"""The days of a recurrence rule, on bit masks of whole years.

Which days of a year match depends only on the weekday of its 1 January, on whether it is a leap year and, for week
numbers, on whether the year before was one: there are at most 28 kinds of year, so a search through centuries costs one
look-up a year. The meaning is that of python-dateutil, with which the tests compare it.
"""

from __future__ import annotations

from calendar import isleap
from collections.abc import Iterator
from datetime import date, datetime
from itertools import pairwise
from typing import NamedTuple

from detent.domain.schedule.rrule_parse import EPOCH, LATEST, WEEKDAY_NAMES, RecurrenceRule
from detent.domain.schedule.rrule_weeks import numbered_weeks
from detent.domain.schedule.steps import Steps

DAY_SECONDS = 86_400
EPOCH_DAY = date(1970, 1, 1).toordinal()
FREQ_DAYS = {"DAILY": 1, "WEEKLY": 7, "MONTHLY": 31, "YEARLY": 366}
DAY_FILTERS = ("BYMONTH", "BYMONTHDAY", "BYYEARDAY")
MONTH_STARTS = (
    (0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365),
    (0, 31, 60, 91, 121, 152, 182, 213, 244, 274, 305, 335, 366),
)
WEEKDAY_BITS = sum(1 << 7 * week for week in range(54))
MAX_IN_A_MONTH = 5
"""No weekday comes more often in a month, so a higher ordinal matches none."""


def to_seconds(wall: datetime) -> int:
    delta = wall - EPOCH
    return delta.days * DAY_SECONDS + delta.seconds


LAST_DAY = to_seconds(LATEST) // DAY_SECONDS


class MatchingYear(NamedTuple):
    """A year with its first day, the first day after it, and a mask of its matching days."""

    first: int
    end: int
    mask: int


class RuleDays:
    """The days on which a rule may have times. Days are counted from 1970-01-01. A candidate without a match costs a
    step here, one with a match costs a step where it is used; and a new kind of year one for each value of the rule."""

    def __init__(self, rule: RecurrenceRule, steps: Steps) -> None:
        self.rule = rule
        self.steps = steps
        self.first = to_seconds(rule.start) // DAY_SECONDS
        self._masks: dict[tuple[int, bool, bool], int] = {}
        self._mask_steps = sum(len(rule.numbers(name)) for name in (*DAY_FILTERS, "BYWEEKNO")) + len(rule.weekdays)

    def since(self, day: int) -> Iterator[int]:
        """The days from `day` on, each found when it is asked for; none after the last day that rules reach."""
        rule = self.rule
        day = max(day, self.first)
        if rule.freq in ("HOURLY", "MINUTELY") or (rule.freq in ("DAILY", "WEEKLY") and rule.interval == 1):
            return self._filtered(day)
        return (found for period in self.periods(day) for found in period if found >= day)

    def _filtered(self, day: int) -> Iterator[int]:
        """Every day that passes the rule's filters."""
        if not self.rule.weekdays and not any(self.rule.numbers(name) for name in DAY_FILTERS):
            return iter(range(day, LAST_DAY))
        return self._filtered_by_year(day)

    def _filtered_by_year(self, day: int) -> Iterator[int]:
        year = date.fromordinal(day + EPOCH_DAY).year
        while year <= LATEST.year:
            first = date(year, 1, 1).toordinal() - EPOCH_DAY
            skipped = max(day - first, 0)
            mask = self._year_mask(year) >> skipped
            if not mask:
                self.steps.spend()
            for index in _bits(mask):
                yield first + skipped + index
            year += 1

    def periods(self, day: int) -> Iterator[list[int]]:
        """The matching days of each period that has any, from the one on that holds `day`."""
        day = max(day, self.first)
        match self.rule.freq:
            case "YEARLY":
                return self._years(day)
            case "MONTHLY":
                return self._months(day)
            case "WEEKLY":
                return self._weeks(day)
        return self._every_so_many_days(day)

    def _years(self, day: int) -> Iterator[list[int]]:
        start, interval = self.rule.start.year, self.rule.interval
        year = start + (date.fromordinal(day + EPOCH_DAY).year - start + interval - 1) // interval * interval
        while year <= LATEST.year:
            if mask := self._year_mask(year):
                first = date(year, 1, 1).toordinal() - EPOCH_DAY
                yield [first + index for index in _bits(mask)]
            else:
                self.steps.spend()
            year += interval

    def _months(self, day: int) -> Iterator[list[int]]:
        rule, wanted = self.rule, date.fromordinal(day + EPOCH_DAY)
        start = rule.start.year * 12 + rule.start.month - 1
        index = wanted.year * 12 + wanted.month - 1
        index = start + (index - start + rule.interval - 1) // rule.interval * rule.interval
        while index < (LATEST.year + 1) * 12:
            year, month = divmod(index, 12)
            low, high = MONTH_STARTS[isleap(year)][month : month + 2]
            mask = self._year_mask(year) >> low & (1 << high - low) - 1
            if mask:
                first = date(year, month + 1, 1).toordinal() - EPOCH_DAY
                yield [first + offset for offset in _bits(mask)]
            else:
                self.steps.spend()
            index += rule.interval

    def _weeks(self, day: int) -> Iterator[list[int]]:
        """Whole weeks from WKST on, except that the first begins with DTSTART."""
        stride = 7 * self.rule.interval
        # 1970-01-01 was a Thursday.
        first_week = self.first - (self.first + 3 - WEEKDAY_NAMES.index(self.rule.week_start)) % 7
        week = first_week + (day - first_week) // stride * stride
        year = self._year_of(week)
        while week <= LAST_DAY:
            if week >= year.end:
                year = self._year_of(week)
            bits = year.mask >> week - year.first
            if week + 7 > year.end:
                bits |= self._year_of(year.end).mask << year.end - week
            found = [week + index for index in _bits(bits & 0b1111111) if week + index >= self.first]
            if found:
                yield found
            else:
                self.steps.spend()
            week += stride

    def _every_so_many_days(self, day: int) -> Iterator[list[int]]:
        interval = self.rule.interval
        candidate = self.first + (day - self.first + interval - 1) // interval * interval
        year = self._year_of(candidate)
        while candidate <= LAST_DAY:
            if candidate >= year.end:
                year = self._year_of(candidate)
            if year.mask >> candidate - year.first & 1:
                yield [candidate]
            else:
                self.steps.spend()
            candidate += interval

    def _year_of(self, day: int) -> MatchingYear:
        """The year that holds `day`."""
        year = date.fromordinal(day + EPOCH_DAY).year
        first = date(year, 1, 1).toordinal() - EPOCH_DAY
        return MatchingYear(first, first + 365 + isleap(year), self._year_mask(year))

    def _year_mask(self, year: int) -> int:
        """The matching days of a year, bit 0 for 1 January."""
        kind = date(year, 1, 1).weekday(), isleap(year), isleap(year - 1)
        mask = self._masks.get(kind)
        if mask is None:
            self.steps.spend(self._mask_steps)
            mask = self._masks[kind] = _mask_of_year(self.rule, *kind)
        return mask


def _bits(mask: int) -> Iterator[int]:
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def _mask_of_year(rule: RecurrenceRule, weekday: int, leap: bool, leap_before: bool) -> int:
    starts = MONTH_STARTS[leap]
    length = starts[12]
    mask = (1 << length) - 1
    if months := rule.numbers("BYMONTH"):
        mask &= sum((1 << starts[month]) - (1 << starts[month - 1]) for month in months)
    if days := rule.numbers("BYMONTHDAY"):
        mask &= _days_of_months(days, starts)
    if numbers := rule.numbers("BYYEARDAY"):
        mask &= _days_of_year(numbers, length)
    if weeks := rule.numbers("BYWEEKNO"):
        mask &= numbered_weeks(weeks, WEEKDAY_NAMES.index(rule.week_start), weekday, leap, leap_before)
    plain = [WEEKDAY_NAMES.index(name) for ordinal, name in rule.weekdays if not ordinal]
    if plain:
        mask &= sum(WEEKDAY_BITS << (each - weekday) % 7 for each in plain)
    if len(plain) < len(rule.weekdays):
        mask &= _numbered_weekdays(rule, weekday, starts)
    return mask


def _days_of_year(numbers: tuple[int, ...], length: int) -> int:
    mask = 0
    for number in numbers:
        if abs(number) <= length:
            mask |= 1 << (number - 1 if number > 0 else length + number)
    return mask


def _days_of_months(days: tuple[int, ...], starts: tuple[int, ...]) -> int:
    mask = 0
    for low, high in pairwise(starts):
        for day in days:
            if abs(day) <= high - low:
                mask |= 1 << (low + day - 1 if day > 0 else high + day)
    return mask


def _numbered_weekdays(rule: RecurrenceRule, weekday: int, starts: tuple[int, ...]) -> int:
    """BYDAY=1MO or -1FR: within each month, or within the year where the rule names no month."""
    months = rule.numbers("BYMONTH") or range(1, 13)
    ranges = [(starts[month - 1], starts[month]) for month in months]
    most = MAX_IN_A_MONTH
    if rule.freq == "YEARLY" and not rule.numbers("BYMONTH"):
        ranges, most = [(0, starts[12])], 53
    mask = 0
    for ordinal, name in rule.weekdays:
        if not 0 < abs(ordinal) <= most:
            continue
        for low, high in ranges:
            if ordinal > 0:
                found = low + (WEEKDAY_NAMES.index(name) - weekday - low) % 7 + 7 * (ordinal - 1)
            else:
                found = high - 1 - (high - 1 + weekday - WEEKDAY_NAMES.index(name)) % 7 + 7 * (ordinal + 1)
            if low <= found < high:
                mask |= 1 << found
    return mask
