"""Complaint: runs are stuck. Checks runs claimed for too long, runs of lost nodes, and runs that wait for a worker or
for a host that does not answer.
"""

from __future__ import annotations

from functools import partial

from detent.cli import times
from detent.cli.doctor import hosts, missing
from detent.cli.doctor.results import Case, number
from detent.store import sql


async def check(case: Case) -> None:
    await case.check("runs claimed for longer than twice their timeout", partial(_held, case))
    await case.check("runs of lost nodes", partial(_orphans, case))
    await case.check("runs that wait for a worker", partial(missing.waiting, case))
    await case.check("runs that wait for a host that does not answer", partial(hosts.waiting, case))


async def _held(case: Case) -> None:
    for row in await case.doctor.ask(sql.doctor.OVERRUNNING, case.number):
        asked = ", was asked to stop" if row["cancel"] else ""
        text = (
            f"Run {row['run']} of {row['name']} was ready {times.span(row['seconds'] * 1000)} ago, has a timeout of "
            f"{times.span(row['timeout'] * 1000)}{asked}, and is still unfinished."
        )
        advice = f"Its worker may be overloaded, or the handler does not stop: detent run cancel {row['run']} --yes."
        case.add("warn", text, advice)


async def _orphans(case: Case) -> None:
    row = await case.doctor.one(sql.doctor.ORPHANS, case.number)
    if row["runs"]:
        text = f"{number(row['runs'], 'run', 'are')} claimed by a lost node or worker."
        advice = "A live node releases them within two lease times, without manual SQL. Start a node if none is alive."
        case.add("fail", text, advice)
