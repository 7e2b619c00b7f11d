"""A job never ran after a node was lost: who should have fired it, who should have run it, and what the ledger says."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

from detent.cli import times
from detent.cli.doctor.cluster import check_nodes, check_partitions
from detent.cli.doctor.findings import Case, number, some
from detent.cli.doctor.silent import check_jobs
from detent.store import sql

SINCE = timedelta(days=7)
OVERDUE = timedelta(seconds=10)
PATIENCE = timedelta(minutes=1)

REASONS = {
    "merged": "Several ticks were missed and only the latest ran, as missed_window RUN_ONCE says.",
    "grace": "They came too late: raise misfire_grace_seconds if they should run all the same.",
    "policy": "They were missed, and missed_window SKIP says that such ticks do not run.",
    "limit": "More were missed than max_missed lets run: raise it if more should run.",
    "dropped": "Somebody dropped what was left of a catch-up.",
    "overlap": "The run before was not over: make it faster, or let runs overlap with concurrent_policy ALLOW.",
    "paused": "The job was paused while they were due.",
    "edited": "The schedule was changed while they were due.",
    "deleted": "The job was deleted while they were due.",
}


async def tell(case: Case) -> None:
    await case.look("nodes, and those that were lost", partial(_nodes, case))
    await case.look("partitions without a leader", partial(_partitions, case))
    await case.look("ticks that are due and have not fired", partial(_overdue, case))
    await case.look("jobs that cannot be fired", partial(_silent, case))
    await case.look("runs of nodes that are gone", partial(_orphans, case))
    await case.look("runs that wait for a worker", partial(waiting, case))
    await case.look("ticks of the last 7 days that did not run", partial(_not_run, case))
    await case.look("room for history", partial(_history, case))


async def _nodes(case: Case) -> None:
    for finding in check_nodes(await case.doctor.ask(sql.doctor.NODES)):
        if finding.status != "ok" and finding.check in ("nodes", "lost node"):
            case.add(finding.status, finding.found, finding.advice)


async def _partitions(case: Case) -> None:
    finding = check_partitions(await case.doctor.one(sql.doctor.PARTITIONS), await case.doctor.ask(sql.doctor.NODES))
    if finding.status != "ok":
        case.add(finding.status, finding.found, finding.advice)


async def _overdue(case: Case) -> None:
    row = await case.doctor.one(sql.doctor.OVERDUE, OVERDUE, case.number)
    if row["ticks"]:
        since = times.relative(times.written(row["oldest"]), times.now())
        where = number(row["partitions"], "partition")
        told = f"{number(row['ticks'], 'tick', 'are')} overdue in {where}, the oldest {since}."
        case.add("fail", told, "If a scheduler is alive and this does not shrink, read its log and restart it.")


async def _silent(case: Case) -> None:
    for finding in await check_jobs(case.doctor, case.number):
        if finding.status != "ok":
            case.add(finding.status, finding.found, finding.advice)


async def _orphans(case: Case) -> None:
    row = await case.doctor.one(sql.doctor.ORPHANS, case.number)
    if row["runs"]:
        since = times.relative(times.written(row["oldest"]), times.now())
        told = f"{number(row['runs'], 'run', 'are')} held by nobody alive, the oldest ready {since}."
        case.add("fail", told, "A live node gives them back within two times to live: look again, then at its log.")


async def waiting(case: Case) -> None:
    for row in await case.doctor.ask(sql.doctor.WAITING, PATIENCE, case.number):
        since = times.relative(times.written(row["oldest"]), times.now())
        names = some(row["names"], 0)
        told = (
            f"{number(row['runs'], 'run', 'wait')} in queue {row['queue']} for a worker, the oldest {since} ({names})."
        )
        case.add("fail", told, _limit_of(row["queue"]) if row["limited"] else _worker_for(row["queue"], row["needs"]))


def _limit_of(queue: str) -> str:
    return f"A limit may hold them back: see {queue} in `detent queue list` and its tenant in `detent tenant list`."


def _worker_for(queue: str, needs: str) -> str:
    option = "" if queue == "default" else f" --queue {queue}"
    if needs == "shell":
        return f"Shell jobs need a worker that may run them: detent worker --allow-shell{option}."
    if needs.startswith(("python:", "process:")):
        function = needs.partition(":")[2]
        return (
            f"No worker has {function}: detent worker --app MODULE:NAME{option}, with an app that has it. "
            "Or those that have it cannot call it for now: see `handlers` in their /readyz?verbose."
        )
    return f"Start one, or give it more room: detent worker{option} --concurrency 200."


async def _not_run(case: Case) -> None:
    for row in await case.doctor.ask(sql.doctor.NOT_RUN, SINCE, case.number):
        word = "skipped" if row["status"] == 4 else "missed"
        why = row["reason"] or "no reason given"
        names = some(row["names"], 0)
        since = times.relative(times.written(row["latest"]), times.now())
        told = f"{number(row['ticks'], 'tick')} {word}: {why} ({names}; the latest {since})."
        case.add("warn", told, REASONS.get(why.partition(":")[0], "See them with `detent run list --status missed`."))


async def _history(case: Case) -> None:
    row = await case.doctor.one(sql.doctor.HISTORY_DAYS)
    if row["ahead"] < 1:
        told = "There is no table for the history of tomorrow, so runs could not be recorded."
        case.add("fail", told, "A live node makes them a week ahead: start one.")
