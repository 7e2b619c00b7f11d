"""Runs are stuck: held too long, held by nobody, or waiting for a worker that does not come."""

from __future__ import annotations

from functools import partial

from detent.cli import times
from detent.cli.doctor import missing
from detent.cli.doctor.findings import Case, number
from detent.store import sql


async def tell(case: Case) -> None:
    await case.look("runs that are held for longer than twice their time limit", partial(_held, case))
    await case.look("runs whose holder is gone", partial(_orphans, case))
    await case.look("runs that wait for a worker", partial(missing.waiting, case))


async def _held(case: Case) -> None:
    for row in await case.doctor.ask(sql.doctor.OVERRUNNING, case.number):
        asked = " and was asked to stop" if row["cancel"] else ""
        told = (
            f"Run {row['run']} of {row['name']} was ready {times.span(row['seconds'] * 1000)} ago, has a time limit of "
            f"{times.span(row['timeout'] * 1000)}{asked}, and is still held."
        )
        advice = f"Its worker may be overloaded, or the handler does not stop: detent run cancel {row['run']} --yes."
        case.add("warn", told, advice)


async def _orphans(case: Case) -> None:
    row = await case.doctor.one(sql.doctor.ORPHANS, case.number)
    if row["runs"]:
        told = f"{number(row['runs'], 'run', 'are')} held by a node or a worker that is gone."
        advice = (
            "No SQL is needed: a live node gives them back by itself within two times to live. Start one if none is."
        )
        case.add("fail", told, advice)
