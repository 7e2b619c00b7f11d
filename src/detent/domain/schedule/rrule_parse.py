"""Reading RFC 5545 recurrence rules into a form that no longer depends on its surroundings.

Everything a rule takes from DTSTART without saying so (the hour, the weekday, the day of the month) is
written out here, so that afterwards DTSTART is only the lower bound and the phase of INTERVAL.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from detent.domain.schedule.errors import ScheduleError

FREQUENCIES = ("YEARLY", "MONTHLY", "WEEKLY", "DAILY", "HOURLY", "MINUTELY")
WEEKDAY_NAMES = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
LONGEST_RULE = 20_000
LARGEST_COUNT = 10_000
LARGEST_INTERVAL = 10_000
MAX_DATES = 1_000
MAX_TIMES = 2_880
MAX_CHOSEN_TIMES = 96
EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  a wall time has no zone
EARLIEST = datetime(1900, 1, 1)  # noqa: DTZ001
LATEST = datetime(2500, 1, 1)  # noqa: DTZ001

# name: lowest, highest, may be negative
NUMBER_LISTS = {
    "BYMINUTE": (0, 59, False),
    "BYSECOND": (0, 59, False),
    "BYHOUR": (0, 23, False),
    "BYMONTHDAY": (1, 31, True),
    "BYYEARDAY": (1, 366, True),
    "BYWEEKNO": (1, 53, True),
    "BYMONTH": (1, 12, False),
    "BYSETPOS": (1, 366, True),
}
PART_ORDER = (
    "FREQ",
    "INTERVAL",
    "COUNT",
    "UNTIL",
    "WKST",
    "BYMONTH",
    "BYWEEKNO",
    "BYYEARDAY",
    "BYMONTHDAY",
    "BYDAY",
    "BYHOUR",
    "BYMINUTE",
    "BYSECOND",
    "BYSETPOS",
)
EXAMPLE = "write for example 'RRULE:FREQ=WEEKLY;BYDAY=MO;BYHOUR=9'"

ToWall = Callable[[datetime], datetime]


@dataclass(frozen=True, slots=True)
class RecurrenceRule:
    """A rule in which nothing is left to guess. All times are naive wall times."""

    freq: str
    start: datetime
    interval: int = 1
    count: int | None = None
    until: datetime | None = None
    week_start: str = "MO"
    lists: tuple[tuple[str, tuple[int, ...]], ...] = ()
    weekdays: tuple[tuple[int, str], ...] = ()
    """(ordinal, name): (0, 'MO') is every Monday, (-1, 'FR') the last Friday."""
    exclude: tuple[datetime, ...] = ()
    include: tuple[datetime, ...] = ()

    def numbers(self, name: str) -> tuple[int, ...]:
        return dict(self.lists).get(name, ())

    def text(self) -> str:
        """The rule as text: the same for every way of writing the same rule."""
        lines = [f"DTSTART:{_stamp(self.start)}", "RRULE:" + ";".join(self._parts())]
        if self.include:
            lines.append("RDATE:" + ",".join(map(_stamp, self.include)))
        if self.exclude:
            lines.append("EXDATE:" + ",".join(map(_stamp, self.exclude)))
        return "\n".join(lines)

    def _parts(self) -> list[str]:
        parts = {"FREQ": self.freq}
        if self.interval != 1:
            parts["INTERVAL"] = str(self.interval)
        if self.count is not None:
            parts["COUNT"] = str(self.count)
        if self.until is not None:
            parts["UNTIL"] = _stamp(self.until)
        if self.week_start != "MO":
            parts["WKST"] = self.week_start
        if self.weekdays:
            parts["BYDAY"] = ",".join(f"{ordinal or ''}{name}" for ordinal, name in self.weekdays)
        parts |= {name: ",".join(map(str, numbers)) for name, numbers in self.lists}
        return [f"{name}={parts[name]}" for name in PART_ORDER if name in parts]


def _stamp(wall: datetime) -> str:
    return wall.strftime("%Y%m%dT%H%M%S")


def looks_like_rrule(text: str) -> bool:
    return bool(re.match(r"\s*(RRULE|DTSTART|RDATE|EXDATE|EXRULE|FREQ\s*=|BEGIN:)", text, re.IGNORECASE))


def find_zone(text: str) -> str | None:
    """The TZID of a rule's dates, if it has one."""
    zones = set(re.findall(r";TZID=([^:;,\s]+)", text, re.IGNORECASE))
    if len(zones) > 1:
        raise ScheduleError(f"The rule names several zones ({', '.join(sorted(zones))}); keep one of them.")
    return zones.pop() if zones else None


