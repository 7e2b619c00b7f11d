"""`detent run …`"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from detent.cli import output, times
from detent.cli.base import F, command, group, on_terminal, option
from detent.cli.failures import TimedOut
from detent.cli.invocation import api_options, complete_job, complete_run, connect, invocation, read_number
from detent.cli.output import Column, Field, Item
from detent.cli.text import clean
from detent.cli.watch import watch as watching
from detent.cli.watch import watch_option
from detent.domain.states import OPEN, RunStatus
from detent.errors import RunFailed, UsageError

if TYPE_CHECKING:
    from detent.client import JsonClient

STATUSES = tuple(str(status) for status in RunStatus)
NO_RUNS = "No run matches."
FIRST_POLL_SECONDS = 0.1
SLOWEST_POLL_SECONDS = 1.0

run = group("run", "List, wait for, retry and cancel runs.", panel="Jobs and runs")
argument = click.argument("run_id", metavar="RUN", shell_complete=complete_run)

COLUMNS = (
    Column("ID", lambda run: run["id"]),
    Column("JOB", lambda run: run["job"], least=12),
    Column("STATUS", lambda run: run["status"], status=True),
    Column("SCHEDULED", lambda run: run["scheduled_at"], lambda run, at: times.relative(run["scheduled_at"], at)),
    Column(
        "LATE",
        lambda run: run["lateness_ms"],
        lambda run, at: times.span(run["lateness_ms"]),
        extra=True,
        right=True,
    ),
    Column(
        "TOOK",
        lambda run: run["duration_ms"],
        lambda run, at: times.span(run["duration_ms"]),
        extra=True,
        right=True,
    ),
    Column("ATTEMPT", lambda run: run["attempt"], extra=True, right=True),
    Column("NOTE", lambda run: _note(run), extra=True, least=12),
)

ATTEMPT_COLUMNS = (
    Column("ATTEMPT", lambda attempt: attempt["attempt"], right=True),
    Column("OUTCOME", lambda attempt: attempt["outcome"], status=True),
    Column(
        "STARTED",
        lambda attempt: attempt["started_at"],
        lambda attempt, at: times.absolute(attempt["started_at"]),
        extra=True,
    ),
    Column("TOOK", lambda attempt: attempt["finished_at"], lambda attempt, at: _took(attempt), right=True),
    Column("NODE", lambda attempt: attempt["node"], extra=True),
    Column("ERROR", lambda attempt: attempt["error"], least=40, folds=True),
)


def _note(run: Item) -> str | None:
    note: str | None = run["error"] or run["reason"]
    return f"{run['ticks']} ticks: {note}" if run["ticks"] else note


def history_columns() -> tuple[Column, ...]:
    return tuple(column for column in COLUMNS if column.title != "JOB")


def status_option(function: F) -> F:
    return option(
        "--status",
        multiple=True,
        metavar="STATUS",
        callback=lambda context, parameter, words: tuple(_status(word) for word in words),
        shell_complete=lambda context, parameter, word: [status for status in STATUSES if status.startswith(word)],
        help=f"Only runs in this status; may be repeated: {', '.join(STATUSES)}.",
    )(function)


def _status(word: str) -> str:
    if word == "failed":  # the common word; a failed run that is retried is "retrying"
        return "dead"
    if word not in STATUSES:
        raise UsageError(f"--status is {word!r}: give one of {', '.join(STATUSES)}.")
    return word


def paging_options(function: F) -> F:
    further = option("--cursor", metavar="CURSOR", help="Continue after an earlier page.")
    limit = option(
        "--limit",
        default="50",
        metavar="N",
        callback=lambda context, parameter, text: read_number("--limit", text, 1),
        help="Maximum number of items. [50]",
    )
    return limit(further(function))


def search_option(example: str) -> Callable[[F], F]:
    return option("--search", metavar="TEXT", help=f"Only what matches, such as '{example}'.")


@command(
    run,
    "list",
    examples=("detent run list", "detent run list --job report --status dead", "detent run list --watch"),
)
@option("--job", metavar="JOB", shell_complete=complete_job, help="Only runs of this job, by name or id.")
@status_option
@search_option("status:dead job:report")
@paging_options
@watch_option
@api_options(quiet="ids only")
def list_runs(
    job: str | None, status: tuple[str, ...], search: str | None, limit: int, cursor: str | None, watch: bool
) -> None:
    """List runs, the latest first."""
    columns = history_columns() if job else COLUMNS
    with connect() as client:
        runs = client.list_runs(job, search=search, status=status)
        if watch:
            watching(runs.page, limit, columns, NO_RUNS)
        else:
            output.print_page(runs.gather(limit, cursor), columns, NO_RUNS)


@command(run, "get", examples=("detent run get 0192f4c8-8c00-7000-8000-000000000007",))
@argument
@api_options(quiet="the run's id only")
def get(run_id: str) -> None:
    """Show one run with its attempts and its result."""
    with connect() as client:
        show(client.get_run(run_id))


@command(run, "explain", examples=("detent run explain 0192f4c8-8c00-7000-8000-000000000007",))
@argument
@api_options(quiet="the run's status only")
def explain(run_id: str) -> None:
    """Explain what happened to a run, or what it waits for."""
    with connect() as client:
        answer = client.explain_run(run_id)
    match invocation().format:
        case "json":
            output.print_json(answer)
        case "quiet":
            output.print_lines([(answer["status"],)])
        case _:
            for sentence in answer["sentences"]:
                print(clean(sentence))


def show(answer: Item) -> None:
    at = times.now()
    output.print_fields(answer, fields(answer, at))
    attempts = answer.get("attempts") or []
    if invocation().format != "text" or not attempts:
        return
    if on_terminal():
        print()
        output.print_table(attempts, ATTEMPT_COLUMNS)
        for text in tracebacks(attempts):
            print(text)
    else:
        output.print_lines(("attempt", *(column.plain(item) for column in ATTEMPT_COLUMNS)) for item in attempts)


def tracebacks(attempts: list[Item]) -> Iterator[str]:
    """What failed attempts raised, each under its number; an attempt like the one before is not shown again."""
    shown = None
    for attempt in attempts:
        text = attempt.get("traceback")
        if text and text != shown:
            yield f"\nTraceback of attempt {attempt['attempt']}:\n{clean(text)}"
        elif text:
            yield f"\nTraceback of attempt {attempt['attempt']}: as before."
        shown = text or shown


def progress_text(progress: Item) -> str:
    """Such as `40 % importing`."""
    return f"{progress['fraction']:.0%}".replace("%", " %") + (f" {progress['message']}" if progress["message"] else "")


def fields(run: Item, at: datetime) -> Iterator[Field]:
    yield Field("id", "Id", run["id"])
    yield Field("job", "Job", run["job"])
    yield Field("status", "Status", run["status"])
    yield Field("reason", "Reason", run["reason"])
    yield Field("ticks", "Ticks", run["ticks"], f"{run['ticks']}, until {times.absolute(run['until'])}")
    yield Field("until", "", run["until"], "")
    yield Field("scheduled_at", "Scheduled", run["scheduled_at"], times.both(run["scheduled_at"], at))
    late = f", {times.span(run['lateness_ms'])} late" if run["lateness_ms"] is not None else ""
    yield Field("started_at", "Started", run["started_at"], times.absolute(run["started_at"]) + late)
    took = f", took {times.span(run['duration_ms'])}" if run["duration_ms"] is not None else ""
    yield Field("finished_at", "Finished", run["finished_at"], times.absolute(run["finished_at"]) + took)
    yield Field("lateness_ms", "", run["lateness_ms"], "")
    yield Field("duration_ms", "", run["duration_ms"], "")
    yield Field("attempt", "Attempt", run["attempt"])
    if run.get("progress"):
        since = times.relative(run["progress"]["at"], at)
        yield Field("progress", "Progress", run["progress"], f"{clean(progress_text(run['progress']))}, {since}")
    yield Field("node", "Node", run["node"])
    yield Field("token", "Token", run["token"])
    yield Field("idempotency_key", "Idempotency key", run["idempotency_key"])
    if "concurrency_key" in run:
        yield Field("concurrency_key", "Concurrency key", run["concurrency_key"])
    if "not_before" in run:
        yield Field("not_before", "Not before", run["not_before"], times.both(run["not_before"], at))
    if "payload" in run:
        yield Field("payload", "Payload", run["payload"])
    yield Field("result", "Result", run["result"])
    yield Field("error", "Error", run["error"])


def _took(attempt: Item) -> str:
    started, finished = times.read_instant(attempt["started_at"]), times.read_instant(attempt["finished_at"])
    if started is None or finished is None:
        return ""
    return times.span((finished - started).total_seconds() * 1000)


@command(run, "wait", examples=("detent run wait 0192f4c8-8c00-7000-8000-000000000007 --timeout 5m",))
@argument
@option("--timeout", metavar="TIME", help="Stop waiting after this time, with exit code 124. [no limit]")
@api_options(quiet="the run's id only")
def wait(run_id: str, timeout: str | None) -> None:
    """Wait until a run has finished and show it; exit code 5 unless it succeeded."""
    with connect() as client:
        wait_for(client, run_id, timeout)


def wait_for(client: JsonClient, run_id: str, timeout: str | None) -> None:
    limit = times.read_duration("--timeout", timeout) if timeout else None
    answer = _until_over(client, run_id, None if limit is None else time.monotonic() + limit)
    if answer["status"] in OPEN:
        raise TimedOut(f"Run {answer['id']} is still {answer['status']} after {limit:g} s.")
    show(answer)
    if answer["status"] != "succeeded":
        why = answer["error"] or answer["reason"]
        raise RunFailed(f"Run {answer['id']} of {answer['job']} ended {answer['status']}{f': {why}' if why else '.'}")


def _until_over(client: JsonClient, run_id: str, deadline: float | None) -> dict[str, Any]:
    """The run when it has finished, or at the deadline. Polls often at first, then once a second."""
    pause = threading.Event()
    delay = FIRST_POLL_SECONDS
    shown = None
    while True:
        answer = client.get_run(run_id)
        progress = answer.get("progress")
        if progress and progress != shown and invocation().format == "text":
            shown = progress
            output.say(clean(progress_text(progress)))
        left = None if deadline is None else deadline - time.monotonic()
        if answer["status"] not in OPEN or (left is not None and left <= 0):
            return answer
        pause.wait(delay if left is None else min(delay, left))
        delay = min(delay * 1.5, SLOWEST_POLL_SECONDS)


@command(run, "cancel", examples=("detent run cancel 0192f4c8-8c00-7000-8000-000000000007 --yes",))
@argument
@option("--dry-run", is_flag=True, help="Show what would be cancelled, and change nothing.")
@option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@api_options(quiet="the run's id only")
def cancel(run_id: str, dry_run: bool, yes: bool) -> int:
    """Cancel an unfinished run; a running one is asked to stop."""
    with connect() as client:
        found = client.get_run(run_id)
        if dry_run:
            over = "" if found["status"] in OPEN else ": there is nothing to cancel"
            output.say(f"Run {found['id']} of {found['job']} is {found['status']}{over}.")
            return 0
        question = f"Cancel run {found['id']} of {found['job']}, {found['status']}?"
        if not output.agreed(yes, question, f"detent run cancel {found['id']} --yes"):
            output.say("Nothing was cancelled.")
            return 1
        answer = client.cancel_run(found["id"])
    over = answer["status"] == "cancelled"
    output.say(f"Run {answer['id']} is {'cancelled' if over else 'asked to stop'}.")
    output.print_for_machines(answer)
    return 0


def wait_options(function: F) -> F:
    timeout = option("--timeout", metavar="TIME", help="With --wait: stop waiting after this time, with exit code 124.")
    wait = option("--wait", is_flag=True, help="Wait until the run has finished; exit code 5 unless it succeeds.")
    return wait(timeout(function))


def check_wait(wait: bool, timeout: str | None) -> None:
    if timeout and not wait:
        raise UsageError("--timeout is given without --wait: it limits the wait.")


@command(run, "retry", examples=("detent run retry 0192f4c8-8c00-7000-8000-000000000007 --wait",))
@argument
@wait_options
@api_options(quiet="the new run's id only")
def retry(run_id: str, wait: bool, timeout: str | None) -> None:
    """Run a finished run again now, as a new run of the job's current definition."""
    check_wait(wait, timeout)
    with connect() as client:
        say_started(client, client.retry_run(run_id), wait, timeout, "Retried")


def say_started(client: JsonClient, started: Item, wait: bool, timeout: str | None, done: str) -> None:
    """Report a new run, and wait for it with --wait."""
    if wait:
        output.say(f"{done} {started['job']}: run {started['id']}.")
        wait_for(client, started["id"], timeout)
        return
    output.say(f"{done} {started['job']}: `detent run wait {started['id']}` waits for the result.")
    if invocation().format == "text":
        output.print_lines([(started["id"],)])
    else:
        output.print_for_machines(started)
