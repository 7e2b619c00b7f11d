"""`detent job …`"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import click

from detent.cli import output, times
from detent.cli.base import command, group, option
from detent.cli.document import SIMPLE_FIELDS, build, document_options, is_default
from detent.cli.invocation import api_options, complete_job, connect
from detent.cli.output import Column, Field, Item
from detent.cli.runs import (
    NO_RUNS,
    history_columns,
    paging_options,
    search_option,
    status_option,
)
from detent.cli.watch import watch as watching
from detent.cli.watch import watch_option
from detent.errors import UsageError

job = group("job", "Create, inspect and control jobs.", panel="Jobs and runs")
ON_DEMAND = "on demand"
argument = click.argument("job_name", metavar="JOB", shell_complete=complete_job)


def schedule_text(schedule: object) -> str:
    """The schedule as one string, empty for a task."""
    if isinstance(schedule, str):
        return schedule
    if not isinstance(schedule, dict):
        return ""
    for kind, prefix in (("cron", ""), ("rrule", "RRULE:"), ("every", "every "), ("at", "")):
        if kind in schedule:
            text = str(schedule[kind])
            return text if text.startswith(prefix) else prefix + text
    return str(schedule)


def target_text(target: Item) -> str:
    match target.get("type"):
        case "http":
            return f"{target.get('method', 'POST')} {target.get('url')}"
        case "python":
            return f"python {target.get('function')}"
        case "shell":
            line = target.get("command")
            return f"shell {shlex.join(line) if isinstance(line, list) else line}"
        case other:
            return str(other)


COLUMNS = (
    Column("NAME", lambda job: job["name"], least=12),
    Column("STATUS", lambda job: job["status"], status=True),
    Column("SCHEDULE", lambda job: schedule_text(job["schedule"]) or ON_DEMAND, least=11),
    Column("ZONE", lambda job: job["timezone"], extra=True),
    Column("NEXT RUN", lambda job: job["next_run_at"], lambda job, at: times.relative(job["next_run_at"], at)),
    Column("LAST RUN", lambda job: job["last_run_at"], lambda job, at: times.relative(job["last_run_at"], at)),
    Column("LAST STATUS", lambda job: job["last_status"], status=True),
    Column("TARGET", lambda job: target_text(job["target"]), extra=True, least=20),
    Column("ID", lambda job: job["id"], extra=True),
)


SHOWN_ABOVE = frozenset({"timezone", "queue", "priority", "tags", "timeout_seconds", "max_retries", "retry_backoff"})


def fields(job: Item, at: datetime) -> Iterator[Field]:
    """A job on one sheet. Headers are named only: their values are often secrets."""
    zone = str(job["timezone"])
    written, words = schedule_text(job["schedule"]), job.get("description")
    yield Field("name", "Name", job["name"])
    yield Field("id", "Id", job["id"])
    yield Field("status", "Status", job["status"])
    yield Field("paused_reason", "Paused because", job["paused_reason"])
    yield Field("paused_by", "Paused by", job["paused_by"])
    yield Field("paused_until", "Paused until", job["paused_until"], times.both(job["paused_until"], at, zone))
    yield Field("on_resume", "On resume", job["on_resume"])
    yield Field("schedule", "Schedule", written or ON_DEMAND, f"{written} ({words})" if words and written else words)
    yield Field("description", "", words, "")
    yield Field("timezone", "Time zone", zone)
    yield Field("next_run_at", "Next run", job["next_run_at"], times.both(job["next_run_at"], at, zone))
    last = times.both(job["last_run_at"], at, zone)
    yield Field("last_run_at", "Last run", job["last_run_at"], f"{last}: {job['last_status']}" if last else "")
    yield Field("last_status", "", job["last_status"], "")
    yield Field("target", "Target", target_text(job["target"]))
    yield Field("headers", "Headers", ", ".join(job["target"].get("headers") or ()) or None)
    yield Field("tls", "Certificates", ", ".join(job["target"].get("tls") or ()) or None)
    yield Field("payload", "Payload", job["payload"])
    yield Field("queue", "Queue", job["queue"], f"{job['queue']}, priority {job['priority']}")
    yield Field("priority", "", job["priority"], "")
    yield Field("tags", "Tags", ", ".join(job.get("tags") or ()) or None)
    yield Field("owner", "Owner", job.get("owner"))
    yield Field("timeout_seconds", "Timeout", job["timeout_seconds"], times.span(job["timeout_seconds"] * 1000))
    yield Field("max_retries", "Retries", job["max_retries"], f"{job['max_retries']}, {job['retry_backoff']} backoff")
    yield from _chosen_fields(job)
    yield Field(
        "revision",
        "Revision",
        job["revision"],
        f"{job['revision']}, {times.both(job['updated_at'], at, zone)}",
    )


def _chosen_fields(job: Item) -> Iterator[Field]:
    """The rest of the job's fields, where they differ from their defaults."""
    for field in SIMPLE_FIELDS:
        value: Any = job.get(field.name)
        if field.name in SHOWN_ABOVE or is_default(field, value):
            continue
        text = times.span(value * 1000) if field.kind == "duration" else None
        if field.kind == "delays":
            text = ", ".join(f"{name}={times.span(wait * 1000)}" for name, wait in value.items())
        yield Field(field.name, field.label, ", ".join(value) if field.kind == "names" else value, text)


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
@option("--target", metavar="KIND", help="Only jobs of this kind: http, python or shell.")
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
@paging_options
@watch_option
@api_options(quiet="ids only")
def history(job_name: str, status: tuple[str, ...], limit: int, cursor: str | None, watch: bool) -> None:
    """List the runs of one job, the latest first."""
    with connect() as client:
        runs = client.list_runs(job_name, status=status)
        if watch:
            watching(runs.page, limit, history_columns(), NO_RUNS)
        else:
            output.print_page(runs.gather(limit, cursor), history_columns(), NO_RUNS)