def parse_rrule(text: str, to_wall: ToWall, anchor: datetime | None) -> RecurrenceRule:
    """Reads a rule. `to_wall` turns an aware instant into the wall time of the schedule's zone;
    `anchor` is the instant the rule counts from when it has no DTSTART."""
    return _RuleReader(to_wall).read(text, anchor)


class _RuleReader:
    def __init__(self, to_wall: ToWall) -> None:
        self.to_wall = to_wall
        self.rule_text: str | None = None
        self.start: datetime | None = None
        self.exclude: list[datetime] = []
        self.include: list[datetime] = []

    def read(self, text: str, anchor: datetime | None) -> RecurrenceRule:
        if len(text) > LONGEST_RULE:
            raise ScheduleError(f"The rule has {len(text)} characters; at most {LONGEST_RULE} are read.")
        if not text.isascii():
            raise ScheduleError("The rule contains a character that is not plain ASCII; type it again.")
        for line in re.sub(r"\r?\n[ \t]", "", text).splitlines():
            if line.strip():
                self._read_line(line.strip().upper())
        if self.rule_text is None:
            raise ScheduleError(f"The rule has no RRULE line; {EXAMPLE}.")
        rule = self._read_rule(self.rule_text)
        rule = _pin_start(rule, self.start, None if anchor is None else self.to_wall(anchor))
        _check_times(rule)
        include, exclude = tuple(sorted(set(self.include))), tuple(sorted(set(self.exclude)))
        return replace(rule, include=include, exclude=exclude)

    def _read_line(self, line: str) -> None:
        name, colon, value = line.partition(":")
        name = name.partition(";")[0]
        if not colon and line.startswith("FREQ"):
            name, value = "RRULE", line
        if name == "RRULE":
            if self.rule_text is not None:
                raise ScheduleError("The schedule has two RRULE lines; put the second rule into 'also'.")
            self.rule_text = value
        elif name == "DTSTART":
            if self.start is not None:
                raise ScheduleError("The rule has two DTSTART lines; keep one.")
            self.start = self._moment(value, "DTSTART")[0]
        elif name in ("EXDATE", "RDATE"):
            self._read_dates(name, value)
        else:
            raise ScheduleError(
                f"The line {line[:60]!r} is not part of a recurrence rule; only DTSTART, RRULE, RDATE and "
                "EXDATE lines are read."
            )

    def _read_dates(self, name: str, value: str) -> None:
        dates = self.exclude if name == "EXDATE" else self.include
        for item in value.split(","):
            moment, date_only = self._moment(item, name)
            if date_only:
                raise ScheduleError(
                    f"{name} has {item!r} without a time of day, so it would match no tick; "
                    f"write for example {item + 'T090000'!r}."
                )
            dates.append(moment)
        if len(dates) > MAX_DATES:
            raise ScheduleError(f"{name} has more than {MAX_DATES} dates; use fewer.")

    def _moment(self, text: str, name: str) -> tuple[datetime, bool]:
        found = re.fullmatch(r"([0-9]{8})(?:T([0-9]{6})(Z?))?", text)
        if found is None:
            raise ScheduleError(f"{name} has {text!r}, which is not a date; write for example '20300131T090000'.")
        try:
            # Not strptime, which takes ten times as long: a rule may have a thousand dates.
            moment = datetime.fromisoformat(f"{found[1]}T{found[2] or '000000'}")
        except ValueError:
            raise ScheduleError(f"{name} has {text!r}, a date that does not exist.") from None
        if not EARLIEST <= moment < LATEST:
            raise ScheduleError(f"{name} has {text!r}; dates from 1900 to 2499 are read.")
        if found[3]:
            moment = self.to_wall(moment.replace(tzinfo=UTC))
        return moment, found[2] is None

    def _read_rule(self, text: str) -> RecurrenceRule:
        parts = _split_parts(text)
        freq = _read_freq(parts.pop("FREQ", None))
        rule = RecurrenceRule(freq, EPOCH)
        lists: dict[str, tuple[int, ...]] = {}
        for name, value in parts.items():
            if name in NUMBER_LISTS:
                lists[name] = _numbers(name, value)
            elif name == "BYDAY":
                rule = replace(rule, weekdays=_weekdays(value))
            elif name == "WKST":
                rule = replace(rule, week_start=_week_start(value))
            elif name == "INTERVAL":
                rule = replace(rule, interval=_number(name, value, 1, LARGEST_INTERVAL))
            elif name == "COUNT":
                rule = replace(rule, count=_number(name, value, 1, LARGEST_COUNT))
            elif name == "UNTIL":
                rule = replace(rule, until=self._until(value))
            else:
                raise ScheduleError(f"The rule has {name}={value}, and {name} is not a part of RRULE; {EXAMPLE}.")
        rule = replace(rule, lists=tuple(sorted(lists.items())))
        _check_parts(rule)
        return rule

    def _until(self, value: str) -> datetime:
        moment, date_only = self._moment(value, "UNTIL")
        # A date means the whole of that day, as people read it.
        return moment + timedelta(hours=23, minutes=59, seconds=59) if date_only else moment


