"""`detent history …`"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from detent.cli import output, times
from detent.cli.base import command, group, option
from detent.cli.invocation import api_options, complete_job, connect
from detent.cli.progress import Progress
from detent.cli.runs import status_option
from detent.domain.counts import plural
from detent.domain.text import csv_cell, visible_json
from detent.errors import UsageError

if TYPE_CHECKING:
    from detent.client.operation import JsonPages

history = group("history", "Export runs.", panel="Administration")

FORMATS = ("jsonl", "csv")
COLUMNS = (
    *("id", "job", "job_id", "scheduled_at", "status", "reason", "attempt", "started_at", "finished_at"),
    *("duration_ms", "lateness_ms", "node", "error", "result", "idempotency_key", "ticks", "until"),
)


@command(
    history,
    "export",
    examples=(
        "detent history export --from 7d > runs.jsonl",
        "detent history export --job report --from 30d --format csv > report.csv",
    ),
)
@option(
    "--from", "since", metavar="TIME", help="Ticks from this time, such as 7d, yesterday or 2030-01-31T12:00:00Z. [all]"
)
@option("--to", "until", metavar="TIME", help="Ticks before this time, such as 1h, for an hour ago. [now]")
@option("--job", metavar="JOB", shell_complete=complete_job, help="Only runs of this job, by name or id.")
@status_option
@option(
    *("--format", "kind"),
    type=click.Choice(FORMATS),
    default="jsonl",
    metavar="FORMAT",
    help="jsonl, which is one JSON object per line, or csv. [jsonl]",
)
@api_options(json="Has no effect: --format decides.")
def export(since: str | None, until: str | None, job: str | None, status: tuple[str, ...], kind: str) -> None:
    """Write runs to stdout, the latest first, one per line.

    Runs that retention has dropped are in the archive, if the server has one
    (see the setting archive_url).
    """
    start = None if since is None else times.read_moment("--from", since, ahead=False)
    end = times.now() if until is None else times.read_moment("--to", until, ahead=False)
    search = f"until:{times.written(end)}"
    if start is not None:
        if start >= end:
            raise UsageError(f"--from ({times.written(start)}) is not before --to ({times.written(end)}).")
        search = f"since:{times.written(start)} {search}"
    write = _csv() if kind == "csv" else _json_line
    with connect() as client, Progress("% of the period" if start else "runs", 100 if start else None) as progress:
        count = 0
        for page in _pages(client.list_runs(job, search=search, status=status)):
            for run in page:
                write(run)
            count += len(page)
            if page:
                progress.update(_percent(start, end, page[-1]) if start else count)
    output.say(f"Exported {plural(count, 'run')}.")


def _pages(runs: JsonPages) -> Iterator[list[dict[str, Any]]]:
    cursor = None
    while True:
        page = runs.page(cursor=cursor)
        yield page["items"]
        cursor = page["next_cursor"]
        if cursor is None:
            return


def _percent(start: datetime, end: datetime, run: dict[str, Any]) -> int:
    return round(100 * (end - datetime.fromisoformat(run["scheduled_at"])) / (end - start))


def _json_line(run: dict[str, Any]) -> None:
    print(visible_json(json.dumps(run, ensure_ascii=False)))


def _csv() -> Callable[[dict[str, Any]], None]:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(COLUMNS)
    return lambda run: writer.writerow(_cell(run[column]) for column in COLUMNS)


def _cell(value: object) -> object:
    """Neither a spreadsheet nor a terminal may obey what a target wrote."""
    if isinstance(value, dict | list):
        return visible_json(json.dumps(value, ensure_ascii=False))
    return csv_cell(value) if isinstance(value, str) else value
