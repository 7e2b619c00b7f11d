"""Every statement that writes history finds a home for its rows, and one row that has none stops no other."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from detent.domain.identity import RunKey, decode_run_id, run_id
from detent.domain.misfire import MissedRange
from detent.domain.run import Claim
from detent.domain.run_output import OutputChunk, OutputLine, encode_lines
from detent.jobs import JobOperations
from detent.store import Database, Store
from detent.store.catchups import RangeDrop, Release
from detent.store.cursors import Leap
from detent.store.db import connect
from detent.store.job_search import JobSearch
from detent.store.limits import REQUEST_LIMITS
from detent.store.pull import Report, Wanted
from detent.store.requests import StoredAnswer
from detent.store.statement import STATEMENTS
from tests.support.ends import ended_run, failed_run
from tests.support.factories import LONG_AGO, add_job, add_live_run, add_node, add_task
from tests.support.ticks import advance_of

NODE, GONE = 11, 12
HOUR = timedelta(hours=1)
TOKEN = 1 << 22 | 1


@pytest.fixture(scope="module")
def shared_url(postgres: Any) -> Any:
    with postgres.database_apart() as url:
        yield url


@pytest.fixture
async def look(shared_url: str) -> AsyncIterator[Any]:
    """A connection to a database whose history has no partition that has begun."""
    connection = await connect(shared_url, "detent", REQUEST_LIMITS)
    await connection.execute(
        "DELETE FROM live_runs; DELETE FROM backlog; DELETE FROM catchups; DELETE FROM cursors; DELETE FROM jobs;"
        " DELETE FROM nodes; DELETE FROM pull_leases; DELETE FROM skips; DELETE FROM segments"
    )
    for row in await connection.fetch("SELECT name FROM history_bounds WHERE since < now() + interval '1 day'"):
        await connection.execute(f'DROP TABLE "{row["name"]}"')
    await add_node(connection, NODE)
    await add_node(connection, GONE, evicted=True)
    yield connection
    await connection.close()


@pytest.fixture
async def verbs(shared_url: str, look: Any) -> AsyncIterator[Store]:
    database = Database(shared_url)
    await database.open()
    yield Store(database)
    await database.close()


async def id_of(look: Any, job: int) -> UUID:
    found: UUID = await look.fetchval("SELECT id FROM jobs WHERE job = $1", job)
    return found


def claim(job: int) -> Claim:
    return Claim(job, 0, LONG_AGO, 0, TOKEN, 1)


async def skipped(look: Any, verbs: Store, *, careful: bool) -> None:
    job = await add_job(look)
    await add_live_run(look, job, LONG_AGO - HOUR, owner=NODE)
    advance = advance_of(job, LONG_AGO, 1, LONG_AGO + HOUR, None)
    (exception,) = await verbs.cursors.fire(NODE, 1, False, [advance], careful=careful)
    assert exception.why == "overlap"


async def fire(look: Any, verbs: Store) -> None:
    await skipped(look, verbs, careful=False)


async def fire_careful(look: Any, verbs: Store) -> None:
    await skipped(look, verbs, careful=True)


async def miss(look: Any, verbs: Store) -> None:
    job = await add_job(look)
    (cursor,) = await verbs.cursors.load([job])
    missed = MissedRange(LONG_AGO, LONG_AGO, 1, "merged")
    assert await verbs.cursors.miss(NODE, [Leap(cursor, LONG_AGO + HOUR, LONG_AGO + HOUR, LONG_AGO, [missed])]) == {job}


async def add_catchup(look: Any, job: int) -> int:
    number: int = await look.fetchval(
        "INSERT INTO catchups (job, partition, kind, schedule, since, until, next_tick, left_over)"
        " SELECT job, 0, 'missed', schedule, $2, $2, $2, 1 FROM cursors WHERE job = $1 RETURNING catchup",
        job,
        LONG_AGO,
    )
    return number


async def catch_up(look: Any, verbs: Store) -> None:
    job = await add_job(look, await look.fetchval("SELECT now() + interval '1 hour'"))
    await look.execute("INSERT INTO skips (job, tick) VALUES ($1, $2)", job, LONG_AGO)
    number = await add_catchup(look, job)
    fates = await verbs.catchups.release(NODE, 1, [job], [Release(number, LONG_AGO, 1, None)])
    assert fates == {number: "left out"}


async def drop_catchups(look: Any, verbs: Store) -> None:
    number = await add_catchup(look, await add_job(look, None))
    dropping = RangeDrop(number, LONG_AGO, [MissedRange(LONG_AGO, LONG_AGO, 1, "deleted")])
    assert await verbs.catchups.drop([dropping]) == 1


async def settle(look: Any, verbs: Store) -> None:
    await add_live_run(look, 1, owner=NODE)
    assert await verbs.live_runs.settle(NODE, [ended_run(claim(1), LONG_AGO, LONG_AGO, 2, error="no")]) == []


async def settle_succeeded(look: Any, verbs: Store) -> None:
    await add_live_run(look, 1, owner=NODE)
    assert await verbs.live_runs.settle(NODE, [ended_run(claim(1), LONG_AGO, LONG_AGO, 1)]) == []


async def settle_lanes(look: Any, verbs: Store) -> None:
    claims = [claim(1)._replace(lane=lane, serial=lane) for lane in (0, 1)]
    for each in claims:
        await add_live_run(look, 1, owner=NODE, lane=each.lane, serial=each.serial)
    assert await verbs.live_runs.settle(NODE, [ended_run(each, LONG_AGO, LONG_AGO, 2) for each in claims]) == []


async def settle_retry(look: Any, verbs: Store) -> None:
    await add_live_run(look, 1, owner=NODE)
    assert await verbs.live_runs.retry(NODE, [failed_run(claim(1), LONG_AGO, LONG_AGO, "failed", "no", HOUR)]) == []


async def quarantine(look: Any, verbs: Store) -> None:
    await add_live_run(look, 1, owner=NODE)
    assert await verbs.live_runs.quarantine(NODE, claim(1), "no")


async def stale(look: Any, verbs: Store) -> None:
    await verbs.live_runs.record_stale(NODE, [ended_run(claim(1), LONG_AGO, LONG_AGO, 1)])


async def rescue(look: Any, verbs: Store) -> None:
    await add_live_run(look, 1, owner=GONE, once=True, started_at=LONG_AGO)
    assert [run.dead for run in await verbs.nodes.rescue(GONE)] == [True]


async def leased(look: Any, verbs: Store) -> Claim:
    job = await add_job(look, None)
    await add_live_run(look, job, once=True)
    worker = await verbs.pull.worker(1, "w")
    (pulled,) = await verbs.pull.claim(1, worker, Wanted("default", ("",), True), 1, timedelta(minutes=1))
    return pulled.claim


async def pull_settle(look: Any, verbs: Store) -> None:
    held = await leased(look, verbs)
    assert await verbs.pull.settle(1, [Report(held.key, held.token, 2, "failed", error="no")]) != [None]


async def pull_rescue(look: Any, verbs: Store) -> None:
    await leased(look, verbs)
    await look.execute("UPDATE pull_leases SET lease_until = now() - interval '1 second'")
    assert [run.dead for run in await verbs.pull.rescue()] == [True]


async def cancel(look: Any, verbs: Store) -> None:
    job = await add_job(look, None)
    await add_live_run(look, job)
    assert await JobOperations(verbs).runs.cancel(RunKey(job, LONG_AGO)) == "cancelled"


async def cancel_of_a_job(look: Any, verbs: Store) -> None:
    job = await add_job(look, None)
    await add_live_run(look, job)
    assert len((await JobOperations(verbs).lifecycle.cancel_runs(await id_of(look, job))).cancelled) == 1


async def cancel_of_many(look: Any, verbs: Store) -> None:
    await add_live_run(look, await add_job(look, None))
    assert (await JobOperations(verbs).bulk.apply("cancel", JobSearch(), after=0, limit=10, tenant=1)).changed == 1


async def promote(look: Any, verbs: Store) -> None:
    job = await add_job(look, None, lanes=-2)
    await add_live_run(look, job)
    await add_live_run(look, job, LONG_AGO + HOUR, lane=-2)
    assert await verbs.live_runs.promote()
    assert await look.fetchval("SELECT scheduled_at FROM live_runs") == LONG_AGO + HOUR


async def enqueued(look: Any) -> RunKey:
    """A run in the backlog."""
    await add_task(look, name="mail")
    key = decode_run_id(await look.fetchval("SELECT run FROM enqueue('mail')"))
    assert key is not None
    return key


async def claimed(look: Any, verbs: Store) -> Claim:
    """A run of a task, held by the node."""
    await enqueued(look)
    (run,) = (await verbs.tasks.claim(NODE, 1, await verbs.tasks.heads(None), 10)).runs
    return run


async def cancel_in_the_backlog(look: Any, verbs: Store) -> None:
    assert await JobOperations(verbs).runs.cancel(await enqueued(look)) == "cancelled"


async def cancel_with_an_idempotency_key(look: Any, verbs: Store) -> None:
    key = await enqueued(look)

    async def work() -> StoredAnswer:
        assert await JobOperations(verbs).runs.cancel(key) == "cancelled"
        return StoredAnswer(202, {}, b"")

    answer, again = await verbs.requests.once(str(key), b"0" * 32, work, tenant=1, idle=HOUR)
    assert (answer.status, again) == (202, False)


async def end_in_the_backlog(look: Any, verbs: Store) -> None:
    key = await enqueued(look)
    await look.execute("UPDATE jobs SET status = 'deleted' WHERE job = $1", key.job)
    assert await verbs.tasks.end_of_deleted_jobs() == 1


async def settle_a_task(look: Any, verbs: Store) -> None:
    run = await claimed(look, verbs)
    assert await verbs.live_runs.settle(NODE, [ended_run(run, LONG_AGO, LONG_AGO, 2, error="no")]) == []


async def settle_a_task_that_succeeded(look: Any, verbs: Store) -> None:
    assert await verbs.live_runs.settle(NODE, [ended_run(await claimed(look, verbs), LONG_AGO, LONG_AGO, 1)]) == []


async def settle_a_retry_of_a_task(look: Any, verbs: Store) -> None:
    run = await claimed(look, verbs)
    assert await verbs.live_runs.retry(NODE, [failed_run(run, LONG_AGO, LONG_AGO, "failed", "no", HOUR)]) == []


async def move_cursors(look: Any, verbs: Store) -> None:
    now: datetime = await look.fetchval("SELECT date_trunc('milliseconds', now())")
    job = await add_job(look, now - 5 * HOUR)
    await JobOperations(verbs).lifecycle.pause(await id_of(look, job))


async def end_deleted(look: Any, verbs: Store) -> None:
    job = await add_job(look, None)
    await add_live_run(look, job)
    await JobOperations(verbs).lifecycle.delete(await id_of(look, job))


async def end_deleted_by_upkeep(look: Any, verbs: Store) -> None:
    job = await add_job(look, None)
    await add_live_run(look, job, owner=NODE)
    await JobOperations(verbs).lifecycle.delete(await id_of(look, job))
    await look.execute("UPDATE live_runs SET owner = NULL")
    assert await verbs.upkeep.end_deleted() == 1


async def write_lines(look: Any, verbs: Store) -> None:
    run = str(run_id(await enqueued(look)))
    await verbs.output.add([OutputChunk(run, 1, 1, 1, 1, 1, encode_lines([OutputLine(1, 0, "info", "shop", "a")]))])


DOORS: dict[str, Callable[[Any, Store], Awaitable[None]]] = {
    "cursor/fire": fire,
    "cursor/fire_careful": fire_careful,
    "cursor/miss": miss,
    "cursor/move": move_cursors,
    "catch_up/release": catch_up,
    "catch_up/drop": drop_catchups,
    "run/settle": settle,
    "run/settle of a success": settle_succeeded,
    "run/settle_lanes": settle_lanes,
    "run/settle_retry": settle_retry,
    "run/quarantine": quarantine,
    "run/record_stale": stale,
    "run/rescue": rescue,
    "pull/settle": pull_settle,
    "pull/rescue": pull_rescue,
    "run/cancel": cancel,
    "run/cancel of a job": cancel_of_a_job,
    "run/cancel of many": cancel_of_many,
    "run/promote": promote,
    "task/cancel": cancel_in_the_backlog,
    "task/cancel with an idempotency key": cancel_with_an_idempotency_key,
    "task/cancel_of_jobs": end_in_the_backlog,
    "task/settle": settle_a_task,
    "task/settle_succeeded": settle_a_task_that_succeeded,
    "task/settle_retry": settle_a_retry_of_a_task,
    "run/end_of_deleted_jobs": end_deleted,
    "run/end_of_deleted_jobs by upkeep": end_deleted_by_upkeep,
    "output/add": write_lines,
}


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
async def test_a_missing_partition_stops_no_statement_that_writes_history(
    look: Any, verbs: Store, door: Callable[[Any, Store], Awaitable[None]]
) -> None:
    await door(look, verbs)
    counts = [await look.fetchval(f"SELECT count(*) FROM {table}") for table in ("run_history", "attempts", "run_logs")]
    assert sum(counts) > 0


def test_every_statement_that_writes_history_is_tried_here() -> None:
    writers = {
        name for name, statement in STATEMENTS.items()
        if re.search(r"INSERT INTO (run_history|attempts|run_logs)\b", statement.text)
        and not name.startswith(("bench/", "demo/"))
    }  # fmt: skip
    assert writers == DOORS.keys() & STATEMENTS.keys()


async def test_one_run_that_cannot_move_up_keeps_no_other_from_it(look: Any, verbs: Store) -> None:
    """Which constraint does not matter; here it is one of the test's own."""
    jobs = [await add_job(look, None, lanes=-2) for _ in range(5)]
    for job in jobs:
        await add_live_run(look, job)
        await add_live_run(look, job, LONG_AGO + HOUR, lane=-2)
    await look.execute(f"ALTER TABLE run_history ADD CONSTRAINT not_this CHECK (job <> {jobs[3]})")
    try:
        assert await verbs.live_runs.promote()
    finally:
        await look.execute("ALTER TABLE run_history DROP CONSTRAINT not_this")
    rows = await look.fetch("SELECT job FROM live_runs WHERE lane = -2")
    assert [row["job"] for row in rows] == [jobs[3]]


@pytest.mark.parametrize("statement", [promote, cancel], ids=lambda door: door.__name__)
async def test_a_run_that_history_knows_already_ends_all_the_same(
    look: Any, verbs: Store, statement: Callable[[Any, Store], Awaitable[None]]
) -> None:
    await settle(look, verbs)  # makes the partition
    await look.execute("ALTER TABLE jobs ALTER COLUMN job RESTART WITH 1000")
    await look.execute(
        "INSERT INTO run_history (job, scheduled_at, token, finished_at, serial, revision, attempt, status)"
        " VALUES (1000, $1, 1, now(), 0, 1, 1, 1)",
        LONG_AGO,
    )
    await statement(look, verbs)
    assert await look.fetchval("SELECT status FROM run_history WHERE job = 1000") == 1
