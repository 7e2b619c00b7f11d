"""`detent task …`"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from detent.cli import output, times
from detent.cli.base import command, group, option
from detent.cli.document import read_payload, read_text
from detent.cli.invocation import api_options, complete_job, connect, invocation, read_number
from detent.cli.output import Column, Item
from detent.cli.runs import check_wait, paging_options, wait_for, wait_options
from detent.cli.watch import watch as watching
from detent.cli.watch import watch_option
from detent.domain.counts import plural
from detent.errors import UsageError

if TYPE_CHECKING:
    from detent.client import JsonClient

task = group("task", "Run tasks on demand: enqueue runs, and see how many wait.", panel="Jobs and runs")

AT_A_TIME = 10_000
NO_TASKS = "There are no tasks: `detent job create NAME --task --url URL` creates one."


def _count(task: Item, field: str) -> str:
    return f"{task[field]:,}{'+' if task['more'] else ''}"


def _number(title: str, field: str, *, extra: bool = False) -> Column:
    return Column(title, lambda task: task[field], lambda one, at: _count(one, field), right=True, extra=extra)


COLUMNS = (
    Column("NAME", lambda task: task["name"], least=12),
    Column("STATUS", lambda task: task["status"], status=True),
    _number("PENDING", "pending"),
    _number("READY", "ready"),
    _number("DELAYED", "delayed", extra=True),
    _number("FOR KEY", "waiting_for_key", extra=True),
    _number("RUNNING", "running"),
    Column("OLDEST", lambda task: task["oldest_ready_at"], lambda one, at: times.relative(one["oldest_ready_at"], at)),
    Column("QUEUE", lambda task: task["queue"], extra=True),
)


@command(
    task,
    "run",
    examples=(
        'detent task run send-mail --payload \'{"to": "ada@example.com"}\'',
        "detent task run send-mail --in 10m --unique-key welcome-17",
        "detent task run import --concurrency-key customer-17 --wait",
        "detent task run send-mail --file runs.jsonl",
    ),
)
@click.argument("name", shell_complete=complete_job)
@option("--payload", metavar="JSON", help="Payload of this run: JSON, @FILE or - for stdin. [the task's payload]")
@option("--in", "delay", metavar="TIME", help="Run it after this time, such as 10m. [now]")
@option("--at", metavar="TIME", help="Run it at this time, such as 10m, tomorrow 09:00 or 2030-12-24T18:00:00Z. [now]")
@option("--priority", metavar="N", help="From -100 to 100; higher first. [the task's priority]")
@option("--queue", metavar="NAME", help="The queue that it waits in. [the task's queue]")
@option("--unique-key", metavar="KEY", help="No other run if an unfinished one has this key.")
@option("--unique-for", metavar="TIME", help="With --unique-key: nor for this long, even if that run has ended.")
@option("--concurrency-key", metavar="KEY", help="Runs with the same key share the task's concurrency limits.")
@option("--file", "-f", "file", metavar="FILE", help="Many runs: one JSON object in a line; - for stdin.")
@wait_options
@api_options(quiet="the run's id only")
def run(name: str, file: str | None, wait: bool, timeout: str | None, **flags: str | None) -> None:
    """Enqueue a run of a task, or of any other job.

    A file has one run in each line, with the fields payload, at,
    delay_seconds, priority, queue, unique_key, unique_for_seconds and
    concurrency_key, all optional. Its runs are sent 10,000 at a time, each
    part all or none.
    """
    check_wait(wait, timeout)
    if file is not None:
        _check_alone(flags, wait)
        with connect() as client:
            _enqueue_file(client, name, file)
        return
    options = dict(_options(flags))
    with connect() as client:
        (enqueued,) = client.enqueue(name, **options)["items"]
        _say_enqueued(name, enqueued)
        if wait:
            wait_for(client, enqueued["id"], timeout)
        elif invocation().format == "json":
            output.print_json(enqueued)
        else:
            output.print_lines([(enqueued["id"],)])


@command(task, "list", examples=("detent task list", "detent task list --watch"))
@paging_options
@watch_option
@api_options(quiet="names only")
def list_tasks(limit: int, cursor: str | None, watch: bool) -> None:
    """List the tasks, how many of their runs wait and run, and since when."""
    with connect() as client:
        tasks = client.list_tasks()
        if watch:
            watching(tasks.page, limit, COLUMNS, NO_TASKS)
        else:
            output.print_page(tasks.gather(limit, cursor), COLUMNS, NO_TASKS, identity="name")


def _options(flags: dict[str, str | None]) -> Iterator[tuple[str, Any]]:
    if flags["delay"] is not None and flags["at"] is not None:
        raise UsageError("--in and --at are both given: give one of them.")
    if flags["unique_for"] is not None and flags["unique_key"] is None:
        raise UsageError("--unique-for is given without --unique-key: give both.")
    if (payload := flags["payload"]) is not None:
        yield "payload", read_payload(payload)
    if (at := flags["at"]) is not None:
        yield "at", times.read_moment("--at", at, ahead=True)
    if (delay := flags["delay"]) is not None:
        yield "delay_seconds", times.read_duration("--in", delay)
    if (priority := flags["priority"]) is not None:
        yield "priority", read_number("--priority", priority, -100, 100)
    if (period := flags["unique_for"]) is not None:
        yield "unique_for_seconds", times.read_duration("--unique-for", period)
    for field in ("queue", "unique_key", "concurrency_key"):
        if flags[field] is not None:
            yield field, flags[field]


def _check_alone(flags: dict[str, str | None], wait: bool) -> None:
    given = [f"--{'in' if name == 'delay' else name.replace('_', '-')}" for name, value in flags.items() if value]
    if given or wait:
        raise UsageError(f"--file and {(given or ['--wait'])[0]} are both given: write the fields into the file.")


def _enqueue_file(client: JsonClient, name: str, file: str) -> None:
    runs = _runs(file)
    items: list[Item] = []
    while part := list(islice(runs, AT_A_TIME)):
        items += client.enqueue_many(name, part)["items"]
    if not items:
        raise UsageError(f"{file} has no run: write one JSON object in each line, such as {{}}.")
    created = sum(item["created"] for item in items)
    others = len(items) - created
    kept = f"; {others:,} had a run with their unique key already" if others else ""
    output.say(f"Enqueued {plural(created, 'run')} of {name}{kept}.")
    if invocation().format == "json":
        output.print_json({"items": items})
    else:
        output.print_lines((item["id"],) for item in items)


def _runs(file: str) -> Iterator[Item]:
    source = "stdin" if file == "-" else file
    for number, line in enumerate(read_text("--file", file).split("\n"), 1):
        if not line.strip():
            continue
        try:
            run = json.loads(line)
        except ValueError as error:
            raise UsageError(f"Line {number} of {source} is not JSON ({error}).") from None
        if not isinstance(run, dict):
            raise UsageError(f"Line {number} of {source} is not an object: write a run such as {{}}.")
        yield run


def _say_enqueued(name: str, run: Item) -> None:
    if not run["created"]:
        state = "" if run["status"] is None else f" ({run['status']})"
        output.say(f"Nothing enqueued: run {run['id']}{state} has the unique key.")
        return
    due = times.relative(run["scheduled_at"], times.now())
    when = f", due {due}" if due.startswith("in ") else ""
    output.say(f"Enqueued {name}{when}: `detent run wait {run['id']}` waits for the result.")