def _split_parts(text: str) -> dict[str, str]:
    parts: dict[str, str] = {}
    for part in text.split(";"):
        name, equals, value = part.partition("=")
        if not equals or not name or not value:
            raise ScheduleError(f"The rule has {part!r}, which is not NAME=VALUE; {EXAMPLE}.")
        if name in parts:
            raise ScheduleError(f"The rule has {name} twice; keep one.")
        parts[name] = value
    if "COUNT" in parts and "UNTIL" in parts:
        raise ScheduleError("The rule has both COUNT and UNTIL; keep one of them.")
    return parts


def _read_freq(freq: str | None) -> str:
    if freq is None:
        raise ScheduleError(f"The rule has no FREQ; {EXAMPLE}.")
    if freq == "SECONDLY":
        raise ScheduleError(
            "FREQ=SECONDLY is not supported; use an interval such as 'every 10s', or a cron expression "
            "with a seconds field such as '*/10 * * * * *'."
        )
    if freq not in FREQUENCIES:
        raise ScheduleError(f"FREQ={freq} is not known; use one of {', '.join(FREQUENCIES)}.")
    return freq


def _number(name: str, text: str, low: int, high: int) -> int:
    if not re.fullmatch(r"[0-9]{1,6}", text) or not low <= int(text) <= high:
        raise ScheduleError(f"The rule has {name}={text}; {name} goes from {low} to {high}.")
    return int(text)


def _numbers(name: str, text: str) -> tuple[int, ...]:
    low, high, signed = NUMBER_LISTS[name]
    values: set[int] = set()
    for item in text.split(","):
        if not re.fullmatch(r"[+-]?[0-9]{1,3}" if signed else r"[0-9]{1,3}", item):
            raise ScheduleError(f"The rule has {name}={text}, and {item!r} is not a number; take it out.")
        if not low <= abs(int(item)) <= high:
            sign = ", or negative to count from the end" if signed else ""
            raise ScheduleError(f"The rule has {item} in {name}, which goes from {low} to {high}{sign}.")
        values.add(int(item))
    return tuple(sorted(values))


def _weekdays(text: str) -> tuple[tuple[int, str], ...]:
    days: set[tuple[int, str]] = set()
    for item in text.split(","):
        found = re.fullmatch(r"([+-]?[0-9]{1,2})?(MO|TU|WE|TH|FR|SA|SU)", item)
        if found is None or (found[1] is not None and not 1 <= abs(int(found[1])) <= 53):
            raise ScheduleError(
                f"The rule has {item!r} in BYDAY; write MO, TU, WE, TH, FR, SA or SU, with 1 or -1 in front "
                "for the first or the last of the month."
            )
        days.add((int(found[1] or 0), found[2]))
    return tuple(sorted(days, key=lambda day: (WEEKDAY_NAMES.index(day[1]), day[0])))


def _week_start(text: str) -> str:
    if text not in WEEKDAY_NAMES:
        raise ScheduleError(f"The rule has WKST={text}; write one of {', '.join(WEEKDAY_NAMES)}.")
    return text


