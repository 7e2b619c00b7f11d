"""Cron on bit masks: which wall-clock seconds match.

Nothing here knows about time zones. A wall time is the number of seconds since 1970-01-01T00:00 on a clock
that never changes, and dst.py says which instant it is. Days are found month by month (one mask of 31 bits
per month, remembered), times of day by shifting masks, so that a search never walks through seconds.
"""

from __future__ import annotations

import calendar
from datetime import date

from detent.domain.schedule.cron_fields import YEAR, CronField
from detent.domain.schedule.cron_parse import CronFields
from detent.domain.schedule.errors import ScheduleError

DAY_SECONDS = 86_400
EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
CYCLE_MONTHS = 400 * 12
"""The calendar repeats after 400 years."""
POSSIBLE_YEARS = 2000, 2027
"""Leap years and others that begin with each weekday: what matches no day in these matches none at all."""
FIRST_YEAR, LAST_YEAR = 1900, 9990
CACHED_MONTHS = 1200
MONTH_LENGTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)

# Bit 1, 8, 15, 22 and 29: the days of a month that share a weekday with its first.
EVERY_SEVENTH = 0b100000010000001000000100000010


class CronWalls:
    """The wall times that an expression matches."""

    __slots__ = (
        "_days",
        "_first_minute",
        "_first_second",
        "_last_minute",
        "_last_second",
        "_per_day",
        "fields",
        "hours",
        "minutes",
        "months",
        "seconds",
    )

    def __init__(self, fields: CronFields) -> None:
        self.fields = fields
        self.seconds = fields.second.mask
        self.minutes = fields.minute.mask
        self.hours = fields.hour.mask
        self.months = fields.month.mask
        self._first_second = _lowest(self.seconds)
        self._first_minute = _lowest(self.minutes)
        self._last_second = self.seconds.bit_length() - 1
        self._last_minute = self.minutes.bit_length() - 1
        self._per_day = self.seconds.bit_count() * self.minutes.bit_count() * self.hours.bit_count()
        self._days: dict[int, int] = {}

    @property
    def every_hour(self) -> bool:
        return self.hours == (1 << 24) - 1

    def check_possible(self, text: str) -> None:
        """Refuses an expression that names no day of any year, such as 30 February."""
        low, high = POSSIBLE_YEARS
        if self.fields.year is not None:
            low = YEAR.low + _lowest(self.fields.year.mask)
            high = YEAR.low + self.fields.year.mask.bit_length() - 1
        if self._seek_month(low * 12, 1, high) is None:
            raise ScheduleError(
                f"{text!r} asks for a day that no year has, by its day-of-month, month and day-of-week fields; "
                "for the last day of a month write 'L' in the day-of-month field."
            )

    def next_wall(self, wall: int) -> int | None:
        """The first match at or after `wall`."""
        days, second = divmod(wall, DAY_SECONDS)
        day = date.fromordinal(days + EPOCH_ORDINAL)
        month_index = day.year * 12 + day.month - 1
        mask = self._days.get(month_index)
        if mask is None:
            mask = self._load_month(month_index)
        number = day.day
        if mask >> number & 1:
            found = self._next_time(second)
            if found >= 0:
                return wall - second + found
        rest = mask >> (number + 1)
        if rest:
            ahead = (rest & -rest).bit_length()
            return wall - second + ahead * DAY_SECONDS + self._next_time(0)
        return self._next_month(month_index + 1)

    def prev_wall(self, wall: int) -> int | None:
        """The last match at or before `wall`."""
        days, second = divmod(wall, DAY_SECONDS)
        day = date.fromordinal(days + EPOCH_ORDINAL)
        month_index = day.year * 12 + day.month - 1
        mask = self.month_days(month_index)
        if mask >> day.day & 1:
            found = self._prev_time(second)
            if found >= 0:
                return wall - second + found
        rest = mask & ((1 << day.day) - 1)
        if rest:
            back = day.day - (rest.bit_length() - 1)
            return wall - second - back * DAY_SECONDS + self._prev_time(DAY_SECONDS - 1)
        return self._prev_month(month_index - 1)

    def count_walls(self, low: int, high: int) -> int:
        """How many matches in [low, high), a month at a time."""
        if high <= low:
            return 0
        low_day, low_second = divmod(low, DAY_SECONDS)
        high_day, high_second = divmod(high, DAY_SECONDS)
        whole = self._count_days(low_day, high_day) * self._per_day
        before_low = self._count_times(low_second) if self._day_matches(low_day) else 0
        before_high = self._count_times(high_second) if high_second and self._day_matches(high_day) else 0
        return whole - before_low + before_high

    def month_days(self, month_index: int) -> int:
        """The matching days of month `month_index` (year * 12 + month - 1), bit d for day d."""
        mask = self._days.get(month_index)
        return self._load_month(month_index) if mask is None else mask

    def _load_month(self, month_index: int) -> int:
        if len(self._days) >= CACHED_MONTHS:
            self._days.clear()
        mask = self._days[month_index] = self._compute_month(month_index)
        return mask

    def _compute_month(self, month_index: int) -> int:
        year, month = divmod(month_index, 12)
        month += 1
        fields = self.fields
        if not self.months >> month & 1:
            return 0
        if fields.year is not None and not (fields.year.mask >> max(year - YEAR.low, 0) & 1 and year >= YEAR.low):
            return 0
        first = date(year, month, 1).isoweekday() % 7
        length = _month_length(year, month)
        whole = (2 << length) - 2
        if fields.weekday.open:
            return whole if fields.day.open else whole & _days_of_month(fields.day, first, length)
        weekdays = whole & _days_of_week(fields.weekday, first, length)
        if fields.day.open:
            return weekdays
        days = whole & _days_of_month(fields.day, first, length)
        return days | weekdays if fields.day_match == "or" else days & weekdays

    def _seek_month(self, month_index: int, step: int, last_year: int) -> int | None:
        """The nearest month in that direction with a match, not past January or December of `last_year`."""
        edge = last_year * 12 + (11 if step > 0 else 0)
        stop = month_index + step * CYCLE_MONTHS
        stop = min(stop, edge) if step > 0 else max(stop, edge)
        months = self.months
        while (stop - month_index) * step >= 0:
            if months >> (month_index % 12 + 1) & 1 and self.month_days(month_index):
                return month_index
            month_index += step
        return None

    def _next_month(self, month_index: int) -> int | None:
        found = self._seek_month(month_index, 1, LAST_YEAR)
        if found is None:
            return None
        return _wall_of(found, _lowest(self.month_days(found))) + self._next_time(0)

    def _prev_month(self, month_index: int) -> int | None:
        found = self._seek_month(month_index, -1, FIRST_YEAR)
        if found is None:
            return None
        return _wall_of(found, self.month_days(found).bit_length() - 1) + self._prev_time(DAY_SECONDS - 1)

    def _next_time(self, second_of_day: int) -> int:
        minute_of_day, second = divmod(second_of_day, 60)
        hour, minute = divmod(minute_of_day, 60)
        if self.hours >> hour & 1:
            if self.minutes >> minute & 1:
                rest = self.seconds >> second
                if rest:
                    return second_of_day + (rest & -rest).bit_length() - 1
            rest = self.minutes >> (minute + 1)
            if rest:
                return (minute_of_day + (rest & -rest).bit_length()) * 60 + self._first_second
        rest = self.hours >> (hour + 1)
        if rest:
            hour += (rest & -rest).bit_length()
            return hour * 3600 + self._first_minute * 60 + self._first_second
        return -1

    def _prev_time(self, second_of_day: int) -> int:
        minute_of_day, second = divmod(second_of_day, 60)
        hour, minute = divmod(minute_of_day, 60)
        if self.hours >> hour & 1:
            if self.minutes >> minute & 1:
                rest = self.seconds & ((2 << second) - 1)
                if rest:
                    return minute_of_day * 60 + rest.bit_length() - 1
            rest = self.minutes & ((1 << minute) - 1)
            if rest:
                return hour * 3600 + (rest.bit_length() - 1) * 60 + self._last_second
        rest = self.hours & ((1 << hour) - 1)
        if rest:
            return (rest.bit_length() - 1) * 3600 + self._last_minute * 60 + self._last_second
        return -1

    def _count_times(self, second_of_day: int) -> int:
        """Matches of a day before `second_of_day`."""
        minute_of_day, second = divmod(second_of_day, 60)
        hour, minute = divmod(minute_of_day, 60)
        per_minute = self.seconds.bit_count()
        count = (self.hours & ((1 << hour) - 1)).bit_count() * self.minutes.bit_count() * per_minute
        if self.hours >> hour & 1:
            count += (self.minutes & ((1 << minute) - 1)).bit_count() * per_minute
            if self.minutes >> minute & 1:
                count += (self.seconds & ((1 << second) - 1)).bit_count()
        return count

    def _day_matches(self, days: int) -> bool:
        day = date.fromordinal(days + EPOCH_ORDINAL)
        return bool(self.month_days(day.year * 12 + day.month - 1) >> day.day & 1)

    def _count_days(self, low: int, high: int) -> int:
        """Matching days in [low, high), both days since 1970."""
        if high <= low:
            return 0
        first, end = date.fromordinal(low + EPOCH_ORDINAL), date.fromordinal(high + EPOCH_ORDINAL)
        first_month, end_month = first.year * 12 + first.month - 1, end.year * 12 + end.month - 1
        count = sum(self.month_days(index).bit_count() for index in range(first_month, end_month))
        count -= (self.month_days(first_month) & ((1 << first.day) - 1)).bit_count()
        return count + (self.month_days(end_month) & ((1 << end.day) - 1)).bit_count()


