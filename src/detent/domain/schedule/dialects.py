"""Expressions of other programs: what EventBridge writes, and weekday numbers that two programs read differently."""

from __future__ import annotations

import re

from detent.domain.schedule.cron_parse import (
    NUMBERED_WEEKDAY,
    CronFields,
    aws_translation,
    named_weekdays,
    parse_cron,
)
from detent.domain.schedule.describe import describe_cron
from detent.domain.schedule.errors import ScheduleError

AWS_CALL = re.compile(r"(cron|rate|at)\((.*)\)", re.IGNORECASE | re.DOTALL)
AWS_RATE = re.compile(r"[1-9][0-9]{0,8}\s+(?:minute|hour|day)s?", re.IGNORECASE | re.ASCII)


def is_aws(text: str) -> bool:
    return AWS_CALL.fullmatch(text.strip()) is not None


def read_aws(text: str) -> tuple[str, str]:
    """What `cron(…)`, `rate(…)`, `at(…)` or bare fields are here: the kind of the schedule and its text."""
    found = AWS_CALL.fullmatch(text.strip())
    if found is None:
        return "cron", text
    name, inner = found[1].lower(), found[2].strip()
    if name != "rate":
        return name, inner
    if AWS_RATE.fullmatch(inner) is None:
        raise ScheduleError(
            f"{text!r} is not a rate of EventBridge, which has a number and minutes, hours or days; write for example "
            "'rate(5 minutes)'.",
            "/schedule",
        )
    return "every", inner


def refuse_aws(text: str) -> None:
    """Refuses the forms of EventBridge where the dialect is another one."""
    found = AWS_CALL.fullmatch(text)
    if found is None:
        return
    name, inner = found[1].lower(), found[2].strip()
    fix = repr(inner)
    if name == "rate":
        fix = repr(f"every {inner}")
    elif name == "cron" and len(inner.split()) == 6:
        fix = repr(aws_translation(inner.upper().split()))
    raise ScheduleError(f"{text!r} is the AWS form; set dialect to 'aws', or write {fix}.", "/schedule")


def refuse_two_readings(text: str, fields: CronFields, day_match: str | None, hash_key: str | None) -> None:
    """Refuses `0 14 ? * 2#1`: `?` comes from Quartz, where Sunday is 1, and here Sunday is 0.

    A number that Quartz does not have, and a field that means the same in both, has one reading."""
    parts = text.split()
    if "?" not in parts or len(parts) < 5:
        return
    place = 5 if len(parts) > 5 else 4
    if NUMBERED_WEEKDAY.search(parts[place]) is None:
        return
    try:
        other = parse_cron(text, dialect="quartz", day_match=day_match, hash_key=hash_key)
    except ScheduleError:
        return
    if (other.weekday.mask, other.weekday.nth) == (fields.weekday.mask, fields.weekday.nth):
        return

    def written(sunday: int) -> str:
        weekday = named_weekdays(parts[place].upper(), sunday)
        return repr(" ".join([*parts[:place], weekday, *parts[place + 1 :]]))

    raise ScheduleError(
        f"{text!r} has two readings: in Quartz, where Sunday is 1, it runs {describe_cron(other)}, which is "
        f"{written(1)}, or dialect 'quartz'; in Unix cron, where Sunday is 0, it runs {describe_cron(fields)}, "
        f"which is {written(0)}: write the one you mean."
    )
