"""`detent job …`: the ticks and the revisions of a job."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click

from detent.cli import output, times
from detent.cli.backfill import job
from detent.cli.base import command, option
from detent.cli.edits import report_changes
from detent.cli.invocation import api_options, connect, invocation, read_number
from detent.cli.jobs import argument, zone_of
from detent.cli.output import Column, Item
from detent.cli.runs import paging_options
from detent.cli.text import clean
from detent.errors import UsageError

if TYPE_CHECKING:
    from detent.declarative.plan import Difference

__all__ = ["job"]  # with the verbs of the other modules and of this one

REVISIONS = (
    Column("REVISION", lambda revision: revision["revision"], right=True),
    Column(
        "CREATED", lambda revision: revision["made_at"], lambda revision, at: times.relative(revision["made_at"], at)
    ),
    Column("BY", lambda revision: revision["changed_by"], least=10),
    Column("CHANGED", lambda revision: _paths(revision), least=20),
)

TICKS = (
    Column("TICK", lambda tick: tick["at"], lambda tick, at: times.wall(tick["local"])),
    Column("WHEN", lambda tick: tick["until"], lambda tick, at: times.relative(tick["at"], at), extra=True),
    Column("STATUS", lambda tick: tick["status"], status=True),
    Column("REASON", lambda tick: tick["reason"], least=10),
    Column("TICKS", lambda tick: tick["ticks"], right=True),
    Column("RUN", lambda tick: tick["run_id"], extra=True),
)


def _paths(revision: Item) -> str | None:
    if revision["revision"] == 1:
        return "created"
    return None if revision["changes"] is None else ", ".join(change["path"] for change in revision["changes"])


@command(job, "ticks", examples=("detent job ticks report", "detent job ticks report --from 7d --to 1h"))
@argument
@option("--from", "start", metavar="TIME", help="From this time, or a duration before now such as 7d. [24h]")
@option("--to", "end", metavar="TIME", help="Up to this time, or a duration after now such as 1h. [24h]")
@paging_options
@api_options(quiet="the ids of their runs only")
def ticks(job_name: str, start: str | None, end: str | None, limit: int, cursor: str | None) -> None:
    """List past and future ticks of a job with their status."""
    with connect() as client:
        zone = zone_of(client, job_name)
        first = None if start is None else times.read_moment("--from", start, ahead=False, zone=zone)
        last = None if end is None else times.read_moment("--to", end, ahead=True, zone=zone, end_of_day=True)
        page = client.list_ticks(job_name, first, last).gather(limit, cursor)
    output.print_page(page, TICKS, "There are no ticks in this period.", identity="run_id")


@command(
    job,
    "skip",
    examples=(
        "detent job skip report 2030-12-24T18:00:00Z --reason holiday",
        "detent job skip report 2030-12-24T18:00:00Z --undo",
    ),
)
@argument
@click.argument("time", metavar="TIME")
@option("--reason", metavar="TEXT", help="Reason, recorded with the tick.")
@option("--undo", is_flag=True, help="Withdraw the skip: the tick runs.")
@api_options(quiet="nothing")
def skip(job_name: str, time: str, reason: str | None, undo: bool) -> None:
    """Skip one future tick of a job; later ticks run as scheduled."""
    if undo and reason:
        raise UsageError("--reason is given with --undo: it belongs to a skip.")
    with connect() as client:
        at = times.read_moment("TIME", time, ahead=True, zone=zone_of(client, job_name))
        if undo:
            client.unskip_tick(job_name, at)
            output.say(f"The tick {times.written(at)} of {job_name} will run.")
            return
        answer = client.skip_tick(job_name, at, reason)
    output.say(f"The tick {answer['at']} of {job_name} will be skipped.")
    output.print_for_machines(answer)


@command(job, "revisions", examples=("detent job revisions report",))
@argument
@paging_options
@api_options(quiet="the revision numbers only")
def revisions(job_name: str, limit: int, cursor: str | None) -> None:
    """List the revisions of a job: who changed what, and when."""
    with connect() as client:
        page = client.list_revisions(job_name).gather(limit, cursor)
    output.print_page(page, REVISIONS, "There are no revisions.", identity="revision")


@command(job, "diff", examples=("detent job diff report", "detent job diff report 3", "detent job diff report 3 7"))
@argument
@click.argument("numbers", metavar="[REVISION] [REVISION]", nargs=-1)
@api_options(quiet="the names of the changed fields only")
def diff(job_name: str, numbers: tuple[str, ...]) -> None:
    """Show what changed between two revisions of a job.

    Without numbers: the last change. With one: from that revision to the
    current one.
    """
    if len(numbers) > 2:
        raise UsageError("A difference is between two revisions: give at most two numbers.")
    asked = [read_number("REVISION", number, 1) for number in numbers]
    with connect() as client:
        present = client.get_job(job_name)
        last = asked[1] if len(asked) > 1 else present["revision"]
        first = asked[0] if asked else last - 1
        if first < 1:
            output.say(f"{present['name']} has not been changed since it was created.")
            return
        before, after = (client.get_revision(present["id"], number)["definition"] for number in (first, last))
    output.say(f"Revision {first} to {last} of {present['name']}:")
    _print_differences(_or_refuse(before, first), _or_refuse(after, last))


def _print_differences(before: Item, after: Item) -> None:
    from detent.cli.apply_plan import value_text
    from detent.declarative.plan import differences_between

    found = differences_between(before, after)
    if invocation().format == "json":
        output.print_json([_as_document(one) for one in found])
        return
    if invocation().format == "quiet":
        output.print_lines((one.path,) for one in found)
        return
    for one in found:
        was = value_text(one.before) if one.has_before else "nothing"
        now = value_text(one.after) if one.has_after else "nothing"
        print(clean(f"{one.path}: {was} → {now}"))


def _as_document(difference: Difference) -> dict[str, object]:
    document: dict[str, object] = {"path": difference.path}
    if difference.has_before:
        document["before"] = difference.before
    if difference.has_after:
        document["after"] = difference.after
    return document


@command(job, "rollback", examples=("detent job rollback report 3", "detent job rollback report 3 --dry-run"))
@argument
@click.argument("number", metavar="REVISION")
@option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@api_options(quiet="the job's id only")
def rollback(job_name: str, number: str, dry_run: bool, yes: bool) -> int:
    """Restore an earlier revision of a job, as a new revision."""
    revision = read_number("REVISION", number, 1)
    with connect() as client:
        found = client.get_job(job_name)
        wanted = client.get_revision(found["id"], revision)["definition"]
        if dry_run:
            report_changes(found, _or_refuse(wanted, revision), "Would change")
            return 0
        instead = f"detent job rollback {shlex.quote(job_name)} {revision} --yes"
        if not output.agreed(yes, f"Restore revision {revision} of {found['name']}?", instead):
            output.say("Nothing was changed.")
            return 1
        answer = client.roll_back_job(found["id"], revision)
    report_changes(found, answer, "Changed")
    output.print_for_machines(answer)
    return 0


def _or_refuse(definition: Item | None, revision: int) -> Item:
    if definition is None:
        raise UsageError(f"Revision {revision} was written by another version of detent and cannot be read.")
    return definition