def _lowest(mask: int) -> int:
    return (mask & -mask).bit_length() - 1


def _wall_of(month_index: int, day: int) -> int:
    year, month = divmod(month_index, 12)
    return (date(year, month + 1, day).toordinal() - EPOCH_ORDINAL) * DAY_SECONDS


def _month_length(year: int, month: int) -> int:
    return 29 if month == 2 and calendar.isleap(year) else MONTH_LENGTHS[month - 1]


def _days_of_month(field: CronField, first: int, length: int) -> int:
    mask = field.mask
    for back in field.last_offsets:
        if back < length:
            mask |= 1 << (length - back)
    for day in field.workdays:
        if day <= length:
            mask |= 1 << _nearest_workday(day, first, length)
    for back in field.last_workday_offsets:
        if back < length:
            mask |= 1 << _nearest_workday(length - back, first, length)
    return mask


def _nearest_workday(day: int, first: int, length: int) -> int:
    """The weekday nearest to `day` without leaving the month; `first` is the weekday of the 1st, Sunday 0."""
    weekday = (first + day - 1) % 7
    if weekday == 6:
        return day - 1 if day > 1 else day + 2
    if weekday == 0:
        return day + 1 if day < length else day - 2
    return day


def _days_of_week(field: CronField, first: int, length: int) -> int:
    mask = 0
    for weekday in range(7):
        if field.mask >> weekday & 1:
            mask |= EVERY_SEVENTH << (weekday - first) % 7
    for weekday, number in field.nth:
        day = 1 + (weekday - first) % 7
        if number:
            day += 7 * (number - 1)
        else:
            day += 7 * ((length - day) // 7)
        if day <= length:
            mask |= 1 << day
    return mask
