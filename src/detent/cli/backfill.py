"""`detent job catchup` and `detent job backfill`"""

from __future__ import annotations

import shlex
from functools import partial
from typing import Any

import click

from detent.cli import output, times
from detent.cli.base import command, option
from detent.cli.invocation import api_options, connect, invocation, read_number
from detent.cli.job_changes import job
from detent.cli.jobs import argument, zone_of
from detent.cli.output import Column
from detent.domain.counts import plural

__all__ = ["job"]  # with these verbs

COLUMNS = (
    Column("KIND", lambda item: item["kind"]),
    Column("LEFT", lambda item: item["left"], right=True),
    Column("NEXT", lambda item: item["next"], lambda item, at: times.absolute(item["next"])),
    Column("FIRST", lambda item: item["first"], lambda item, at: times.absolute(item["first"]), extra=True),
    Column("LAST", lambda item: item["last"], lambda item, at: times.absolute(item["last"])),
    Column("ORDER", lambda item: item["order"], extra=True),
    Column("STARTED", lambda item: item["created_at"], lambda item, at: times.relative(item["created_at"], at)),
)


@command(job, "catchup", examples=("detent job catchup report", "detent job catchup report --drop"))
@argument
@option(
    "--drop",
    is_flag=True,
    help="Drop the ticks that are left; those of an outage or a pause are recorded as `missed: dropped`.",
)
@option("--yes", "-y", is_flag=True, help="With --drop: do not ask for confirmation.")
@api_options(quiet="the number of ticks only")
def catchup(job_name: str, drop: bool, yes: bool) -> int:
    """Show the past ticks still to run: of an outage, a pause or a backfill."""
    with connect() as client:
        state = client.get_catchup(job_name)
        if not drop or not state["left"]:
            _show(job_name, state)
            return 0
        question = f"Drop {_ticks(state['left'])} of {job_name} that are still to run?"
        if not output.agreed(yes, question, f"detent job catchup {shlex.quote(job_name)} --drop --yes"):
            output.say("Nothing was dropped.")
            return 1
        answer = client.drop_catchup(job_name)
    output.say(f"Dropped {_ticks(answer['dropped'])} of {job_name}; runs that have started continue.")
    if invocation().format == "json":
        output.print_json(answer)
    return 0


def _show(job_name: str, state: dict[str, Any]) -> None:
    match invocation().format:
        case "json":
            output.print_json(state)
        case "quiet":
            output.print_lines([(state["left"],)])
        case _:
            page = {"items": state["items"], "next_cursor": None}
            output.print_page(page, COLUMNS, f"{job_name} has no past ticks to run.", identity="kind")


@command(
    job,
    "backfill",
    examples=(
        "detent job backfill report 2026-01-01 2026-01-31 --dry-run",
        "detent job backfill report 2026-01-01 now --reprocess --concurrency 4",
        "detent job backfill report yesterday now",
    ),
)
@argument
@click.argument("since", metavar="FROM")
@click.argument("until", metavar="TO")
@option("--dry-run", is_flag=True, help="Count and list the ticks, and run none.")
@option("--reprocess", is_flag=True, help="Also run ticks again that already ran.")
@option(
    "--concurrency",
    metavar="N",
    default="1",
    callback=lambda context, parameter, text: read_number("--concurrency", text, 1),
    help="Maximum runs at the same time, within the limits of the job. [1]",
)
@option("--newest-first", is_flag=True, help="Start with the latest tick instead of the oldest.")
@option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@api_options(quiet="the number of ticks only")
def backfill(
    job_name: str,
    since: str,
    until: str,
    dry_run: bool,
    reprocess: bool,
    concurrency: int,
    newest_first: bool,
    yes: bool,
) -> int:
    """Run past ticks that never ran; with --reprocess, also those that ran.

    FROM and TO are times such as 2026-01-31T12:00:00Z, 7d (ago) or yesterday
    09:00, or days; both are included. A time without an offset is in the zone
    of the job. The regular ticks of the job run before these. Ticks from
    before the job was created run too.
    """
    with connect() as client:
        zone = zone_of(client, job_name)
        backfill = partial(
            client.backfill_job,
            job_name,
            times.read_moment("FROM", since, ahead=False, zone=zone),
            None if until == "now" else times.read_moment("TO", until, ahead=False, zone=zone, end_of_day=True),
            newest_first=newest_first,
            concurrency=concurrency,
            reprocess=reprocess,
        )
        planned = backfill(dry_run=True)
        if dry_run or not planned["ticks"]:
            _print_plan(job_name, planned, listed=dry_run)
            return 0
        again = f"detent job backfill {shlex.quote(job_name)} {shlex.quote(since)} {shlex.quote(until)} --yes"
        if not output.agreed(yes, f"Run {_planned(planned)} of {job_name}?", again):
            output.say("Nothing was started.")
            return 1
        answer = backfill()
    output.say(f"Started: {_planned(answer)} of {job_name}; `detent job catchup {job_name}` shows what is left.")
    _print(answer)
    return 0


def _print_plan(job_name: str, planned: dict[str, Any], *, listed: bool) -> None:
    if invocation().format == "text" and listed:
        output.print_lines((tick,) for tick in planned["items"])
        if planned["ticks"] > len(planned["items"]):
            more = planned["ticks"] - len(planned["items"])
            output.say(f"… and {plural(more, 'more tick')}.")
    output.say(f"{_planned(planned, capital=True)} of {job_name} would run.")
    _print(planned)


def _print(answer: dict[str, Any]) -> None:
    if invocation().format == "json":
        output.print_json(answer)
    elif invocation().format == "quiet":
        output.print_lines([(answer["ticks"],)])


def _planned(answer: dict[str, Any], *, capital: bool = False) -> str:
    count = answer["ticks"]
    text = f"{_ticks(count)}" if count else ("No tick" if capital else "no tick")
    if count:
        text += f" from {times.absolute(answer['first'])} to {times.absolute(answer['last'])}"
    return text + (f" ({answer['left_out']} left out: they ran, or will run)" if answer["left_out"] else "")


def _ticks(count: int) -> str:
    return plural(count, "tick")
