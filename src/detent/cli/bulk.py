"""`--filter` on the verbs of a job: the same for all jobs that a search finds, counted first and asked about."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable
from typing import Any

import click

from detent.cli import output, times
from detent.cli.base import option
from detent.cli.progress import Progress
from detent.cli.session import complete_job, connect, session
from detent.client.documents import Client
from detent.errors import UsageError

CHUNK = 200
SAID = ("reason", "until", "on_resume")
DONE = {
    "pause": "Paused",
    "resume": "Resumed",
    "delete": "Deleted",
    "retry": "Brought the dead run back of",
    "cancel": "Cancelled the runs of",
}
WOULD = {
    "pause": "pause",
    "resume": "resume",
    "delete": "delete",
    "retry": "bring the dead run back of",
    "cancel": "cancel the runs of",
}


def or_many(action: str, *, asks: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a verb about one job the option to be about many. `asks`: it has --dry-run and --yes for one job too."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def verb(job_name: str | None, search: str | None, dry_run: bool, yes: bool, **rest: Any) -> Any:
            if (job_name is None) == (search is None):
                raise UsageError("Say which jobs: give JOB, or --filter TEXT for all that it finds.")
            if search is not None:
                return change_many(action, search, dry_run, yes, rest)
            if asks:
                return function(job_name, dry_run=dry_run, yes=yes, **rest)
            if dry_run:
                raise UsageError("--dry-run is for --filter: it tells how many jobs there are.")
            return function(job_name, **rest)

        made: Callable[..., Any] = option("--yes", "-y", is_flag=True, help="Do not ask.")(verb)
        made = option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")(made)
        made = option(
            *("--filter", "search"),
            metavar="TEXT",
            help="All jobs that this finds, such as 'tag:nightly'; 'name:*' finds every one.",
        )(made)
        return click.argument("job_name", metavar="[JOB]", required=False, shell_complete=complete_job)(made)

    return add


def change_many(action: str, search: str, dry_run: bool, yes: bool, rest: dict[str, Any]) -> int:
    given = [f"--{name.replace('_', '-')}" for name, value in rest.items() if value and name not in SAID]
    if given:
        raise UsageError(f"{given[0]} is for one job: leave it out beside --filter.")
    said = {name: rest[name] for name in SAID if rest.get(name)}
    if "until" in said:
        said["until"] = times.read_moment("--until", said["until"], ahead=True)
    asked = {"action": action, "filter": search, **said}
    with connect() as client:
        count, sample = _counted(client, asked)
        if dry_run or not count:
            return _tell_count(action, search, count, sample)
        instead = f"detent job {action} --filter {shlex.quote(search)} --yes"
        if not output.agreed(yes, _question(action, search, count, sample), instead):
            output.say("Nothing was changed.")
            return 1
        matched, changed = _apply(client, asked, count)
    output.say(f"{DONE[action]} {_jobs(changed)}{_left(matched - changed)}.")
    if session().shape == "json":
        output.print_json({"action": action, "filter": search, "matched": matched, "changed": changed})
    return 0


def _counted(client: Client, asked: dict[str, Any]) -> tuple[int, list[dict[str, Any]]]:
    count, cursor = 0, None
    sample: list[dict[str, Any]] = []
    while True:
        answer = client.bulk({**asked, "dry_run": True, "cursor": cursor})
        count, sample, cursor = count + answer["matched"], sample or answer["sample"], answer["next_cursor"]
        if cursor is None:
            return count, sample


def _apply(client: Client, asked: dict[str, Any], count: int) -> tuple[int, int]:
    """A chunk after another. Ended halfway, it goes on from there when it is asked for again."""
    matched = changed = 0
    cursor = None
    with Progress("jobs", count) as progress:
        while True:
            answer = client.bulk({**asked, "cursor": cursor, "limit": CHUNK})
            matched, changed, cursor = matched + answer["matched"], changed + answer["changed"], answer["next_cursor"]
            progress.update(matched)
            if cursor is None:
                return matched, changed


def _tell_count(action: str, search: str, count: int, sample: list[dict[str, Any]]) -> int:
    if session().shape == "json":
        output.print_json({"action": action, "filter": search, "dry_run": True, "matched": count, "sample": sample})
    elif session().shape == "quiet":
        output.print_lines((job["id"],) for job in sample)
    else:
        output.say(f"Would {WOULD[action]} {_jobs(count)}{_some(count, sample)}.")
    return 0


def _question(action: str, search: str, count: int, sample: list[dict[str, Any]]) -> str:
    words = WOULD[action]
    return f"{words[0].upper()}{words[1:]} {_jobs(count)} that {search!r} finds{_some(count, sample)}?"


def _some(count: int, sample: list[dict[str, Any]]) -> str:
    if not sample:
        return ""
    return f": {', '.join(job['name'] for job in sample)}{', …' if count > len(sample) else ''}"


def _jobs(count: int) -> str:
    return f"{count:,} job{'' if count == 1 else 's'}"


def _left(count: int) -> str:
    return f"; {_jobs(count)} had changed meanwhile" if count else ""
