"""Complaint: a job runs twice. Checks repeated attempts, requested runs, and jobs that were registered twice."""

from __future__ import annotations

import shlex
from datetime import datetime, timedelta
from functools import partial

from detent.cli import times
from detent.cli.doctor.results import Case, number, some
from detent.domain.identity import MANUAL
from detent.store import sql

SINCE = timedelta(days=7)
# Waiting runs that are compared with history: a probe for each.
CHECKED = 50_000
KEY = "Let the target deduplicate by the idempotency key: it is the same for all attempts of a run"
LEASES = "Let the worker or the target send heartbeats, or raise the lease: that of a callback with --callback."

OUTCOMES = {
    "lost": (
        "started again because {its} node was lost",
        f"{KEY}. Where that is not possible, set delivery to at_most_once.",
    ),
    "timeout": (
        "retried after {its} timeout, while the target may still have been working",
        f"Raise timeout_seconds above the longest run. {KEY}.",
    ),
    "failed": ("retried after a failure", f"{KEY}; or set max_retries to 0."),
    "stale": (
        "reported after {its} attempt had been given up",
        "The late report was refused, but its effects in the target remain. Check that node for pauses.",
    ),
}
# Of pull workers, and of targets that report by a callback: their lease ended, and no node was lost.
OF_LEASES = {
    "lost": (
        "started again because neither a heartbeat nor {its} end came in time",
        f"{LEASES} {KEY}.",
    ),
    "stale": (
        "reported after {its} attempt had been given up",
        f"The late report was refused, but its effects in the target remain. {LEASES}",
    ),
}


async def check(case: Case) -> None:
    await case.check("runs that are both live and finished", partial(_both, case))
    await case.check("attempts of the last 7 days that were followed by another", partial(_attempts, case))
    await case.check("runs of the last 7 days that were requested by hand", partial(_repeats, case))
    await case.check("jobs that are equal except for their names", partial(_lookalikes, case))
    await case.check("jobs that run twice when the clock is set back", partial(_clock, case))


async def _both(case: Case) -> None:
    row = await case.doctor.one(sql.doctor.LIVE_AND_FINISHED, case.number, CHECKED)
    if row["runs"]:
        advice = "This is a bug in detent: keep the database unchanged and report it."
        case.add("fail", f"{number(row['runs'], 'run', 'are')} both live and finished.", advice)


async def _attempts(case: Case) -> None:
    for row in await case.doctor.ask(sql.doctor.ATTEMPTS, SINCE, case.number):
        outcomes = OUTCOMES | OF_LEASES if row["leased"] else OUTCOMES
        if row["outcome"] in outcomes:
            what, advice = outcomes[row["outcome"]]
            runs = f"{number(row['runs'], 'run', 'were')} {what.format(its='its' if row['runs'] == 1 else 'their')}"
            case.add("warn", f"{runs} ({some(row['names'], 0)}; the latest {_ago(row['latest'])}).", advice)


async def _repeats(case: Case) -> None:
    row = await case.doctor.one(sql.doctor.REPEATS, SINCE, case.number, MANUAL)
    asked = [f"{number(row[kind], f'{kind} run')}" for kind in ("repeated", "manual") if row[kind]]
    if asked:
        of = some(row["names"], 0)
        case.add(
            "ok", f"{' and '.join(asked)} ({of}; the latest {_ago(row['latest'])}), retried or triggered on purpose."
        )


async def _lookalikes(case: Case) -> None:
    for row in await case.doctor.ask(sql.doctor.LOOKALIKES, case.number):
        names = some(row["names"], row["jobs"])
        first = shlex.quote(row["names"][-1])
        case.add(
            "warn",
            f"{row['jobs']} jobs are equal except for their names, and each runs at every tick: {names}.",
            f"If they are one job, delete the others: detent job delete {first}. Use --upsert or apply.",
        )


async def _clock(case: Case) -> None:
    row = await case.doctor.one(sql.doctor.TWICE_BY_CLOCK, case.number)
    if row["jobs"]:
        names = some(row["names"], row["jobs"])
        text = f"{number(row['jobs'], 'job', 'run')} twice when the clock is set back (dst_overlap both): {names}."
        case.add("warn", text, "If that is not intended, set dst_overlap to first.")


def _ago(moment: datetime | None) -> str:
    return "never" if moment is None else times.relative(times.written(moment), times.now())
