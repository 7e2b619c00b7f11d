"""From the text of a cron expression to its fields: how many there are, which dialect, which day rule."""

from __future__ import annotations

import re
from dataclasses import dataclass

from detent.domain.counts import plural
from detent.domain.schedule.cron_fields import (
    DAY,
    HOUR,
    MINUTE,
    MONTH,
    QUARTZ_WEEKDAY,
    SECOND,
    WEEKDAY,
    WEEKDAYS,
    YEAR,
    CronField,
    FieldSpec,
    read_field,
)
from detent.domain.schedule.errors import ScheduleError

MACROS = {
    "@YEARLY": "0 0 1 1 *",
    "@ANNUALLY": "0 0 1 1 *",
    "@MONTHLY": "0 0 1 * *",
    "@WEEKLY": "0 0 * * 0",
    "@DAILY": "0 0 * * *",
    "@MIDNIGHT": "0 0 * * *",
    "@HOURLY": "0 * * * *",
}
DIALECTS = ("unix", "quartz", "aws")
DAY_MATCHES = ("or", "and")
LONGEST_EXPRESSION = 1000
PLAIN = re.compile(r"[ -~\t]*")
# A number after '#' or '/' counts something else than weekdays.
NUMBERED_WEEKDAY = re.compile(r"(?<![#/0-9])[0-7](?![0-9])")
ZONE_PREFIX = re.compile(r"(?:CRON_TZ|TZ)=(\S*)\s+(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class CronFields:
    """An expression that was read: seven fields and the rule between the two day fields."""

    second: CronField
    minute: CronField
    hour: CronField
    day: CronField
    month: CronField
    weekday: CronField
    year: CronField | None
    day_match: str | None

    @property
    def real_time(self) -> bool:
        return self.minute.star or self.hour.star


def split_zone(text: str) -> tuple[str | None, str]:
    """`CRON_TZ=Europe/Berlin 0 9 * * *` as its zone and the rest."""
    found = ZONE_PREFIX.fullmatch(text.strip()) if "=" in text else None
    if found is None:
        return None, text
    return found[1], found[2]


def parse_cron(text: str, *, dialect: str, day_match: str | None, hash_key: str | None) -> CronFields:
    """Reads an expression; a ScheduleError says which field is wrong and what to write."""
    parts = _split(text)
    specs = _specs("unix" if text.strip().startswith("@") else dialect, parts, text)
    read = {spec.name: read_field(spec, part, hash_key) for spec, part in zip(specs, parts, strict=True)}
    day, weekday, year = read["day-of-month"], read["day-of-week"], read.get("year")
    both = not day.open and not weekday.open
    if both and day_match is None:
        raise _both_days(text, parts, specs)
    return CronFields(
        read.get("second") or CronField(mask=1),
        read["minute"],
        read["hour"],
        day,
        read["month"],
        weekday,
        None if year is None or year.open else year,
        day_match if both else None,
    )


def _specs(dialect: str, parts: list[str], text: str) -> list[FieldSpec]:
    """What each field of the expression is, in its dialect."""
    if dialect == "unix":
        _refuse_aws(parts, text)
        return _unix_specs(parts, text)
    specs = _quartz_specs(parts, text) if dialect == "quartz" else _aws_specs(parts, text)
    marks = [part for part, spec in zip(parts, specs, strict=True) if spec in (DAY, QUARTZ_WEEKDAY)].count("?")
    if marks == 2:
        raise ScheduleError(f"{text!r} has '?' in both day fields; put '*' in the day-of-month field.")
    if dialect == "aws" and marks == 0:
        raise ScheduleError(
            f"{text!r} has no '?', and the aws dialect needs one in the day-of-month or the day-of-week field; put '?' "
            "in the one that does not decide the day, for example '0 10 ? * MON-FRI *'."
        )
    return specs


def _split(text: str) -> list[str]:
    if len(text) > LONGEST_EXPRESSION:
        raise ScheduleError(
            f"The expression has {len(text)} characters; at most {LONGEST_EXPRESSION} are read, "
            "so shorten its lists with ranges such as '0-30'."
        )
    plain = PLAIN.match(text)
    if plain is not None and plain.end() < len(text):
        strange = text[plain.end()]
        raise ScheduleError(
            f"{text!r} contains {strange!r} (U+{ord(strange):04X}), which is not a plain ASCII character; "
            "type it again with ASCII digits and letters, for example '0 9 * * MON'."
        )
    upper = text.strip().upper()
    if upper.startswith("@"):
        upper = _macro(upper, text)
    return upper.split()


def _macro(upper: str, text: str) -> str:
    if upper in MACROS:
        return MACROS[upper]
    if upper == "@REBOOT":
        raise ScheduleError(
            "'@reboot' has no time: a fleet never reboots as one; use an instant such as "
            "'2030-01-01T00:00:00Z' or an interval such as 'every 1h'."
        )
    if upper.startswith("@EVERY"):
        every = text.strip()[len("@every") :].strip() or "15m"
        raise ScheduleError(f"{text.strip()!r} is an interval; outside a cron form write 'every {every}'.")
    known = ", ".join(name.lower() for name in MACROS)
    raise ScheduleError(f"{text.strip()!r} is not a known macro; use one of {known}, or 'every 15m'.")


def _unix_specs(parts: list[str], text: str) -> list[FieldSpec]:
    five = [MINUTE, HOUR, DAY, MONTH, WEEKDAY]
    known = {5: five, 6: [SECOND, *five], 7: [SECOND, *five, YEAR]}
    if len(parts) in known:
        return known[len(parts)]
    raise ScheduleError(
        f"{text!r} has {plural(len(parts), 'field')}; a cron expression has 5 (minute hour day-of-month month "
        "day-of-week), 6 with seconds first, or 7 with the year last, for example '0 9 * * MON'."
    )


def _quartz_specs(parts: list[str], text: str) -> list[FieldSpec]:
    # Quartz itself has no form of five fields, but people who write about it do.
    five = [MINUTE, HOUR, DAY, MONTH, QUARTZ_WEEKDAY]
    known = {5: five, 6: [SECOND, *five], 7: [SECOND, *five, YEAR]}
    if len(parts) in known:
        return known[len(parts)]
    raise ScheduleError(
        f"{text!r} has {plural(len(parts), 'field')}; the quartz dialect has 6 (second minute hour day-of-month month "
        "day-of-week), 7 with the year last, or 5 without seconds, for example '0 0 9 ? * MON-FRI'."
    )


def _aws_specs(parts: list[str], text: str) -> list[FieldSpec]:
    if len(parts) == 6:
        return [MINUTE, HOUR, DAY, MONTH, QUARTZ_WEEKDAY, YEAR]
    hint = f"'{' '.join(parts)} *'" if len(parts) == 5 else "'0 10 ? * MON-FRI *'"
    raise ScheduleError(
        f"{text!r} has {plural(len(parts), 'field')}; the aws dialect has 6 (minute hour day-of-month month "
        f"day-of-week year), for example {hint}."
    )


def _both_days(text: str, parts: list[str], specs: list[FieldSpec]) -> ScheduleError:
    day = parts[specs.index(DAY)]
    weekday = next(part for part, spec in zip(parts, specs, strict=True) if spec.name == "day-of-week")
    first = f"; for the first such weekday of a month write '{weekday}#1'" if day == "1-7" else ""
    return ScheduleError(
        f"{text!r} restricts both the day-of-month ({day!r}) and the day-of-week ({weekday!r}), and cron "
        "programs disagree about what that means: say day_match 'or' (either day, as Unix cron) or 'and' "
        f"(days that are both), or put '*' in one of the two{first}.",
        "/day_match",
    )


def _refuse_aws(parts: list[str], text: str) -> None:
    """`0 10 ? * MON-FRI *` has its year last and no seconds; read as six Unix fields it would fire
    sixty times in one minute of one hour."""
    if len(parts) != 6:
        return
    year = parts[5]
    looks_like_year = bool(re.fullmatch(r"(19|20|21)[0-9]{2}([-,/].*)?", year))
    if "?" not in (parts[2], parts[4]) and not looks_like_year:
        return
    raise ScheduleError(
        f"{text!r} is the AWS form (minute hour day-of-month month day-of-week year); "
        f"set dialect to 'aws', or write {aws_translation(parts)!r}."
    )


def aws_translation(parts: list[str]) -> str:
    """The same schedule in the unix dialect: AWS counts weekdays from Sunday = 1."""
    minute, hour, day, month, weekday, year = parts
    weekday = "SAT" if weekday == "L" else named_weekdays(weekday, 1)
    five = f"{minute} {hour} {day} {month} {weekday}"
    return five if year in ("*", "?") else f"0 {five} {year}"


def named_weekdays(weekday: str, sunday: int) -> str:
    """The field with names for its numbers, where Sunday is the number `sunday`."""
    return NUMBERED_WEEKDAY.sub(lambda found: WEEKDAYS[(int(found[0]) - sunday) % 7], weekday)
