"""`detent cron explain`: describe a schedule, without a server."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import click

from detent.cli import base, output, times
from detent.cli.base import command, group, option
from detent.cli.invocation import format_options, invocation, read_number
from detent.cli.output import Column, Item
from detent.cli.schedule_options import with_parts
from detent.cli.text import clean
from detent.errors import UsageError

cron = group("cron", "Explain schedules, without a server.", panel="Jobs and runs")

TICKS = (
    Column("LOCAL TIME", lambda tick: tick["local"], lambda tick, at: times.wall(tick["local"])),
    Column("TICK", lambda tick: tick["at"], lambda tick, at: times.absolute(tick["at"])),
    Column("", lambda tick: tick["at"], lambda tick, at: times.relative(tick["at"], at)),
    Column("CLOCK CHANGE", lambda tick: tick["dst"], extra=True),
)
SKIPPED = Column("SKIPPED", lambda tick: "by request" if tick.get("skipped") else None)


@command(
    cron,
    "explain",
    examples=(
        'detent cron explain "0 14 ? * MON#1" --tz Europe/Berlin --next 10',
        'detent cron explain "every 90m"',
        'detent cron explain "0 9 * * *" --also @weekly --exclude 2030-12-24',
    ),
)
@click.argument("schedule")
@option("--also", metavar="TEXT", multiple=True, help="One more schedule, as text; may be repeated.")
@option(
    "--exclude", metavar="TEXT", multiple=True, help="A day, days or a cron expression to exclude; may be repeated."
)
@option("--timezone", "--tz", "timezone", metavar="ZONE", default="UTC", help="Time zone, such as Europe/Berlin. [UTC]")
@option("--next", "count", default="5", metavar="N", help="How many ticks to list. [5]")
@option("--from", "start", metavar="TIME", help="List the ticks after this time, such as tomorrow. [now]")
@option("--day-match", metavar="or|and", help="If both day fields are restricted: match either, or both.")
@option("--dialect", metavar="unix|quartz|aws", help="How the expression is read: unix, Quartz or EventBridge. [unix]")
@option("--job", "job", metavar="NAME", help="Name of a job of the default tenant, from which H is hashed.")
@option("--dst-gap", metavar="run|shift|skip", help="For a tick that the clock jumps over. [run]")
@option("--dst-overlap", metavar="first|last|both", help="For a tick that the clock shows twice. [first]")
@format_options(quiet="the times of the ticks only")
def explain(
    schedule: str,
    timezone: str,
    count: str,
    start: str | None,
    job: str | None,
    also: Sequence[str],
    exclude: Sequence[str],
    **options: str | None,
) -> None:
    """Describe a schedule in words, and list its next ticks.

    SCHEDULE is a cron expression, "every 15m", an RRULE or a time.
    """
    number = read_number("--next", count, 1, 1000)
    from detent.domain.job import DEFAULT_TENANT
    from detent.domain.job_schedule import hash_key_of
    from detent.domain.schedule import ScheduleError
    from detent.domain.schedule.explain import explain_text

    given = {name: value for name, value in options.items() if value is not None}
    if job is not None:
        given["hash_key"] = hash_key_of(DEFAULT_TENANT, job)
    parts = {"also": also, "exclude": exclude, "after": None}
    try:
        whole = with_parts(schedule, parts, options["dialect"])
        answer = explain_text(whole, timezone, number, _start(start, timezone), **given)
    except ScheduleError as error:
        raise UsageError(error.message) from error
    show(answer)


def _start(text: str | None, timezone: str) -> datetime:
    return times.now() if text is None else times.read_moment("--from", text, ahead=True, zone=timezone)


def _mark(tick: Item) -> object:
    return "skipped" if tick.get("skipped") else tick["dst"]


def show(answer: Item) -> None:
    """Print the description, the ticks and the effects of DST changes; a pipe gets the ticks only. Those that were
    asked to be skipped are marked, and are not among the times only."""
    if invocation().format == "json":
        output.print_json(answer)
    elif invocation().format == "quiet":
        output.print_lines((tick["at"],) for tick in answer["ticks"] if not tick.get("skipped"))
    elif base.on_terminal():
        terminal = output.console()
        terminal.print(clean(f"{answer['description']} ({answer['timezone']})\n"), style="bold")
        marked = any(tick.get("skipped") for tick in answer["ticks"])
        if answer["ticks"]:
            output.print_table(answer["ticks"], (*TICKS, SKIPPED) if marked else TICKS)
    else:
        output.print_lines((tick["at"], tick["local"], _mark(tick)) for tick in answer["ticks"])
    if invocation().format == "text":
        for warning in answer["warnings"]:
            output.say(f"note: {warning}")
