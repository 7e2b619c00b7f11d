"""What becomes of the runs of a job that is deleted: those that wait end, those under way go on."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from detent.domain.identity import MANUAL, RunKey
from detent.domain.run import Claim
from detent.errors import NotFound
from detent.jobs import JobOperations
from detent.store import Store, sql
from detent.store.job_search import JobSearch
from detent.store.pull import Wanted
from tests.support.ends import ended_run, failed_run
from tests.support.factories import LONG_AGO, add_job, add_live_run, add_node
from tests.support.waiting import until

NODE = 11
HOUR = timedelta(hours=1)
TOKEN = 1 << 22 | 1
DELETED = (3, "job deleted")


@pytest.fixture(autouse=True)
async def nodes(look: Any) -> None:
    await add_node(look, NODE)
    await look.execute("DELETE FROM pull_leases")


async def id_of(look: Any, job: int) -> UUID:
    found: UUID = await look.fetchval("SELECT id FROM jobs WHERE job = $1", job)
    return found


async def history(look: Any) -> list[tuple[int, str | None]]:
    rows = await look.fetch("SELECT status, reason FROM run_history ORDER BY scheduled_at, serial")
    return [tuple(row) for row in rows]


async def far(look: Any) -> datetime:
    tick: datetime = await look.fetchval("SELECT date_trunc('milliseconds', now() + interval '1 hour')")
    return tick


async def open_runs(look: Any) -> int:
    count: int = await look.fetchval("SELECT count(*) FROM live_runs")
    return count


@pytest.mark.parametrize(
    "columns",
    [
        {},
        {"attempt": 3, "not_before": LONG_AGO + 100_000 * HOUR},
        {"crashes": 2},
        {"lane": -1},
        {"lane": -2},
        {"lane": 4},
    ],
    ids=["pending", "retrying", "lost", "queued", "to replace", "another lane"],
)
async def test_a_run_that_waits_ends_with_its_job(look: Any, verbs: Store, columns: dict[str, Any]) -> None:
    job = await add_job(look, await far(look))
    await add_live_run(look, job, **columns)
    await JobOperations(verbs).lifecycle.delete(await id_of(look, job))
    assert await history(look) == [DELETED]
    assert await open_runs(look) == 0
    assert not await look.fetchval("SELECT ended FROM cursors WHERE job = $1", job)


async def test_runs_of_other_jobs_stay(look: Any, verbs: Store) -> None:
    job, other = [await add_job(look, await far(look)) for _ in range(2)]
    for each in (job, other):
        await add_live_run(look, each)
    await JobOperations(verbs).lifecycle.delete(await id_of(look, job))
    assert [row["job"] for row in await look.fetch("SELECT job FROM live_runs")] == [other]


async def test_a_run_under_way_goes_on_and_is_recorded(look: Any, verbs: Store) -> None:
    job = await add_job(look, await far(look))
    await add_live_run(look, job, owner=NODE)
    await add_live_run(look, job, LONG_AGO + HOUR, lane=-1)
    await JobOperations(verbs).lifecycle.delete(await id_of(look, job))
    assert await history(look) == [DELETED]
    assert not await look.fetchval("SELECT cancel FROM live_runs")
    assert await verbs.upkeep.end_deleted() == 0
    settlement = ended_run(Claim(job, 0, LONG_AGO, 0, TOKEN, 1), LONG_AGO, LONG_AGO, 1)
    assert await verbs.live_runs.settle(NODE, [settlement]) == []
    assert await history(look) == [(1, None), DELETED]
    assert await verbs.upkeep.complete_jobs() == []
    assert await look.fetchval("SELECT status FROM jobs WHERE job = $1", job) == "deleted"
    assert not await look.fetchval("SELECT ended FROM cursors WHERE job = $1", job)


@pytest.mark.parametrize("back", ["retry", "rescue", "give back", "pull"])
async def test_a_run_that_comes_back_to_wait_ends_soon(look: Any, verbs: Store, back: str) -> None:
    job = await add_job(look, await far(look))
    await add_live_run(look, job, owner=None if back == "pull" else NODE)
    claim = Claim(job, 0, LONG_AGO, 0, TOKEN, 1)
    if back == "pull":
        worker = await verbs.pull.worker(1, "w")
        (pulled,) = await verbs.pull.claim(1, worker, Wanted("default", ("",), True), 1, timedelta(minutes=1))
        claim = pulled.claim
    await JobOperations(verbs).lifecycle.delete(await id_of(look, job))
    assert await history(look) == []
    if back == "retry":
        assert await verbs.live_runs.retry(NODE, [failed_run(claim, LONG_AGO, LONG_AGO, "failed", "no", HOUR)]) == []
    elif back == "rescue":
        await verbs.nodes.leave(NODE)
        await verbs.nodes.rescue(NODE)
    elif back == "give back":
        await verbs.live_runs.give_back(NODE, [claim])
    else:
        await look.execute("UPDATE pull_leases SET lease_until = now() - interval '1 second'")
        await verbs.pull.rescue()
    due = await verbs.upkeep.due(LONG_AGO, HOUR)
    assert due.ended, "upkeep looks for it"
    assert await verbs.upkeep.end_deleted() == 1
    assert await history(look) == [DELETED]
    assert await open_runs(look) == 0


async def test_many_jobs_deleted_at_once_leave_nothing_that_waits(look: Any, verbs: Store) -> None:
    jobs = [await add_job(look, await far(look)) for _ in range(5)]
    for number, job in enumerate(jobs):
        await add_live_run(look, job, owner=NODE if number == 0 else None)
    done = await JobOperations(verbs).bulk.apply("delete", JobSearch(), after=0, limit=10, tenant=1)
    assert done.changed == 5
    assert await history(look) == [DELETED] * 4
    assert await open_runs(look) == 1


async def test_a_concurrent_claim_keeps_its_run_and_upkeep_finds_it_later(
    look: Any, another: Any, verbs: Store
) -> None:
    job = await add_job(look, await far(look))
    await add_live_run(look, job)
    number = await id_of(look, job)
    async with another.transaction():
        assert len(await another.fetch(sql.run.CLAIM.text, NODE, 1, [1], 1, False)) == 1
        deleting = asyncio.create_task(JobOperations(verbs).lifecycle.delete(number))
        await until(lambda: look.fetchval("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"))
    await deleting
    assert await history(look) == []
    assert await look.fetchval("SELECT ended FROM cursors WHERE job = $1", job)


async def test_a_trigger_that_meets_the_deletion_starts_nothing(look: Any, another: Any, verbs: Store) -> None:
    job = await add_job(look, await far(look))
    number = await id_of(look, job)
    row = await verbs.jobs.to_change(1, number)
    assert row["job"] == job
    async with another.transaction():
        await another.fetch(sql.run.LOCK_JOB.text, job)
        triggering = asyncio.create_task(JobOperations(verbs).lifecycle.trigger(number))
        await until(lambda: look.fetchval("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"))
        await another.execute("UPDATE jobs SET status = 'deleted' WHERE job = $1", job)
    with pytest.raises(NotFound):
        await triggering
    assert await open_runs(look) == 0
    assert await look.fetchval("SELECT count(*) FROM backlog") == 0


async def test_a_completed_one_off_is_not_collected_while_a_run_of_it_waits(look: Any, verbs: Store) -> None:
    job = await add_job(look, None)
    await look.execute(
        "UPDATE jobs SET status = 'completed', collect_at = now() - interval '1 hour' WHERE job = $1", job
    )
    await add_live_run(look, job, serial=MANUAL)
    assert await JobOperations(verbs).automatic.delete_completed() == 0
    await JobOperations(verbs).runs.cancel(RunKey(job, LONG_AGO, MANUAL))
    assert await JobOperations(verbs).automatic.delete_completed() == 1


async def test_the_ledger_of_a_deleted_job_is_whole(look: Any, verbs: Store) -> None:
    """The tick that was a run is accounted for by it, and nothing is left open."""
    job = await add_job(look, await far(look))
    await add_live_run(look, job, await look.fetchval("SELECT date_trunc('milliseconds', now() - interval '1 minute')"))
    number = await id_of(look, job)
    await JobOperations(verbs).lifecycle.delete(number)
    runs, _ = await verbs.runs.list(job=number)
    assert [(run.status, run.reason) for run in runs] == [("cancelled", "job deleted")]
