"""`detent job …`: verbs that change a job, or make it run."""

from __future__ import annotations

import shlex
from functools import partial

import click

from detent.cli import output, times
from detent.cli.base import command, option
from detent.cli.bulk import or_many
from detent.cli.cron import show as show_preview
from detent.cli.document import read_payload
from detent.cli.edits import edited_fields, said_changes
from detent.cli.jobs import argument, job
from detent.cli.runs import check_wait, say_started, wait_options
from detent.cli.session import asks_server, connect, read_number, session
from detent.domain.states import OPEN
from detent.errors import Conflict, UsageError

MOST_RUNS = 1_000

__all__ = ["job"]  # with all its verbs: those that only look, and those here

# What decides when a job ticks.
PREVIEWED = ("schedule", "timezone", "dst_gap", "dst_overlap", "day_match", "dialect", "starts_at", "ends_at")


@command(
    job,
    "edit",
    examples=(
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
@option("--unset", metavar="FIELD", multiple=True, help="Put this field back to its default; may be repeated.")
@option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@asks_server(quiet="its id only")
def edit(job_name: str, assignments: tuple[str, ...], unset: tuple[str, ...], dry_run: bool) -> None:
    """Change some fields of a job and leave the others as they are.

    Nothing is lost when somebody else changes the job at the same time: the
    edit is then refused, and can be made again.
    """
    if not assignments and not unset:
        raise UsageError("There is nothing to change: give --set FIELD=VALUE or --unset FIELD.")
    with connect() as client:
        found = client.get_job(job_name)
        fields = edited_fields(found, assignments, unset)
        if dry_run:
            said_changes(found, {**found, **fields}, "Would change")
            return
        answer = client.patch_job(found["id"], fields, found["revision"])
    said_changes(found, answer, "Changed")
    for warning in answer["warnings"]:
        output.say(f"warning: {warning}")
    output.print_for_machines(answer)


@command(job, "next", examples=("detent job next report --count 10",))
@argument
@option("--count", "-n", default="5", metavar="N", help="How many ticks. [5]")
@asks_server()
def following(job_name: str, count: str) -> None:
    """List the next ticks of a job, with what a change of the clock does."""
    number = read_number("--count", count, 1, 1000)
    with connect() as client:
        found = client.get_job(job_name)
        asked = {field: found[field] for field in PREVIEWED}
        answer = client.preview({**asked, "job": found["id"], "count": number})
    if session().shape == "people" and found["status"] != "active":
        output.say(f"{found['name']} is {found['status']}: it would tick at these times, and does not.")
    show_preview(answer)


@command(job, "retry", examples=("detent job retry report --wait", "detent job retry --filter 'tag:billing' --dry-run"))
@or_many("retry")
@wait_options
@asks_server(quiet="the new run's id only")
def retry(job_name: str, wait: bool, timeout: str | None) -> None:
    """Run the latest finished run of a job once more, at once.

    With --filter: the latest run of each job that is found, where it is dead,
    goes on as the run it is.
    """
    check_wait(wait, timeout)
    with connect() as client:
        say_started(client, client.retry_job(job_name), wait, timeout, "Run again")


ON_RESUME = ("skip", "once", "all")


@command(
    job,
    "pause",
    examples=(
        "detent job pause report",
        'detent job pause report --until 2h --reason "moving house"',
        "detent job pause --filter 'tag:billing' --yes",
    ),
)
@or_many("pause")
@option("--reason", metavar="TEXT", help="Why; shown to whoever looks at the job.")
@option("--until", metavar="TIME", help="Let it fire again at this time, or after so long, such as 2h.")
@option(
    "--on-resume",
    type=click.Choice(ON_RESUME),
    metavar="skip|once|all",
    help="What becomes of the ticks of the pause: none runs, the latest does, or all do. [skip]",
)
@asks_server(quiet="its id only")
def pause(job_name: str, reason: str | None, until: str | None, on_resume: str | None) -> None:
    """Stop a job from firing until it is resumed; runs that have begun go on."""
    end = None if until is None else times.read_moment("--until", until, ahead=True)
    with connect() as client:
        answer = client.pause_job(job_name, reason=reason, until=end, on_resume=on_resume)
    back = f"`detent job resume {shlex.quote(answer['name'])}` lets it fire again"
    ends = times.both(answer["paused_until"], times.now(), str(answer["timezone"]))
    output.say(f"Paused {answer['name']}" + (f" until {ends}; {back} before." if ends else f": {back}."))
    output.print_for_machines(answer)


@command(job, "resume", examples=("detent job resume report", "detent job resume --filter 'tag:billing' --yes"))
@or_many("resume")
@option(
    "--on-resume",
    type=click.Choice(ON_RESUME),
    metavar="skip|once|all",
    help="What becomes of the ticks of the pause. [what the pause said]",
)
@asks_server(quiet="its id only")
def resume(job_name: str, on_resume: str | None) -> None:
    """Let a paused job fire again."""
    with connect() as client:
        answer = client.resume_job(job_name, on_resume)
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
    ),
)
@argument
@option("--payload", metavar="JSON", help="What this run is given instead: JSON, @FILE or - for stdin.")
@wait_options
@asks_server(quiet="the run's id only")
def trigger(job_name: str, payload: str | None, wait: bool, timeout: str | None) -> None:
    """Start a run of a job now; its schedule goes on as before.

    Exit code 6 when it is not started, because the job runs already as often
    at once as it may.
    """
    check_wait(wait, timeout)
    body = {} if payload is None else {"payload": read_payload(payload)}
    with connect() as client:
        started = client.trigger_job(job_name, body)
        if started["status"] == "skipped":
            output.print_for_machines(started)
            raise Conflict(
                f"{started['job']} was not started: it runs already, as often at once as it may. "
                f"The run {started['id']} is on record as skipped."
            )
        say_started(client, started, wait, timeout, "Triggered")


@command(job, "delete", examples=("detent job delete report", "detent job delete --filter 'name:test-*' --dry-run"))
@or_many("delete", asks=True)
@asks_server(quiet="its id only")
def delete(job_name: str, dry_run: bool, yes: bool) -> int:
    """Delete a job; its runs stay in the history, its name is free again."""
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


@command(
    job, "cancel", examples=("detent job cancel report --yes", "detent job cancel --filter 'queue:mail' --dry-run")
)
@or_many("cancel", asks=True)
@asks_server(quiet="the ids of the runs only")
def cancel(job_name: str, dry_run: bool, yes: bool) -> int:
    """Cancel the runs of a job that are not over; running ones are told to stop."""
    from detent.client.documents import gather

    with connect() as client:
        runs = gather(partial(client.job_runs, job_name, status=tuple(OPEN)), MOST_RUNS)["items"]
        many = f"{len(runs)} run{'' if len(runs) == 1 else 's'} of {job_name}"
        if dry_run or not runs:
            output.say(f"Would cancel {many}.")
            return 0
        if not output.agreed(yes, f"Cancel {many}?", f"detent job cancel {shlex.quote(job_name)} --yes"):
            output.say("Nothing was cancelled.")
            return 1
        answer = client.cancel_runs(job_name)
    over, stopping = len(answer["cancelled"]), len(answer["stopping"])
    output.say(f"Runs of {job_name}: {over} cancelled, {stopping} told to stop.")
    if session().shape == "json":
        output.print_json(answer)
    else:
        output.print_lines((run,) for run in (*answer["cancelled"], *answer["stopping"]))
    return 0
