"""Dead runs brought back or dealt with for good: some by their ids, or all of a kind, some at a time.

What was done shows in the runs themselves, so it can be broken off and begun again. Only runs that were dead when it
was begun are touched, or it would go on for ever with runs that die again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from detent.cli import output
from detent.cli.progress import Progress
from detent.cli.session import session
from detent.domain.pace import STEP_SECONDS, pace
from detent.errors import Conflict, UsageError

if TYPE_CHECKING:
    from detent.client.documents import Client

MOST_AT_ONCE = 1000
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 2.0
WHY = {"not dead": "is not dead", "overlap": "has to wait: a run of its job is still under way"}


class Chosen(NamedTuple):
    """Which dead runs, where they are not named by id."""

    job: str | None
    group: str | None
    every: bool

    def check(self, run_ids: Sequence[str]) -> None:
        ways = [bool(run_ids), self.job is not None or self.group is not None, self.every]
        if ways.count(True) != 1:
            raise UsageError("Say which dead runs: give their ids, or --job JOB, or --group GROUP, or --all.")

    @property
    def words(self) -> str:
        return "".join(f" of {what}{name}" for what, name in (("", self.job), ("group ", self.group)) if name)

    @property
    def flags(self) -> str:
        if self.every:
            return "--all"
        return " ".join(f"--{flag} {name}" for flag, name in (("job", self.job), ("group", self.group)) if name)

    def body(self, at: str, limit: int) -> dict[str, Any]:
        filters = {name: value for name, value in (("job", self.job), ("group", self.group)) if value}
        return {"all": True, **filters, "before": at, "limit": limit}


# --- by id ---


def redrive_some(client: Client, ids: Sequence[str], dry_run: bool) -> int:
    if dry_run:
        return _look(client, ids)
    done: dict[str, Any] = {"redriven": [], "left": []}
    for start in range(0, len(ids), MOST_AT_ONCE):
        answer = client.redrive({"runs": list(ids[start : start + MOST_AT_ONCE])})
        done = {key: done[key] + answer[key] for key in done}
    _print_runs(done)
    for one in done["left"]:
        output.say(f"Run {one['id']} {WHY.get(one['reason'], one['reason'])}.")
    _say_brought_back(len(done["redriven"]))
    if done["left"] and not done["redriven"]:
        raise Conflict("None of these runs could be brought back.")
    return 0


def discard_some(client: Client, ids: Sequence[str], dry_run: bool, yes: bool) -> int:
    if dry_run:
        return _look(client, ids)
    if not output.agreed(yes, f"Deal with {_runs(len(ids))} for good?", f"detent dlq discard {' '.join(ids)} --yes"):
        output.say("Nothing was discarded.")
        return 1
    discarded, left = 0, []
    for start in range(0, len(ids), MOST_AT_ONCE):
        answer = client.discard({"runs": list(ids[start : start + MOST_AT_ONCE])})
        discarded += answer["discarded"]
        left += answer["left"]
    for one in left:
        output.say(f"Run {one} is not dead.")
    output.say(f"Discarded {_runs(discarded)}.")
    if not discarded:
        raise Conflict("None of these runs could be discarded.")
    return 0


def _look(client: Client, ids: Sequence[str]) -> int:
    for one in ids:
        run = client.get_run(one)
        output.say(f"Run {run['id']} of {run['job']} is {run['status']}.")
    return 0


# --- all of a kind ---


def redrive_all(client: Client, chosen: Chosen, rate: float | None, dry_run: bool, yes: bool) -> int:
    """Without a rate as many as there is room for; with one until none is left."""
    count, at = _counted(client, chosen)
    if count is None or not _meant(count, chosen, dry_run, yes, "Bring", "back", "redrive"):
        return 0 if count is None or dry_run else 1
    ids: list[str] = []
    with Progress("runs", count) as progress:
        try:
            remaining = (
                _paced(client, chosen, at, rate, ids, progress) if rate else _fast(client, chosen, at, ids, progress)
            )
        except KeyboardInterrupt:
            output.say(f"Broken off after at least {_runs(len(ids))}: begin it again to go on with the others.")
            raise
    _print_runs({"redriven": ids, "remaining": remaining})
    _say_brought_back(len(ids))
    if remaining:
        output.say(f"{_runs(remaining)} still dead: their jobs have no room now. `--rate` waits until they have.")
        if not ids:
            raise Conflict("None of these runs could be brought back.")
    return 0


def _fast(client: Client, chosen: Chosen, at: str, ids: list[str], progress: Progress) -> int:
    while True:
        answer = client.redrive(chosen.body(at, MOST_AT_ONCE))
        ids += answer["redriven"]
        progress.update(len(ids))
        if not answer["remaining"] or not answer["redriven"]:
            return int(answer["remaining"])


def _paced(client: Client, chosen: Chosen, at: str, rate: float, ids: list[str], progress: Progress) -> int:
    """Each lot is due when those before it have had their time. Time in which nothing could go is not made up for."""
    waiting = threading.Event()
    lot = pace(rate, MOST_AT_ONCE).lot
    start, pause = time.monotonic(), FIRST_PAUSE
    while True:
        answer = client.redrive(chosen.body(at, lot))
        got = len(answer["redriven"])
        ids += answer["redriven"]
        progress.update(len(ids))
        if not answer["remaining"]:
            return 0
        pause = FIRST_PAUSE if got else min(2 * pause, LONGEST_PAUSE)
        now = time.monotonic()
        start = max(start, now - len(ids) / rate - STEP_SECONDS)
        waiting.wait(max(start + len(ids) / rate - now, 0.0 if got else pause))


def discard_all(client: Client, chosen: Chosen, dry_run: bool, yes: bool) -> int:
    count, at = _counted(client, chosen)
    if count is None or not _meant(count, chosen, dry_run, yes, "Deal with", "for good", "discard"):
        return 0 if count is None or dry_run else 1
    discarded = 0
    with Progress("runs", count) as progress:
        while True:
            answer = client.discard(chosen.body(at, MOST_AT_ONCE))
            discarded += answer["discarded"]
            progress.update(discarded)
            if not answer["remaining"] or not answer["discarded"]:
                break
    output.say(f"Discarded {_runs(discarded)}.")
    return 0


def _counted(client: Client, chosen: Chosen) -> tuple[int | None, str]:
    """How many are meant, None for none, and as of when."""
    told = client.dead_groups(job=chosen.job)
    groups = [group for group in told["items"] if chosen.group in (None, group["group"])]
    count = sum(group["runs"] for group in groups)
    if count:
        return count, told["at"]
    output.say(f"There are no dead runs{chosen.words}.")
    return None, told["at"]


def _meant(count: int, chosen: Chosen, dry_run: bool, yes: bool, verb: str, how: str, command: str) -> bool:
    if dry_run:
        output.say(f"There {'is' if count == 1 else 'are'} {_dead(count)}{chosen.words}.")
        return False
    question = f"{verb} {_dead(count)}{chosen.words} {how}?"
    if output.agreed(yes, question, f"detent dlq {command} {chosen.flags} --yes"):
        return True
    output.say("Nothing was done.")
    return False


def _print_runs(done: dict[str, Any]) -> None:
    if session().shape == "json":
        output.print_json(done)
    else:
        output.print_lines((one,) for one in done["redriven"])


def _say_brought_back(count: int) -> None:
    output.say(f"Brought {_runs(count)} back.")


def _runs(count: int) -> str:
    return f"{count} run{'' if count == 1 else 's'}"


def _dead(count: int) -> str:
    return f"{count} dead run{'' if count == 1 else 's'}"
