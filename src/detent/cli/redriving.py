"""Dead runs brought back: some by their ids, or all of them, a thousand at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from detent.cli import output
from detent.cli.progress import Progress
from detent.cli.session import session
from detent.errors import Conflict

if TYPE_CHECKING:
    from detent.client import Client

MOST_AT_ONCE = 1000
MOST_COUNTED = 10_000
WHY = {"not dead": "is not dead", "overlap": "has to wait: a run of its job is still under way"}


def redrive_some(client: Client, ids: Sequence[str], dry_run: bool) -> int:
    if dry_run:
        for one in ids:
            run = client.get_run(one)
            output.say(f"Run {run['id']} of {run['job']} is {run['status']}.")
        return 0
    done: dict[str, Any] = {"redriven": [], "left": []}
    for start in range(0, len(ids), MOST_AT_ONCE):
        answer = client.redrive({"runs": list(ids[start : start + MOST_AT_ONCE])})
        done = {key: done[key] + answer[key] for key in done}
    return _tell(done)


def redrive_all(client: Client, job: str | None, dry_run: bool, yes: bool) -> int:
    """All dead runs, of one job if one is named; asks first."""
    from functools import partial

    from detent.client import gather

    page = gather(partial(client.dead_letters, job=job), MOST_COUNTED)
    count = len(page["items"])
    many = f"{'more than ' if page['next_cursor'] else ''}{count} dead run{'' if count == 1 else 's'}"
    where = f" of {job}" if job else ""
    if dry_run or not count:
        output.say(f"There {'is' if count == 1 else 'are'} {many if count else 'no dead runs'}{where}.")
        return 0
    if not output.agreed(
        yes, f"Bring {many}{where} back?", f"detent dlq redrive {f'--job {job}' if job else '--all'} --yes"
    ):
        output.say("Nothing was brought back.")
        return 1
    return _tell(_all(client, job, count))


def _all(client: Client, job: str | None, count: int) -> dict[str, Any]:
    """Goes on while there are more and some of them can be brought back."""
    which: dict[str, Any] = {"all": True} | ({"job": job} if job else {})
    done: dict[str, Any] = {"redriven": [], "left": []}
    with Progress("runs", count) as progress:
        while True:
            answer = client.redrive(which)
            done["redriven"] += answer["redriven"]
            done["left"] = answer["left"]
            progress.update(len(done["redriven"]))
            if not answer["more"] or not answer["redriven"]:
                return done


def _tell(done: dict[str, Any]) -> int:
    if session().shape == "json":
        output.print_json(done)
    else:
        output.print_lines((one,) for one in done["redriven"])
    for one in done["left"]:
        output.say(f"Run {one['id']} {WHY.get(one['reason'], one['reason'])}.")
    count = len(done["redriven"])
    output.say(f"Brought {count} run{'' if count == 1 else 's'} back.")
    if done["left"] and not count:
        raise Conflict("None of these runs could be brought back.")
    return 0
