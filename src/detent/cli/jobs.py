"""`detent job …`"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from detent.cli import output, times
from detent.cli.base import command, group, option
from detent.cli.document import build, document_options
from detent.cli.invocation import api_options, complete_job, connect
from detent.cli.job_view import COLUMNS, fields
from detent.cli.output import Item
from detent.cli.run_view import history_columns
from detent.cli.runs import NO_RUNS, paging_options, period_options, search_option, status_option
from detent.cli.watch import watch as watching
from detent.cli.watch import watch_option
from detent.errors import UsageError

if TYPE_CHECKING:
    from detent.client import JsonClient

job = group("job", "Create, inspect and control jobs.", panel="Jobs and runs")
argument = click.argument("job_name", metavar="JOB", shell_complete=complete_job)


def zone_of(client: JsonClient, job_name: str) -> Callable[[], str]:
    """The zone of a job, asked for only where a time has none of its own."""
    return lambda: str(client.get_job(job_name)["timezone"])


def show(answer: Item) -> None:
    output.print_fields(answer, fields(answer, times.now()))


@command(
    job,
    "create",
    examples=(
        'detent job create report --cron "0 9 * * MON" --tz Europe/Berlin --url URL',
        "detent job create ping --every 15s --url URL --payload '{\"deep\": true}'",
        "detent job create send-mail --task --url URL",
        "detent job create -f job.json",
    ),
)
@click.argument("name", required=False)
@document_options
@option(
    "--upsert",
    is_flag=True,
    help="Change the job of this name if it exists; an identical job is not changed.",
)
@api_options(quiet="the new job's id only")
def create(name: str | None, upsert: bool, **flags: Any) -> None:
    """Create a job from a schedule and a target.

    A job without a schedule is a task: its runs are enqueued.
    Without NAME, the server generates one.
    """
    document = build(name, flags)
    if upsert and not document.get("name"):
        raise UsageError("--upsert needs the name of the job: give NAME.")
    with connect() as client:
        answer = client.upsert_job(document) if upsert else client.create_job(document)
        done = {"updated": "Changed", "unchanged": "No change in"}.get(client.change or "", "Created")
    output.say(f"{done} job {answer['name']}.")
    for warning in answer["warnings"]:
        output.say(f"warning: {warning}")
    show(answer)


@command(job, "list", examples=("detent job list", "detent job list --status paused -q"))
@option(
    "--status",
    type=click.Choice(["active", "paused", "completed", "deleted"]),
    metavar="STATUS",
    help="Only jobs in this status: active, paused, completed or deleted.",
)
@option("--prefix", metavar="TEXT", help="Only jobs whose name begins with this.")
@option("--tag", metavar="TAG", help="Only jobs with this tag.")
@option("--target", metavar="KIND", help="Only jobs of this kind: http, python, shell, topic or celery.")
@option("--owner", metavar="LABEL", help="Only jobs of this owner, see `detent apply`.")
@search_option("name:report tag:billing next:<1h")
@paging_options
@watch_option
@api_options(quiet="ids only")
def list_jobs(limit: int, cursor: str | None, watch: bool, **filters: Any) -> None:
    """List the jobs."""
    filtered = any(filters.values())
    empty = "No job matches." if filtered else "There are no jobs yet: create one, see `detent job create --help`."
    with connect() as client:
        jobs = client.list_jobs(**filters)
        if watch:
            watching(jobs.page, limit, COLUMNS, empty)
        else:
            output.print_page(jobs.gather(limit, cursor), COLUMNS, empty)


@command(job, "get", examples=("detent job get report", "detent job get report --json"))
@argument
@api_options(quiet="the job's id only")
def get(job_name: str) -> None:
    """Show one job, by name or id."""
    with connect() as client:
        show(client.get_job(job_name))


@command(job, "history", examples=("detent job history report --status dead",))
@argument
@status_option
@period_options
@paging_options
@watch_option
@api_options(quiet="ids only")
def history(
    job_name: str,
    status: tuple[str, ...],
    since: datetime | None,
    until: datetime | None,
    limit: int,
    cursor: str | None,
    watch: bool,
) -> None:
    """List the runs of one job, the latest first."""
    with connect() as client:
        runs = client.list_runs(job_name, status=status, since=since, until=until)
        if watch:
            watching(runs.page, limit, history_columns(), NO_RUNS)
        else:
            output.print_page(runs.gather(limit, cursor), history_columns(), NO_RUNS)
