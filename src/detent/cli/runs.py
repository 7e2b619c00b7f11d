"""`detent run …`"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from detent.cli import output, times
from detent.cli.base import F, command, group, option
from detent.cli.failures import TimedOut
from detent.cli.invocation import api_options, complete_job, complete_run, connect, invocation, read_number
from detent.cli.mistaken_ids import perhaps_a_job
from detent.cli.output import Item
from detent.cli.run_view import COLUMNS, history_columns, progress_text, show
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
NOTE_SECONDS = 1.0
# Sentences that differ only behind this say the same with another time or number.
SAME_CHARACTERS = 25

run = group("run", "List, wait for, retry and cancel runs.", panel="Jobs and runs")
argument = click.argument("run_id", metavar="RUN", shell_complete=complete_run)


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


def period_options(function: F) -> F:
    """--since and --until, as instants."""
    read = read_past
    until = option("--until", metavar="TIME", callback=read, help="Only ticks before this time, such as 30m (ago).")
    since = option(
        "--since",
        metavar="TIME",
        callback=read,
        help="Only ticks from this time on, such as 1h (ago), yesterday or 2030-01-31T12:00:00Z.",
    )
    return since(until(function))


def read_past(context: click.Context, parameter: click.Parameter, text: str | None) -> datetime | None:
    return None if text is None else times.read_moment(parameter.opts[0], text, ahead=False)


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
    examples=("detent run list", "detent run list --job report --status dead --since 1h", "detent run list --watch"),
)
@option("--job", metavar="JOB", shell_complete=complete_job, help="Only runs of this job, by name or id.")
@status_option
@period_options
@search_option("status:dead job:report")
@paging_options
@watch_option
@api_options(quiet="ids only")
def list_runs(
    job: str | None,
    status: tuple[str, ...],
    since: datetime | None,
    until: datetime | None,
    search: str | None,
    limit: int,
    cursor: str | None,
    watch: bool,
) -> None:
    """List runs, the latest first."""
    columns = history_columns() if job else COLUMNS
    with connect() as client:
        runs = client.list_runs(job, search=search, status=status, since=since, until=until)
        if watch:
            watching(runs.page, limit, columns, NO_RUNS)
        else:
            output.print_page(runs.gather(limit, cursor), columns, NO_RUNS)


@command(run, "get", examples=("detent run get 0192f4c8-8c00-7000-8000-000000000007",))
@argument
@api_options(quiet="the run's id only")
def get(run_id: str) -> None:
    """Show one run with its attempts and its result."""
    with connect() as client, perhaps_a_job(client, run_id):
        show(client.get_run(run_id))


@command(run, "explain", examples=("detent run explain 0192f4c8-8c00-7000-8000-000000000007",))
@argument
@api_options(quiet="the run's status only")
def explain(run_id: str) -> None:
    """Explain what happened to a run, or what it waits for."""
    with connect() as client, perhaps_a_job(client, run_id):
        answer = client.explain_run(run_id)
    match invocation().format:
        case "json":
            output.print_json(answer)
        case "quiet":
            output.print_lines([(answer["status"],)])
        case _:
            for sentence in answer["sentences"]:
                print(clean(sentence))


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


class WaitNote:
    """Says on stderr what a run waits for, once it has waited for a moment, and again when that has changed; and the
    progress that it reports."""

    def __init__(self) -> None:
        self._from = time.monotonic() + NOTE_SECONDS
        self._said = ""
        self._progress: Item | None = None

    def say_of(self, answer: Item) -> None:
        self._say_wait(answer)
        progress = answer.get("progress")
        if progress and progress != self._progress and invocation().format == "text":
            self._progress = progress
            output.say(clean(progress_text(progress)))

    def _say_wait(self, answer: Item) -> None:
        text = str(answer.get("waiting_for") or "")
        beginning = text[:SAME_CHARACTERS]
        if text and beginning != self._said and time.monotonic() >= self._from:
            self._said = beginning
            output.say(f"Run {answer['id']} is {answer['status']}. {text}")


def _until_over(client: JsonClient, run_id: str, deadline: float | None) -> dict[str, Any]:
    """The run when it has finished, or at the deadline. Polls often at first, then once a second."""
    pause = threading.Event()
    delay, note = FIRST_POLL_SECONDS, WaitNote()
    while True:
        answer = client.get_run(run_id)
        note.say_of(answer)
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