def _check_parts(rule: RecurrenceRule) -> None:
    """What RFC 5545 forbids, and what no day can satisfy."""
    names = {name for name, _ in rule.lists}
    if "BYWEEKNO" in names and rule.freq != "YEARLY":
        raise ScheduleError(f"BYWEEKNO goes with FREQ=YEARLY only, not with FREQ={rule.freq}.")
    if "BYYEARDAY" in names and rule.freq in ("DAILY", "WEEKLY", "MONTHLY"):
        raise ScheduleError(f"BYYEARDAY does not go with FREQ={rule.freq}; use FREQ=YEARLY.")
    if "BYMONTHDAY" in names and rule.freq == "WEEKLY":
        raise ScheduleError("BYMONTHDAY does not go with FREQ=WEEKLY; use FREQ=MONTHLY.")
    if any(ordinal for ordinal, _ in rule.weekdays) and (rule.freq not in ("MONTHLY", "YEARLY") or "BYWEEKNO" in names):
        raise ScheduleError("BYDAY with a number goes with FREQ=MONTHLY or FREQ=YEARLY only; take out the number.")
    if "BYSETPOS" in names and len(names) == 1 and not rule.weekdays:
        raise ScheduleError("BYSETPOS chooses among the days of another BY part; add one, such as BYDAY=MO.")
    months, days = rule.numbers("BYMONTH"), rule.numbers("BYMONTHDAY")
    longest = max((29 if month == 2 else 30 if month in (4, 6, 9, 11) else 31) for month in months or (1,))
    if days and min(map(abs, days)) > longest:
        raise ScheduleError(
            f"BYMONTHDAY={days[0]} never comes in the months of the rule; the last day of a month is BYMONTHDAY=-1."
        )


def _check_times(rule: RecurrenceRule) -> None:
    hours = len(rule.numbers("BYHOUR")) or 24
    minutes = len(rule.numbers("BYMINUTE")) or 60
    times = hours * minutes * len(rule.numbers("BYSECOND"))
    if times > MAX_TIMES:
        raise ScheduleError(
            f"The rule names {times} times a day and at most {MAX_TIMES} are read; use a cron expression with a "
            "seconds field such as '*/10 * * * * *', or an interval such as 'every 10s'."
        )
    if times > MAX_CHOSEN_TIMES and rule.numbers("BYSETPOS") and rule.freq in ("YEARLY", "MONTHLY", "WEEKLY"):
        raise ScheduleError(
            f"BYSETPOS would choose among {times} times a day, and at most {MAX_CHOSEN_TIMES} are read; "
            "name fewer hours or minutes."
        )


def _pin_start(rule: RecurrenceRule, start: datetime | None, anchor: datetime | None) -> RecurrenceRule:
    """Writes out what the rule would take from DTSTART, and chooses DTSTART where there is none."""
    pinned = {name for name, _ in rule.lists}
    day_given = bool(rule.weekdays or pinned & {"BYMONTHDAY", "BYYEARDAY", "BYWEEKNO"})
    needs_day = not day_given and rule.freq in ("YEARLY", "MONTHLY", "WEEKLY")
    if start is None:
        if anchor is None and (needs_day or rule.interval > 1 or rule.count is not None):
            raise ScheduleError("The rule counts from a first day and has none; add a line 'DTSTART:20300101T090000'.")
        free = not needs_day and rule.interval == 1 and rule.count is None
        # Without DTSTART a rule fires on the full hour or at midnight, not at the second it was registered.
        clock, start = EPOCH, EPOCH if free or anchor is None else anchor.replace(microsecond=0)
    else:
        clock = start
    additions: dict[str, tuple[int, ...]] = {}
    if needs_day and rule.freq == "WEEKLY":
        rule = replace(rule, weekdays=((0, WEEKDAY_NAMES[start.weekday()]),))
    elif needs_day:
        additions["BYMONTHDAY"] = (start.day,)
        if rule.freq == "YEARLY" and "BYMONTH" not in pinned:
            additions["BYMONTH"] = (start.month,)
    smaller = {"HOURLY": ("BYMINUTE", "BYSECOND"), "MINUTELY": ("BYSECOND",)}
    values = {"BYHOUR": (clock.hour,), "BYMINUTE": (clock.minute,), "BYSECOND": (clock.second,)}
    for name in smaller.get(rule.freq, ("BYHOUR", "BYMINUTE", "BYSECOND")):
        if name not in pinned:
            additions[name] = values[name]
    lists = dict(rule.lists) | additions
    return replace(rule, start=start, lists=tuple(sorted(lists.items())))
