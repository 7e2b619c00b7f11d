"""`detent job …`: verbs that change a job or start a run."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, cast

import click

from detent.cli import output, times
from detent.cli.base import command, option
from detent.cli.bulk import or_many
from detent.cli.cron import show as show_preview
from detent.cli.document import read_payload
from detent.cli.editor import can_edit, edit_job
from detent.cli.edits import edited_fields, report_changes
from detent.cli.invocation import api_options, connect, invocation, read_number
from detent.cli.jobs import argument, job, zone_of
from detent.cli.output import Item
from detent.cli.runs import check_wait, say_started, wait_options
from detent.domain.counts import plural
from detent.domain.states import OPEN
from detent.errors import UsageError

if TYPE_CHECKING:
    from detent.client.json_client import JsonClient
    from detent.contract.job import IfBusy, OnResume

MAX_RUNS = 1_000
IF_BUSY = ("wait", "refuse")

__all__ = ["job"]  # with the verbs of `jobs.py` and of this module

# The fields that decide when a job ticks.
PREVIEWED = ("schedule", "timezone", "dst_gap", "dst_overlap", "day_match", "dialect", "starts_at", "ends_at")


@command(
    job,
    "edit",
    examples=(
        "detent job edit report",
        "detent job edit report --set timeout_seconds=10m --set priority=8",
        "detent job edit report --set target.url=https://example.com/ --unset payload",
        'detent job edit report --set schedule="0 7 * * *" --dry-run',
    ),
)
@argument
@option(
    *("--set", "assignments"),
    metavar="FIELD=VALUE",
    multiple=True,
    help="Change this field, or a part of it such as target.url; may be repeated.",
)
@option("--unset", metavar="FIELD", multiple=True, help="Reset this field to its default; may be repeated.")
@option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@api_options(quiet="the job's id only")
def edit(job_name: str, assignments: tuple[str, ...], unset: tuple[str, ...], dry_run: bool) -> None:
    """Change some fields of a job and keep the others.

    Without --set and --unset, the job opens as YAML in your editor (VISUAL or
    EDITOR). While the text is wrong, it opens again. If another client changes
    the job meanwhile, the edit is refused: run it again.
    """
    if not assignments and not unset and not can_edit():
        raise UsageError("There is nothing to change: give --set FIELD=VALUE or --unset FIELD, or set EDITOR.")
    with connect() as client:
        found = client.get_job(job_name)
        if not assignments and not unset:
            answer = edit_job(client, found, dry_run=dry_run)
        else:
            answer = _edited(client, found, edited_fields(found, assignments, unset), dry_run)
    if answer is None:
        return
    report_changes(found, answer, "Changed")
    for warning in answer["warnings"]:
        output.say(f"warning: {warning}")
    output.print_for_machines(answer)


def _edited(client: JsonClient, found: Item, fields: dict[str, Any], dry_run: bool) -> Item | None:
    if dry_run:
        report_changes(found, {**found, **fields}, "Would change")
        return None
    return client.edit_job(found["id"], fields, revision=found["revision"])


def _counts_from_end(found: Item) -> bool:
    return isinstance(found["schedule"], dict) and found["schedule"].get("after") is not None


@command(job, "next", examples=("detent job next report --count 10",))
@argument
@option("--count", "-n", default="5", metavar="N", help="How many ticks. [5]")
@api_options(quiet="their times only")
def following(job_name: str, count: str) -> None:
    """List the next ticks of a job, with the effects of DST changes."""
    number = read_number("--count", count, 1, 1000)
    with connect() as client:
        found = client.get_job(job_name)
        rules = {field: found[field] for field in PREVIEWED}
        answer = client.preview_schedule(**rules, job=found["id"], count=number)
    if invocation().format == "text" and found["schedule"] is None:
        output.say(f"{found['name']} has no schedule: its runs are enqueued.")
        return
    if invocation().format == "text" and _counts_from_end(found) and found["next_run_at"] is not None:
        earliest = times.both(found["next_run_at"], times.now(), str(found["timezone"]))
        output.say(f"{found['name']} ticks {earliest} at the earliest; later ticks depend on the end of its runs.")
        return
    if invocation().format == "text" and found["status"] != "active":
        output.say(f"{found['name']} is {found['status']}: it does not tick at these times.")
    show_preview(answer)


@command(job, "retry", examples=("detent job retry report --wait", "detent job retry --filter 'tag:billing' --dry-run"))
@or_many("retry")
@wait_options
@api_options(quiet="the new run's id only")
def retry(job_name: str, wait: bool, timeout: str | None) -> None:
    """Run the latest finished run of a job again now, as a new run.

    With --filter no new run is created: where the latest run of a matching job
    is dead, that same run is retried.
    """
    check_wait(wait, timeout)
    with connect() as client:
        say_started(client, client.retry_job(job_name), wait, timeout, "Retried")


ON_RESUME = ("skip", "once", "all")


@command(
    job,
    "pause",
    examples=(
        "detent job pause report",
        'detent job pause report --until 2h --reason "database migration"',
        "detent job pause --filter 'tag:billing' --yes",
    ),
)
@or_many("pause")
@option("--reason", metavar="TEXT", help="Reason, shown with the job.")
@option("--until", metavar="TIME", help="Resume at this time, such as 2h, tomorrow 09:00 or 2030-01-31T12:00:00Z.")
@option(
    "--on-resume",
    type=click.Choice(ON_RESUME),
    metavar="skip|once|all",
    help="Which ticks during the pause run afterwards: none, the latest, or all. [skip]",
)
@api_options(quiet="the job's id only")
def pause(job_name: str, reason: str | None, until: str | None, on_resume: str | None) -> None:
    """Pause a job until it is resumed; unfinished runs continue."""
    with connect() as client:
        zone = zone_of(client, job_name)
        end = None if until is None else times.read_moment("--until", until, ahead=True, zone=zone)
        answer = client.pause_job(job_name, reason, until=end, on_resume=cast("OnResume | None", on_resume))
    back = f"`detent job resume {shlex.quote(answer['name'])}` resumes it"
    ends = times.both(answer["paused_until"], times.now(), str(answer["timezone"]))
    output.say(f"Paused {answer['name']}" + (f" until {ends}; {back} earlier." if ends else f": {back}."))
    output.print_for_machines(answer)


@command(job, "resume", examples=("detent job resume report", "detent job resume --filter 'tag:billing' --yes"))
@or_many("resume")
@option(
    "--on-resume",
    type=click.Choice(ON_RESUME),
    metavar="skip|once|all",
    help="Which ticks during the pause run now: none, the latest, or all. [as set by the pause]",
)
@api_options(quiet="the job's id only")
def resume(job_name: str, on_resume: str | None) -> None:
    """Resume a paused job."""
    with connect() as client:
        answer = client.resume_job(job_name, cast("OnResume | None", on_resume))
    following = times.both(answer["next_run_at"], times.now(), str(answer["timezone"]))
    output.say(f"Resumed {answer['name']}; next run {following or 'none'}.")
    output.print_for_machines(answer)


@command(
    job,
    "trigger",
    examples=(
        "detent job trigger report",
        "detent job trigger report --wait --timeout 5m",
        "detent job trigger report --payload '{\"deep\": true}'",
        "detent job trigger report --if-busy refuse",
    ),
)
@argument
@option("--payload", metavar="JSON", help="Payload of this run: JSON, @FILE or - for stdin. [the job's payload]")
@option(
    "--if-busy",
    type=click.Choice(IF_BUSY),
    metavar="wait|refuse",
    default="wait",
    help="If the job has its maximum of unfinished runs: wait for one to end, or exit with code 6. [wait]",
)
@wait_options
@api_options(quiet="the run's id only")
def trigger(job_name: str, payload: str | None, if_busy: str, wait: bool, timeout: str | None) -> None:
    """Start a run of a job now; its schedule is unchanged.

    If the job has its maximum of unfinished runs, the run starts when one of
    them has ended.
    """
    check_wait(wait, timeout)
    given = () if payload is None else (read_payload(payload),)
    with connect() as client:
        started = client.trigger_job(job_name, *given, if_busy=cast("IfBusy", if_busy))
        say_started(client, started, wait, timeout, "Triggered")


@command(job, "delete", examples=("detent job delete report", "detent job delete --filter 'name:test-*' --dry-run"))
@or_many("delete", asks=True)
@api_options(quiet="the job's id only")
def delete(job_name: str, dry_run: bool, yes: bool) -> int:
    """Delete a job; its runs stay in history, and its name is free again."""
    with connect() as client:
        found = client.get_job(job_name)
        if dry_run:
            output.say(f"Would delete job {found['name']} ({found['id']}).")
            return 0
        if not output.agreed(yes, f"Delete job {found['name']}?", f"detent job delete {shlex.quote(job_name)} --yes"):
            output.say("Nothing was deleted.")
            return 1
        answer = client.delete_job(found["id"])
    output.say(f"Deleted job {found['name']}.")
    output.print_for_machines(answer or found)
    return 0


def _cancelled(client: JsonClient, job_name: str) -> dict[str, Any]:
    """A request cancels some of the runs that wait: it is repeated while there are more. A run that was asked to stop
    is in each answer until it has stopped."""
    cancelled: dict[str, None] = {}
    stopping: dict[str, None] = {}
    while True:
        answer = client.cancel_job_runs(job_name)
        cancelled |= dict.fromkeys(answer["cancelled"])
        stopping |= dict.fromkeys(answer["stopping"])
        if not answer["more"]:
            return {**answer, "cancelled": list(cancelled), "stopping": list(stopping)}


@command(
    job, "cancel", examples=("detent job cancel report --yes", "detent job cancel --filter 'queue:mail' --dry-run")
)
@or_many("cancel", asks=True)
@api_options(quiet="the ids of the runs only")
def cancel(job_name: str, dry_run: bool, yes: bool) -> int:
    """Cancel the unfinished runs of a job; running ones are asked to stop."""
    with connect() as client:
        runs = client.list_runs(job_name, status=tuple(OPEN)).gather(MAX_RUNS)["items"]
        many = (
            f"{MAX_RUNS:,} or more runs of {job_name}"
            if len(runs) >= MAX_RUNS
            else f"{plural(len(runs), 'run')} of {job_name}"
        )
        if dry_run or not runs:
            output.say(f"Would cancel {many}.")
            return 0
        if not output.agreed(yes, f"Cancel {many}?", f"detent job cancel {shlex.quote(job_name)} --yes"):
            output.say("Nothing was cancelled.")
            return 1
        answer = _cancelled(client, job_name)
    over, stopping = len(answer["cancelled"]), len(answer["stopping"])
    output.say(f"Runs of {job_name}: {over} cancelled, {stopping} asked to stop.")
    if invocation().format == "json":
        output.print_json(answer)
    else:
        output.print_lines((run,) for run in (*answer["cancelled"], *answer["stopping"]))
    return 0
