"""Crontabs of Celery, as five fields of cron.

Celery reads names, ranges that run backwards (`fri-mon`) and steps in its own way, and needs a day that fits both the
day of the month and the day of the week. The values of each field are computed as Celery does, and written as cron
reads them.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from detent.errors import UsageError

_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_PART = re.compile(r"(?P<from>\*|\w+)(?:-(?P<to>\w+))?(?:/(?P<step>\d+))?")
_PLAIN = re.compile(r"(\d+(-\d+)?|\*/\d+)(,\d+(-\d+)?)*")


class _Range(NamedTuple):
    name: str
    low: int
    size: int
    names: tuple[str, ...] = ()

    @property
    def every(self) -> list[int]:
        return list(range(self.low, self.low + self.size))


_FIELDS = (
    _Range("minute", 0, 60),
    _Range("hour", 0, 24),
    _Range("day_of_month", 1, 31),
    _Range("month_of_year", 1, 12, _MONTHS),
    _Range("day_of_week", 0, 7, _DAYS),
)


class BeatCrontab(NamedTuple):
    """As Celery has it; each field as text."""

    minute: str = "*"
    hour: str = "*"
    day_of_month: str = "*"
    month_of_year: str = "*"
    day_of_week: str = "*"

    @property
    def cron(self) -> str:
        """Raises UsageError for a field that Celery would not read."""
        return " ".join(_written(text, field) for text, field in zip(self, _FIELDS, strict=True))

    @property
    def both_days(self) -> bool:
        """Whether both kinds of days are restricted, so that a day has to fit both."""
        _, _, month_day, _, week_day = self.cron.split()
        return month_day != "*" and week_day != "*"


def _written(text: str, field: _Range) -> str:
    text = "".join(text.split()).lower()
    values = sorted({value for part in text.split(",") for value in _values(part, field)})
    if values == field.every:
        return "*"
    return text if _PLAIN.fullmatch(text) and not _runs_backwards(text) else ",".join(_runs(values))


def _values(part: str, field: _Range) -> list[int]:
    found = _PART.fullmatch(part)
    if found is None or (found["from"] == "*" and found["to"]):
        raise UsageError(f"{part!r} is not a value of {field.name} that Celery reads.")
    step = int(found["step"] or 1)
    if step == 0:
        raise UsageError(f"{part!r} of {field.name} has a step of 0, which Celery does not read.")
    if found["from"] == "*":
        return field.every[::step]
    first = _number(found["from"], field)
    last = first if found["to"] is None else _number(found["to"], field)
    values = list(range(first, last + 1))
    if last < first:  # around the end, as fri-mon
        values = list(range(first, field.low + field.size)) + list(range(field.low, last + 1))
    return values[::step]


def _number(word: str, field: _Range) -> int:
    if field.names and word[:3] in field.names:
        return field.names.index(word[:3]) + field.low
    if not word.isdecimal() or int(word) not in field.every:
        raise UsageError(f"{word!r} is not a value of {field.name}, which is from {field.low} to {field.every[-1]}.")
    return int(word)


def _runs_backwards(text: str) -> bool:
    return any(int(low) > int(high) for low, high in re.findall(r"(\d+)-(\d+)", text))


def _runs(values: list[int]) -> list[str]:
    """Neighbours as ranges."""
    runs: list[list[int]] = []
    for value in values:
        if runs and value == runs[-1][-1] + 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    return [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
