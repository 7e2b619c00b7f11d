"""BYWEEKNO: the days of numbered weeks. Week 1 is the first with at least four days in the year."""

from __future__ import annotations


def numbered_weeks(numbers: tuple[int, ...], week_start: int, weekday: int, leap: bool, leap_before: bool) -> int:
    """The days of these weeks as a mask, bit 0 for 1 January; that is a `weekday`, Monday 0, and weeks begin on
    `week_start`. Days of the year before that belong to week 1, and days of week 1 of the next year, are counted to the
    year in which they are, as python-dateutil does."""
    length = 365 + leap
    first, weeks = _first_week(week_start, weekday, length)
    mask = 0
    for number in numbers:
        position = number if number > 0 else number + weeks + 1
        if 0 < position <= weeks:
            mask |= _week(first + 7 * (position - 1))
    if 1 in numbers:
        mask |= _week(first + 7 * weeks)
    if first > 0:
        last = -1 if -1 in numbers else _weeks_before(week_start, weekday, length, first, leap_before)
        if last in numbers:
            mask |= (1 << first) - 1
    return mask & (1 << length) - 1


def _first_week(week_start: int, weekday: int, length: int) -> tuple[int, int]:
    """The day on which week 1 begins, below zero if that is in the year before; and how many weeks the year has."""
    first = (week_start - weekday) % 7
    if first >= 4:
        first -= 7
    whole, rest = divmod(length - first, 7)
    return first, whole + rest // 4


def _weeks_before(week_start: int, weekday: int, length: int, first: int, leap_before: bool) -> int:
    """How many weeks the year before has."""
    length_before = 365 + leap_before
    weekday_before = (weekday - length_before) % 7
    first_before = (week_start - weekday_before) % 7
    if first_before >= 4:
        return 52 + (length_before + (weekday_before - week_start) % 7) % 7 // 4
    # python-dateutil counts here with this year's length and first week, and rules that exist rely on its answer.
    return 52 + (length - first) % 7 // 4


def _week(first: int) -> int:
    return 0b1111111 << first if first >= 0 else 0b1111111 >> -first
