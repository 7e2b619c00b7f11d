"""What the seven fields of a cron expression may hold, and how one field is read into a bit mask."""

from __future__ import annotations

import functools
import hashlib
import re
from dataclasses import dataclass, field

from detent.domain.schedule.errors import ScheduleError

MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
LONGEST_NUMBER = 4
HASHED = re.compile(r"(?<![A-Z])H(?![A-Z])")
"""An `H` that stands for itself, not the one in THU or MARCH; the text is in capitals."""
INTERVAL = re.compile(r"\s*@?every\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, eq=False)
class FieldSpec:
    """One kind of field: its name in messages, its bounds, its names and what `H` may choose from."""

    name: str
    low: int
    high: int
    example: str
    names: dict[str, int] = field(default_factory=dict)
    hash_high: int = 0
    wraps: bool = True

    def bounds(self) -> str:
        named = f" or {next(iter(self.names))}-{list(self.names)[-1]}" if self.names else ""
        return f"{self.low} to {self.high}{named}"


SECOND = FieldSpec("second", 0, 59, "0", hash_high=59)
MINUTE = FieldSpec("minute", 0, 59, "*/15", hash_high=59)
HOUR = FieldSpec("hour", 0, 23, "9-17", hash_high=23)
# `H` stays below the 29th so that no month is left out.
DAY = FieldSpec("day-of-month", 1, 31, "1,15", hash_high=28)
MONTH = FieldSpec("month", 1, 12, "JAN-MAR", {name: n for n, name in enumerate(MONTHS, 1)}, hash_high=12)
WEEKDAY = FieldSpec("day-of-week", 0, 7, "MON-FRI", {name: n for n, name in enumerate(WEEKDAYS)}, hash_high=6)
QUARTZ_WEEKDAY = FieldSpec("day-of-week", 1, 7, "MON-FRI", {name: n for n, name in enumerate(WEEKDAYS, 1)}, hash_high=7)
YEAR = FieldSpec("year", 1970, 2199, "2030", wraps=False)


@dataclass(slots=True)
class CronField:
    """What one field says. Bit n of `mask` is value n; weekdays are 0 = Sunday in every dialect."""

    mask: int = 0
    star: bool = False
    """Written with `*`: by an hour or minute like that the schedule runs in real time."""
    open: bool = False
    """`?` or `*` alone: the field restricts nothing."""
    last_offsets: set[int] = field(default_factory=set)
    """Days before the last day of the month (`L` is 0)."""
    workdays: set[int] = field(default_factory=set)
    """Days of the month moved to the nearest weekday (`15W`)."""
    last_workday_offsets: set[int] = field(default_factory=set)
    """`LW` is 0, `L-3W` is 3."""
    nth: set[tuple[int, int]] = field(default_factory=set)
    """(weekday, n): the nth such weekday of the month; n = 0 is the last."""
    text: str = ""
    """The field as canonical text, cached."""


def fault(spec: FieldSpec, read: str, why: str, fix: str | None = None) -> ScheduleError:
    """One sentence: which field, what was read, why not, and what to write instead."""
    advice = f"write for example {spec.example!r}" if fix is None else fix
    return ScheduleError(f"The {spec.name} field has {read!r}: {why}; {advice}.")


def hash_number(key: str, field_name: str) -> int:
    """A number that depends on nothing but its arguments: every node, every release reads the same `H`."""
    digest = hashlib.blake2b(f"{field_name}\0{key}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def uses_hash(text: str) -> bool:
    """Whether a schedule that is written as text is a cron expression with `H`, which 'every 1h' is not."""
    return HASHED.search(text.upper()) is not None and INTERVAL.match(text) is None


def read_field(spec: FieldSpec, text: str, hash_key: str | None) -> CronField:
    """What a field says; the result is shared and not to be changed."""
    if HASHED.search(text):
        return FieldReader(spec, hash_key).read(text)
    return _read_plain(spec, text)


@functools.lru_cache(maxsize=4096)
def _read_plain(spec: FieldSpec, text: str) -> CronField:
    # Few distinct fields make up most expressions.
    return FieldReader(spec, None).read(text)


class FieldReader:
    """Reads one field of one expression."""

    def __init__(self, spec: FieldSpec, hash_key: str | None) -> None:
        self.spec = spec
        self.hash_key = hash_key
        self.shift = spec.low if spec is QUARTZ_WEEKDAY else 0
        self.is_weekday = spec.name == "day-of-week"
        self.is_day = spec is DAY

    def read(self, text: str) -> CronField:
        result = CronField()
        if text in ("*", "?"):
            if text == "?" and not (self.is_day or self.is_weekday):
                why = "'?' stands for any day, so only the two day fields may hold it"
                raise fault(self.spec, text, why, "write '*'")
            result.mask = self._mask(range(self.spec.low, self.spec.high + 1))
            result.star, result.open = text == "*", True
            return result
        for item in text.split(","):
            self._read_item(item, text, result)
        return result

    def _read_item(self, item: str, text: str, result: CronField) -> None:
        if item == "":
            raise fault(self.spec, text, "an item of the list is empty", "take out the extra comma")
        if item in ("?", "R") or "~" in item or item.startswith("R("):
            raise self._foreign(item)
        if self._read_special(item, result):
            return
        base, slash, step_text = item.partition("/")
        step = self._step(step_text, item) if slash else 1
        if base == "*":
            result.star = True
            self._check_step(step, len(self._whole()) - 1, item)
            result.mask |= self._mask(self._whole()[::step])
        elif base.startswith("H"):
            result.mask |= self._hashed(base, step if slash else 0, item)
        else:
            result.mask |= self._mask(self._span(base, item, bool(slash), step))

    def _whole(self) -> range:
        # 0 and 7 are both Sunday: a step over the whole week must not meet it twice.
        high = 6 if self.spec is WEEKDAY else self.spec.high
        return range(self.spec.low, high + 1)

    def _span(self, base: str, item: str, stepped: bool, step: int) -> list[int]:
        first_text, dash, last_text = base.partition("-")
        first = self._value(first_text, item)
        if not dash:
            if not stepped:
                return [first]
            last = self._whole()[-1]
            if first > last:
                raise fault(self.spec, item, "a step that starts at 7 has nowhere to go", "start at 0")
        else:
            last = self._value(last_text, item)
        values = self._range(first, last, item)
        self._check_step(step, max(len(values) - 1, 1), item)
        return values[::step]

    def _range(self, first: int, last: int, item: str) -> list[int]:
        if first <= last:
            return list(range(first, last + 1))
        if not self.spec.wraps:
            raise fault(self.spec, item, "the range runs backwards", f"write '{last}-{first}'")
        whole = self._whole()
        first = 0 if self.spec is WEEKDAY and first == 7 else first
        if first <= last:
            return list(range(first, last + 1))
        return [*range(first, whole[-1] + 1), *range(whole[0], last + 1)]

    def _check_step(self, step: int, widest: int, item: str) -> None:
        if step > widest:
            why = f"a step of {step} is wider than the {widest + 1} values it steps over"
            hint = f"the widest step here is {widest}, or name the one value you mean"
            raise fault(self.spec, item, why, hint)

    def _step(self, text: str, item: str) -> int:
        if not _is_number(text):
            raise fault(self.spec, item, "the step after '/' is not a number", "write for example '*/5'")
        step = int(text)
        if step == 0:
            raise fault(self.spec, item, "a step of 0 never moves", "write a step of 1 or more")
        return step

    def _value(self, text: str, item: str) -> int:
        if text in self.spec.names:
            return self.spec.names[text]
        if not _is_number(text):
            raise self._not_a_value(text, item)
        value = int(text)
        if not self.spec.low <= value <= self.spec.high:
            why = f"{text} is outside {self.spec.bounds()}"
            raise fault(self.spec, item, why, self._out_of_range_hint(value))
        return value

    def _not_a_value(self, text: str, item: str) -> ScheduleError:
        why = f"{text!r} is not a number or name from {self.spec.bounds()}" if text else "a value is missing"
        short = text[:3]
        if short in self.spec.names and text.isalpha():
            return fault(self.spec, item, why, f"names have three letters, write {short!r}")
        if self.is_weekday and re.fullmatch(r"L[0-7]", text):
            return fault(self.spec, item, why, f"the last such weekday is written '{text[1]}L'")
        return fault(self.spec, item, why)

    def _out_of_range_hint(self, value: int) -> str | None:
        if self.is_weekday and self.spec is WEEKDAY:
            return "Sunday is 0 or 7, Saturday is 6; or use names such as 'MON-FRI'"
        if self.is_weekday:
            return "in this dialect Sunday is 1 and Saturday is 7; or use names such as 'MON-FRI'"
        if self.spec in (SECOND, MINUTE) and value == 60:
            return "'0' is the full minute or hour, and '*' is each one"
        if self.spec is HOUR and value == 24:
            return "midnight is '0'"
        return None

    def _foreign(self, item: str) -> ScheduleError:
        if item == "?":
            return fault(self.spec, item, "'?' cannot be part of a list", "write '?' alone")
        why = "a random value would differ from node to node"
        if "~" in item:
            low, _, high = item.partition("~")
            low, high = low or str(self.spec.low), high or str(self.spec.high)
            return fault(self.spec, item, why, f"write 'H({low}-{high})', which is hashed from the job")
        return fault(self.spec, item, why, "write 'H', which is hashed from the job")

    def _hashed(self, base: str, step: int, item: str) -> int:
        low, high = self._hash_bounds(base, item)
        if self.hash_key is None:
            why = "'H' is hashed from the job's name, and there is none here"
            raise fault(self.spec, item, why, "give the job's name (--job), or write the value")
        number = hash_number(self.hash_key, self.spec.name)
        if step == 0:
            return self._mask([low + number % (high - low + 1)])
        self._check_step(step, max(high - low, 1), item)
        return self._mask(range(low + number % step, high + 1, step))

    def _hash_bounds(self, base: str, item: str) -> tuple[int, int]:
        if self.spec is YEAR:
            raise fault(self.spec, item, "a year cannot be hashed", "write the year")
        if base == "H":
            return self.spec.low, self.spec.hash_high
        inner = re.fullmatch(r"H\(([^()-]+)-([^()-]+)\)", base)
        if inner is None:
            raise fault(self.spec, item, "'H' takes a range in brackets", "write for example 'H(0-29)'")
        low, high = self._value(inner[1], item), self._value(inner[2], item)
        if low > high:
            raise fault(self.spec, item, "the range of 'H' runs backwards", f"write 'H({high}-{low})'")
        return low, high

    def _read_special(self, item: str, result: CronField) -> bool:
        if self.is_day:
            return self._read_special_day(item, result)
        return self.is_weekday and self._read_special_weekday(item, result)

    def _read_special_day(self, item: str, result: CronField) -> bool:
        ends = re.fullmatch(r"L(?:-([0-9]{1,2}))?(W?)", item)
        if ends is not None:
            back = int(ends[1] or 0)
            if ends[1] is not None and not 1 <= back <= 30:
                why = "at most 30 days can be counted back from the last"
                raise fault(self.spec, item, why, "write for example 'L-3'")
            (result.last_workday_offsets if ends[2] else result.last_offsets).add(back)
            return True
        if re.fullmatch(r"[0-9]{1,4}W", item):
            result.workdays.add(self._value(item[:-1], item))
            return True
        if item == "WL":
            raise fault(self.spec, item, "the letters are in the wrong order", "write 'LW'")
        if item == "W" or ("W" in item and "-" in item):
            why = "'W' follows one day of the month"
            raise fault(self.spec, item, why, "write for example '15W' or '1W,15W'")
        return False

    def _read_special_weekday(self, item: str, result: CronField) -> bool:
        if item == "L" and self.spec is QUARTZ_WEEKDAY:
            result.mask |= 1 << 6
            return True
        if item == "L":
            why = "'L' by itself names no weekday"
            raise fault(self.spec, item, why, "write for example '5L' for the last Friday")
        if item.endswith("L") and item[:-1] in self._single_values():
            result.nth.add((self._weekday(item[:-1], item), 0))
            return True
        day_text, hash_sign, number = item.partition("#")
        if not hash_sign:
            return False
        if not _is_number(number) or not 1 <= int(number) <= 5:
            why = "a weekday occurs one to five times in a month"
            raise fault(self.spec, item, why, "write for example 'MON#1', or 'MONL' for the last Monday")
        if day_text not in self._single_values():
            self._value(day_text, item)
        result.nth.add((self._weekday(day_text, item), int(number)))
        return True

    def _single_values(self) -> set[str]:
        return {*self.spec.names, *(str(n) for n in range(self.spec.low, self.spec.high + 1))}

    def _weekday(self, text: str, item: str) -> int:
        return (self._value(text, item) - self.shift) % 7

    def _mask(self, values: range | list[int]) -> int:
        mask = 0
        for value in values:
            if self.is_weekday:
                value = (value - self.shift) % 7
            elif self.spec is YEAR:
                value -= YEAR.low
            mask |= 1 << value
        return mask


def _is_number(text: str) -> bool:
    # str.isdigit() is true of full-width and superscript digits as well.
    return 0 < len(text) <= LONGEST_NUMBER and text.isascii() and text.isdigit()
