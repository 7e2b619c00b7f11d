"""`--filter` on the verbs of a job: apply them to all matching jobs, after counting these and asking."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import click

from detent.cli import output, times
from detent.cli.base import option
from detent.cli.invocation import complete_job, connect, invocation
from detent.cli.progress import Progress
from detent.domain.counts import plural
from detent.errors import UsageError

if TYPE_CHECKING:
    from detent.contract.job import BulkAction
PAUSE_OPTIONS = ("reason", "until", "on_resume")
DONE = {
    "pause": "Paused",
    "resume": "Resumed",
    "delete": "Deleted",
    "retry": "Retried the dead run of",
    "cancel": "Cancelled the runs of",
}
WOULD = {
    "pause": "pause",
    "resume": "resume",
    "delete": "delete",
    "retry": "retry the dead run of",
    "cancel": "cancel the runs of",
}


def or_many(action: str, *, asks: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a verb about one job the option --filter. `asks`: the verb has --dry-run and --yes for one job too."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def verb(job_name: str | None, search: str | None, dry_run: bool, yes: bool, **rest: Any) -> Any:
            if (job_name is None) == (search is None):
                raise UsageError("Which jobs? Give JOB, or --filter TEXT for all that match.")
            if search is not None:
                return change_many(action, search, dry_run, yes, rest)
            if asks:
                return function(job_name, dry_run=dry_run, yes=yes, **rest)
            if dry_run:
                raise UsageError("--dry-run needs --filter: it counts the matching jobs.")
            return function(job_name, **rest)

        made: Callable[..., Any] = option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")(verb)
        made = option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")(made)
        made = option(
            *("--filter", "search"),
            metavar="TEXT",
            help="All jobs that match, such as 'tag:nightly'; 'name:*' matches every job.",
        )(made)
        return click.argument("job_name", metavar="[JOB]", required=False, shell_complete=complete_job)(made)

    return add


def change_many(action: str, search: str, dry_run: bool, yes: bool, rest: dict[str, Any]) -> int:
    given = [f"--{name.replace('_', '-')}" for name, value in rest.items() if value and name not in PAUSE_OPTIONS]
    if given:
        raise UsageError(f"{given[0]} is for one job: leave it out with --filter.")
    pause = {name: rest[name] for name in PAUSE_OPTIONS if rest.get(name)}
    if "until" in pause:
        pause["until"] = times.read_moment("--until", pause["until"], ahead=True)
    with connect() as client:
        change = functools.partial(client.change_jobs_chunk, cast("BulkAction", action), search, **pause)
        count, sample = _counted(change)
        if dry_run or not count:
            return _print_count(action, search, count, sample)
        instead = f"detent job {action} --filter {shlex.quote(search)} --yes"
        if not output.agreed(yes, _question(action, search, count, sample), instead):
            output.say("Nothing was changed.")
            return 1
        matched, changed = _apply(change, count)
    output.say(f"{DONE[action]} {_jobs(changed)}{_left(matched - changed)}.")
    if invocation().format == "json":
        output.print_json({"action": action, "filter": search, "matched": matched, "changed": changed})
    return 0


def _counted(change: Callable[..., dict[str, Any]]) -> tuple[int, list[dict[str, Any]]]:
    count, cursor = 0, None
    sample: list[dict[str, Any]] = []
    while True:
        answer = change(dry_run=True, cursor=cursor)
        count, sample, cursor = count + answer["matched"], sample or answer["sample"], answer["next_cursor"]
        if cursor is None:
            return count, sample


def _apply(change: Callable[..., dict[str, Any]], count: int) -> tuple[int, int]:
    """Change chunk after chunk. After an interruption, the same command continues with the rest."""
    matched = changed = 0
    cursor = None
    with Progress("jobs", count) as progress:
        while True:
            answer = change(cursor=cursor)
            matched, changed, cursor = matched + answer["matched"], changed + answer["changed"], answer["next_cursor"]
            progress.update(matched)
            if cursor is None:
                return matched, changed


def _print_count(action: str, search: str, count: int, sample: list[dict[str, Any]]) -> int:
    if invocation().format == "json":
        output.print_json({"action": action, "filter": search, "dry_run": True, "matched": count, "sample": sample})
    elif invocation().format == "quiet":
        output.print_lines((job["id"],) for job in sample)
    else:
        output.say(f"Would {WOULD[action]} {_jobs(count)}{_some(count, sample)}.")
    return 0


def _question(action: str, search: str, count: int, sample: list[dict[str, Any]]) -> str:
    words = WOULD[action]
    return f"{words[0].upper()}{words[1:]} {_jobs(count)} that match {search!r}{_some(count, sample)}?"


def _some(count: int, sample: list[dict[str, Any]]) -> str:
    if not sample:
        return ""
    return f": {', '.join(job['name'] for job in sample)}{', …' if count > len(sample) else ''}"


def _jobs(count: int) -> str:
    return plural(count, "job")


def _left(count: int) -> str:
    return f"; {_jobs(count)} had changed in the meantime" if count else ""
