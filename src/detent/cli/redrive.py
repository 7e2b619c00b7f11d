"""Retrying and discarding dead runs: by id, or all of a selection, in batches.

Progress is recorded in the runs themselves, so an interrupted command can be repeated. Only runs that were dead at the
start are touched; otherwise it would never end with runs that fail again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from detent.cli import output
from detent.cli.invocation import invocation
from detent.cli.progress import Progress
from detent.domain.counts import plural
from detent.domain.pace import STEP_SECONDS, pace
from detent.errors import Conflict, UsageError

if TYPE_CHECKING:
    from detent.client import JsonClient

BATCH = 1000
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 2.0
WHY = {"not dead": "is not dead", "overlap": "cannot start: its job has an unfinished run"}


class DeadRunSelection(NamedTuple):
    """Which dead runs, where they are not given by id."""

    job: str | None
    group: str | None
    every: bool

    def check(self, run_ids: Sequence[str]) -> None:
        ways = [bool(run_ids), self.job is not None or self.group is not None, self.every]
        if ways.count(True) != 1:
            raise UsageError("Which dead runs? Give their ids, or --job JOB, or --group GROUP, or --all.")

    @property
    def words(self) -> str:
        return "".join(f" of {what}{name}" for what, name in (("", self.job), ("group ", self.group)) if name)

    @property
    def flags(self) -> str:
        if self.every:
            return "--all"
        return " ".join(f"--{flag} {name}" for flag, name in (("job", self.job), ("group", self.group)) if name)

    def redrive(self, client: JsonClient, at: datetime, limit: int) -> dict[str, Any]:
        return client.redrive_dead_letters(job=self.job, group=self.group, before=at, limit=limit)

    def discard(self, client: JsonClient, at: datetime, limit: int) -> dict[str, Any]:
        return client.discard_dead_letters(job=self.job, group=self.group, before=at, limit=limit)


# --- by id ---


def redrive_some(client: JsonClient, ids: Sequence[str], dry_run: bool) -> int:
    if dry_run:
        return _show_status(client, ids)
    done: dict[str, Any] = {"redriven": [], "left": []}
    for start in range(0, len(ids), BATCH):
        answer = client.redrive_dead_letters(ids[start : start + BATCH])
        done = {key: done[key] + answer[key] for key in done}
    _print_runs(done)
    for one in done["left"]:
        output.say(f"Run {one['id']} {WHY.get(one['reason'], one['reason'])}.")
    _say_retried(len(done["redriven"]))
    if done["left"] and not done["redriven"]:
        raise Conflict("None of these runs could be retried.")
    return 0


def discard_some(client: JsonClient, ids: Sequence[str], dry_run: bool, yes: bool) -> int:
    if dry_run:
        return _show_status(client, ids)
    if not output.agreed(yes, f"Discard {_runs(len(ids))}?", f"detent dlq discard {' '.join(ids)} --yes"):
        output.say("Nothing was discarded.")
        return 1
    discarded, left = 0, []
    for start in range(0, len(ids), BATCH):
        answer = client.discard_dead_letters(ids[start : start + BATCH])
        discarded += answer["discarded"]
        left += answer["left"]
    for one in left:
        output.say(f"Run {one} is not dead.")
    output.say(f"Discarded {_runs(discarded)}.")
    if not discarded:
        raise Conflict("None of these runs could be discarded.")
    return 0


def _show_status(client: JsonClient, ids: Sequence[str]) -> int:
    for one in ids:
        run = client.get_run(one)
        output.say(f"Run {run['id']} of {run['job']} is {run['status']}.")
    return 0


# --- a selection ---


def redrive_all(client: JsonClient, chosen: DeadRunSelection, rate: float | None, dry_run: bool, yes: bool) -> int:
    """Without a rate, retry as many as their jobs allow now; with one, continue until none is left."""
    count, at = _counted(client, chosen)
    if count is None or not _confirmed(count, chosen, dry_run, yes, "redrive"):
        return 0 if count is None or dry_run else 1
    ids: list[str] = []
    with Progress("runs", count) as progress:
        try:
            remaining = (
                _paced(client, chosen, at, rate, ids, progress) if rate else _fast(client, chosen, at, ids, progress)
            )
        except KeyboardInterrupt:
            output.say(f"Interrupted after at least {_runs(len(ids))}: repeat the command to retry the others.")
            raise
    _print_runs({"redriven": ids, "remaining": remaining})
    _say_retried(len(ids))
    if remaining:
        output.say(f"{_runs(remaining)} still dead: their jobs have unfinished runs. `--rate` waits for those.")
        if not ids:
            raise Conflict("None of these runs could be retried.")
    return 0


def _fast(client: JsonClient, chosen: DeadRunSelection, at: datetime, ids: list[str], progress: Progress) -> int:
    while True:
        answer = chosen.redrive(client, at, BATCH)
        ids += answer["redriven"]
        progress.update(len(ids))
        if not answer["remaining"] or not answer["redriven"]:
            return int(answer["remaining"])


def _paced(
    client: JsonClient, chosen: DeadRunSelection, at: datetime, rate: float, ids: list[str], progress: Progress
) -> int:
    """Send batches at this rate. Time in which no run could be retried is not caught up."""
    waiting = threading.Event()
    lot = pace(rate, BATCH).lot
    start, pause = time.monotonic(), FIRST_PAUSE
    while True:
        answer = chosen.redrive(client, at, lot)
        got = len(answer["redriven"])
        ids += answer["redriven"]
        progress.update(len(ids))
        if not answer["remaining"]:
            return 0
        pause = FIRST_PAUSE if got else min(2 * pause, LONGEST_PAUSE)
        now = time.monotonic()
        start = max(start, now - len(ids) / rate - STEP_SECONDS)
        waiting.wait(max(start + len(ids) / rate - now, 0.0 if got else pause))


def discard_all(client: JsonClient, chosen: DeadRunSelection, dry_run: bool, yes: bool) -> int:
    count, at = _counted(client, chosen)
    if count is None or not _confirmed(count, chosen, dry_run, yes, "discard"):
        return 0 if count is None or dry_run else 1
    discarded = 0
    with Progress("runs", count) as progress:
        while True:
            answer = chosen.discard(client, at, BATCH)
            discarded += answer["discarded"]
            progress.update(discarded)
            if not answer["remaining"] or not answer["discarded"]:
                break
    output.say(f"Discarded {_runs(discarded)}.")
    return 0


def _counted(client: JsonClient, chosen: DeadRunSelection) -> tuple[int | None, datetime]:
    """How many dead runs are selected, None if there are none, and as of when."""
    answer = client.list_dead_groups(chosen.job)
    groups = [group for group in answer["items"] if chosen.group in (None, group["group"])]
    count = sum(group["runs"] for group in groups)
    if not count:
        output.say(f"There are no dead runs{chosen.words}.")
    return count or None, datetime.fromisoformat(answer["at"])


def _confirmed(count: int, chosen: DeadRunSelection, dry_run: bool, yes: bool, command: str) -> bool:
    if dry_run:
        output.say(f"There {'is' if count == 1 else 'are'} {_dead(count)}{chosen.words}.")
        return False
    verb = {"redrive": "Retry", "discard": "Discard"}[command]
    question = f"{verb} {_dead(count)}{chosen.words}?"
    if output.agreed(yes, question, f"detent dlq {command} {chosen.flags} --yes"):
        return True
    output.say("Nothing was changed.")
    return False


def _print_runs(done: dict[str, Any]) -> None:
    if invocation().format == "json":
        output.print_json(done)
    else:
        output.print_lines((one,) for one in done["redriven"])


def _say_retried(count: int) -> None:
    output.say(f"Retried {_runs(count)}.")


def _runs(count: int) -> str:
    return plural(count, "run")


def _dead(count: int) -> str:
    return plural(count, "dead run")
