"""A job runs twice: attempts that had begun, runs that were asked for, jobs that were registered twice."""

from __future__ import annotations

import shlex
from datetime import datetime, timedelta
from functools import partial

from detent.cli import times
from detent.cli.doctor.findings import Case, number, some
from detent.domain.identity import MANUAL
from detent.store import sql

SINCE = timedelta(days=7)
KEY = "Let the target remember the idempotency key it is given: it is the same for all attempts of a run"

OUTCOMES = {
    "lost": (
        "started again because the node that ran them was lost",
        f"{KEY}. Where that cannot be: delivery at_most_once.",
    ),
    "timeout": (
        "tried again after their time limit, while the target may still have been at it",
        f"Raise timeout_seconds above the longest run. {KEY}.",
    ),
    "failed": ("tried again after they had failed", f"{KEY}; or set max_retries to 0."),
    "stale": (
        "given a result that came after somebody else had taken it over",
        "The late result was refused; its effects in the target were not. Look for pauses of that node.",
    ),
}


async def tell(case: Case) -> None:
    await case.look("runs that are live and finished at once", partial(_both, case))
    await case.look("attempts of the last 7 days that were followed by another", partial(_attempts, case))
    await case.look("runs of the last 7 days that somebody asked for", partial(_repeats, case))
    await case.look("jobs that are the same but for their names", partial(_lookalikes, case))
    await case.look("jobs that run twice when the clock is put back", partial(_clock, case))


async def _both(case: Case) -> None:
    row = await case.doctor.one(sql.doctor.LIVE_AND_FINISHED, case.number)
    if row["runs"]:
        advice = "This should be impossible: keep the database as it is and report it."
        case.add("fail", f"{number(row['runs'], 'run', 'are')} both live and finished.", advice)


async def _attempts(case: Case) -> None:
    for row in await case.doctor.ask(sql.doctor.ATTEMPTS, SINCE, case.number):
        if row["outcome"] in OUTCOMES:
            what, advice = OUTCOMES[row["outcome"]]
            of = some(row["names"], 0)
            case.add(
                "warn", f"{number(row['runs'], 'run', 'were')} {what} ({of}; the latest {_ago(row['latest'])}).", advice
            )


async def _repeats(case: Case) -> None:
    row = await case.doctor.one(sql.doctor.REPEATS, SINCE, case.number, MANUAL)
    asked = [f"{number(row[kind], f'{kind} run')}" for kind in ("repeated", "manual") if row[kind]]
    if asked:
        of = some(row["names"], 0)
        advice = "Somebody retried or triggered them; that is meant to run again."
        case.add("ok", f"There are {' and '.join(asked)} ({of}; the latest {_ago(row['latest'])}): {advice}")


async def _lookalikes(case: Case) -> None:
    for row in await case.doctor.ask(sql.doctor.LOOKALIKES, case.number):
        names = some(row["names"], row["jobs"])
        first = shlex.quote(row["names"][-1])
        case.add(
            "warn",
            f"{row['jobs']} jobs differ in nothing but their names, and each runs at every tick: {names}.",
            f"If they are one job, delete the others: detent job delete {first}. Register by name (--upsert, apply).",
        )


async def _clock(case: Case) -> None:
    row = await case.doctor.one(sql.doctor.TWICE_BY_CLOCK, case.number)
    if row["jobs"]:
        names = some(row["names"], row["jobs"])
        told = f"{number(row['jobs'], 'job', 'run')} twice when the clock is put back, by dst_overlap both: {names}."
        case.add("warn", told, "If that is not meant, set dst_overlap to first.")


def _ago(moment: datetime | None) -> str:
    return "never" if moment is None else times.relative(times.written(moment), times.now())
