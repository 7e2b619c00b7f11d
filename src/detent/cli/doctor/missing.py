"""Complaint: a job never ran after a node was lost. Checks schedulers, workers and the recorded ticks."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

from detent.cli import times
from detent.cli.doctor.cluster import check_nodes, check_partitions
from detent.cli.doctor.hosts import hosts_of_skipped
from detent.cli.doctor.results import Case, number, some
from detent.cli.doctor.unfired import check_jobs
from detent.domain.job import TASK_NEEDS
from detent.domain.serving import place_of, unserved_sentence
from detent.store import sql
from detent.store.db import Row
from detent.store.nodes import unserved_of

SINCE = timedelta(days=7)
OVERDUE = timedelta(seconds=10)
PATIENCE = timedelta(minutes=1)
COUNTED = 100_000

REASONS = {
    "merged": "Several ticks were missed and only the latest ran, because missed_window is RUN_ONCE.",
    "grace": "They were later than misfire_grace_seconds: raise it if such ticks should run.",
    "policy": "They were missed, and missed_window is SKIP.",
    "limit": "More ticks were missed than max_missed allows: raise it if more should run.",
    "dropped": "An operator dropped the rest of a catch-up.",
    "overlap": "The previous run was unfinished: make it faster, or allow overlap with concurrent_policy ALLOW.",
    "paused": "The job was paused while they were due.",
    "edited": "The schedule was changed while they were due.",
    "deleted": "The job was deleted while they were due.",
}


async def check(case: Case) -> None:
    await case.check("nodes and lost nodes", partial(_nodes, case))
    await case.check("partitions without a leader", partial(_partitions, case))
    await case.check("overdue ticks", partial(_overdue, case))
    await case.check("jobs that cannot be fired", partial(_silent, case))
    await case.check("runs of lost nodes", partial(_orphans, case))
    await case.check("runs that wait for a worker", partial(waiting, case))
    await case.check("ticks of the last 7 days that did not run", partial(_not_run, case))
    await case.check("history partitions", partial(_history, case))


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
        text = f"{number(row['ticks'], 'tick', 'are')} overdue in {where}, the oldest {since}."
        case.add("fail", text, "If a scheduler is alive and this does not shrink, check its log and restart it.")


async def _silent(case: Case) -> None:
    for finding in await check_jobs(case.doctor, case.number):
        if finding.status != "ok":
            case.add(finding.status, finding.found, finding.advice)


async def _orphans(case: Case) -> None:
    row = await case.doctor.one(sql.doctor.ORPHANS, case.number)
    if row["runs"]:
        since = times.relative(times.written(row["oldest"]), times.now())
        text = f"{number(row['runs'], 'run', 'are')} claimed by a lost node, the oldest ready {since}."
        case.add("fail", text, "A live node releases them within two lease times: check again, then check its log.")


async def waiting(case: Case) -> None:
    for row in await case.doctor.ask(sql.doctor.WAITING, PATIENCE, case.number, COUNTED):
        since = times.relative(times.written(row["oldest"]), times.now())
        names = some(row["names"], 0)
        text = (
            f"{number(row['runs'], 'run', 'wait')} in queue {row['queue']} for a worker, the oldest {since} ({names})."
        )
        case.add("fail", text, await _missing_worker(case, row) or _advice(row))


async def _missing_worker(case: Case, row: Row) -> str | None:
    """What to start, if no worker serves these runs: the same sentence as in the answers of the API."""
    place = place_of(row["queue"], row["needs"])
    found = await case.doctor.ask(sql.node.LIST_UNSERVED, row["tenant"], [place.queue], [place.needs])
    return unserved_sentence(unserved_of(found[0]), tenant=row["of_tenant"]) if found else None


def _advice(row: Row) -> str:
    """Workers serve these runs, and do not claim them."""
    queue, needs = row["queue"], row["needs"].removeprefix(TASK_NEEDS)
    if row["limited"]:
        return f"A limit may delay them: see {queue} in `detent queue list` and its tenant in `detent tenant list`."
    option = "" if queue == "default" else f" --queue {queue}"
    if needs.startswith(("python:", "process:")):
        return (
            "A worker that has the function may not be able to call it now: see `handlers` in its /readyz?verbose, or "
            f"start another with detent worker --app MODULE:NAME{option}."
        )
    return (
        f"Start a worker, or raise its capacity: detent worker{option} --concurrency 200. "
        "Where detent_tenants_held_back is above 0, a tenant waits for its own runs, which hold its share of the slots."
    )


async def _not_run(case: Case) -> None:
    for row in await case.doctor.ask(sql.doctor.NOT_RUN, SINCE, case.number):
        word = "skipped" if row["status"] == 4 else "missed"
        why = row["reason"] or "no reason recorded"
        names = some(row["names"], 0)
        since = times.relative(times.written(row["latest"]), times.now())
        text = f"{number(row['ticks'], 'tick')} {word}: {why} ({names}; the latest {since})."
        advice = REASONS.get(why.partition(":")[0], "`detent run list --status missed` lists them.")
        silent = await hosts_of_skipped(case, SINCE) if why == "overlap" else []
        if silent:
            verb = "does" if len(silent) == 1 else "do"
            advice = f"{some(silent[:3], len(silent))} {verb} not answer, so runs wait: check that first. {advice}"
        case.add("warn", text, advice)


async def _history(case: Case) -> None:
    row = await case.doctor.one(sql.doctor.HISTORY_DAYS)
    if row["ahead"] < 1:
        text = "There is no history partition for tomorrow: runs could not be recorded."
        case.add("fail", text, "A live node creates partitions a week ahead: start one.")
