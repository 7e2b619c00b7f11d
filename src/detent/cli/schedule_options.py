"""The options of `detent job create` that say when a job ticks, and the schedule that they describe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from detent.cli.base import option
from detent.errors import UsageError

SCHEDULES = {
    "cron": "--cron",
    "every": "--every",
    "at": "--at",
    "rrule": "--rrule",
    "schedule": "--schedule",
    "task": "--task",
}
# What belongs to one of them, by the field of the schedule.
PARTS = {"after": "--after", "also": "--also", "exclude": "--exclude"}

SCHEDULE_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    option("--cron", metavar="EXPRESSION", help='A cron expression, such as "0 9 * * MON-FRI".', panel="Schedule"),
    option("--every", metavar="TIME", help="An interval, such as 30s, 15m or 6h.", panel="Schedule"),
    option(
        "--after",
        metavar="finish",
        help="With --every: count it from the end of the previous run.",
        panel="Schedule",
    ),
    option(
        "--at", metavar="TIME", help="Once, such as 10m, tomorrow 09:00 or 2030-12-24T18:00:00+01:00.", panel="Schedule"
    ),
    option("--rrule", metavar="RULE", help='A recurrence rule, such as "FREQ=WEEKLY;BYDAY=MO".', panel="Schedule"),
    option("--schedule", metavar="TEXT", help="Any of these as text, such as @daily.", panel="Schedule"),
    option(
        "--also",
        metavar="TEXT",
        multiple=True,
        help='One more schedule, as text, such as "0 12 * * SAT"; may be repeated.',
        panel="Schedule",
    ),
    option(
        "--exclude",
        metavar="TEXT",
        multiple=True,
        help="No tick on this day, 2030-12-24, these days, 2030-12-24/2031-01-01, or when a cron expression matches, "
        '"* * * * SAT"; may be repeated.',
        panel="Schedule",
    ),
    option("--task", is_flag=True, help="No schedule, as without any of these: runs are enqueued.", panel="Schedule"),
)


def with_parts(
    schedule: str | dict[str, Any] | None, flags: Mapping[str, Any], dialect: str | None
) -> str | dict[str, Any] | None:
    """The schedule with `also`, `exclude` and `after`, as the flags say. Its text is read in this dialect."""
    given = {name: flags[name] for name in PARTS if flags[name]}
    if not given:
        return schedule
    if schedule is None:
        flag = PARTS[next(iter(given))]
        raise UsageError(f"{flag} is given without a schedule: give --cron, --every, --rrule, --at or --schedule too.")
    parts = {name: value if name == "after" else list(value) for name, value in given.items()}
    whole = as_object(schedule, dialect)
    if "after" in parts and "every" not in whole:
        raise UsageError("--after is given without --every: it counts an interval from the end of the previous run.")
    return {**whole, **parts}


def as_object(schedule: str | dict[str, Any], dialect: str | None) -> dict[str, Any]:
    """A schedule that is written as text, by its kind."""
    if not isinstance(schedule, str):
        return schedule
    from detent.domain.schedule import ScheduleError
    from detent.domain.schedule.parse import read_kind

    try:
        kind, value = read_kind(schedule, dialect)
    except ScheduleError as error:
        raise UsageError(error.message) from error
    return {kind: value}
