"""Upkeep knows the backlog: what waits is kept with all it needs, and what no longer waits leaves nothing behind."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import pytest

from detent.domain.identity import RunKey
from detent.errors import Conflict
from detent.jobs import JobOperations
from detent.store import Store
from tests.support import factories

NODE = 7


@pytest.fixture
async def task(look: Any) -> int:
    await factories.add_node(look, NODE)
    return await factories.add_task(look, name="mail", key_text="{{payload.customer}}")


async def enqueue(look: Any, *runs: dict[str, Any], name: str = "mail") -> list[Any]:
    rows: list[Any] = await look.fetch("SELECT * FROM enqueue_many($1, $2)", name, json.dumps(runs))
    return rows


async def park(look: Any) -> None:
    await look.execute("UPDATE backlog SET parked = true WHERE keyed AND serial % 2 = 0")


async def count(look: Any, table: str) -> int:
    found: int = await look.fetchval(f"SELECT count(*) FROM {table}")
    return found


async def test_a_trigger_of_an_idle_job_takes_a_lane_in_its_own_transaction(verbs: Store, look: Any) -> None:
    job = await factories.add_job(look, None, name="report")
    job_id = await look.fetchval("SELECT id FROM jobs WHERE job = $1", job)
    key = await JobOperations(verbs).lifecycle.trigger(job_id, if_busy="refuse")
    assert await look.fetchval("SELECT serial FROM live_runs") == key.serial
    with pytest.raises(Conflict, match="maximum of unfinished runs"):
        await JobOperations(verbs).lifecycle.trigger(job_id, if_busy="refuse")
    assert await count(look, "backlog") == 0


async def test_waiting_runs_of_a_deleted_task_end_as_cancelled_also_those_that_are_parked(
    verbs: Store, look: Any, task: int
) -> None:
    await enqueue(look, *({"payload": {"customer": f"c{n % 2}"}} for n in range(6)), {"delay_seconds": 86400 * 100})
    await park(look)
    await factories.add_task(look, name="other")
    await enqueue(look, {}, name="other")
    assert await verbs.tasks.end_of_deleted_jobs() == 0
    await look.execute("UPDATE jobs SET status = 'deleted' WHERE job = $1", task)
    while await verbs.tasks.end_of_deleted_jobs():
        pass
    rows = await look.fetch("SELECT job, status, reason FROM run_history")
    assert [(row["job"], row["status"], row["reason"]) for row in rows] == [(task, 3, "job deleted")] * 7
    assert (
        await look.fetchval("SELECT count(*) FROM backlog WHERE job <> $1", task) == await count(look, "backlog") == 1
    )


async def test_upkeep_looks_for_deleted_jobs_only_while_runs_wait(verbs: Store, look: Any, task: int) -> None:
    now = await verbs.upkeep.now()
    assert not (await verbs.upkeep.due(now, timedelta(seconds=5))).backlog
    await enqueue(look, {})
    assert (await verbs.upkeep.due(now, timedelta(seconds=5))).backlog


async def test_keys_of_runs_that_have_ended_are_purged_and_others_stay(
    verbs: Store, look: Any, task: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("detent.store.tasks.PURGE_PAGE", 2)
    await enqueue(look, *({"unique_key": f"u{n}"} for n in range(5)))
    await enqueue(look, {"unique_key": "period", "unique_for_seconds": 3600})
    keep = await look.fetchval("SELECT serial FROM unique_keys WHERE key = 'u3'")
    await look.execute("DELETE FROM backlog WHERE serial <> $1", keep)
    key = RunKey(task, await look.fetchval("SELECT scheduled_at FROM backlog"), keep)
    await factories.add_live_run(look, task, key.scheduled_at, lane=40000, serial=40000)
    await look.execute(
        "INSERT INTO key_places (scope, key, place, job, lane, scheduled_at)"
        " SELECT s, 'c', n, $1, 40000 + n, $2 FROM generate_series(0, 3) n, unnest(ARRAY[$1::bigint, -1]) s",
        task, key.scheduled_at,
    )  # fmt: skip
    await look.execute(
        "INSERT INTO key_rates (scope, key, next_at) SELECT $1, 'c' || n, now() - n * interval '40 minutes'"
        " FROM generate_series(0, 4) n",
        task,
    )  # fmt: skip
    assert sum([gone async for gone in verbs.tasks.purge_keys()]) == 4 + 6 + 3
    assert [row["key"] for row in await look.fetch("SELECT key FROM unique_keys ORDER BY key")] == ["period", "u3"]
    assert await look.fetchval("SELECT array_agg(DISTINCT lane) FROM key_places") == [40000]
    assert await count(look, "key_rates") == 2


@pytest.mark.parametrize(("reason", "kept"), [("retries exhausted", True), ("discarded", False)])
async def test_a_dead_run_that_is_continued_after_the_purge_has_its_unique_key(
    verbs: Store, look: Any, task: int, reason: str, kept: bool
) -> None:
    await enqueue(look, {"unique_key": "a"})
    serial, at = await look.fetchrow("DELETE FROM backlog RETURNING serial, scheduled_at")
    await look.execute(
        "INSERT INTO run_history (job, scheduled_at, token, finished_at, serial, revision, attempt, status, reason)"
        " VALUES ($1, $2, 1, now(), $3, 1, 1, 2, $4)",
        task, at, serial, reason,
    )  # fmt: skip
    async for _ in verbs.tasks.purge_keys():
        pass
    assert await count(look, "unique_keys") == kept
    continued = await verbs.reruns.redrive([RunKey(task, at, serial)])
    await enqueue(look, {"unique_key": "a"})
    assert (len(continued.runs), await count(look, "backlog")) == (kept, 1)


async def test_a_job_keeps_its_revisions_while_runs_wait_and_is_not_purged_before_them(
    verbs: Store, look: Any, task: int
) -> None:
    await look.execute("INSERT INTO job_revisions (job, revision, definition) VALUES ($1, 1, '{}')", task)
    await look.execute(
        "UPDATE jobs SET revision = 9, status = 'deleted', updated_at = now() - interval '1 year' WHERE job = $1", task
    )
    await look.execute("UPDATE history_parts SET made_at = now(); UPDATE jobs SET since = updated_at")
    await look.execute("INSERT INTO key_rates (scope, key, next_at) VALUES ($1, 'c', now())", task)
    await look.execute("UPDATE jobs SET status = 'active' WHERE job = $1", task)
    await enqueue(look, {"payload": {"customer": "c"}})
    await look.execute("UPDATE jobs SET status = 'deleted' WHERE job = $1", task)
    for parked in (False, True):
        await look.execute("UPDATE backlog SET parked = $1", parked)
        assert [gone async for gone in verbs.leftovers.purge_revisions(1)] == [0]
        assert await verbs.retention.purge_jobs(1) == 0
    await look.execute("DELETE FROM backlog")
    assert [gone async for gone in verbs.leftovers.purge_revisions(1)] == [1]
    assert await verbs.retention.purge_jobs(1) == 1
    assert await count(look, "key_rates") == 0


async def test_a_queue_that_only_waiting_runs_use_counts_as_used(verbs: Store, look: Any, task: int) -> None:
    await enqueue(look, {"queue": "rare"})
    rare = await look.fetchval("SELECT queue FROM queues WHERE name = 'rare'")
    used: set[int] = set()
    async for some in verbs.leftovers.used():
        used |= some.get("queues", set())
    assert rare in used


async def test_a_job_that_has_ended_completes_after_its_enqueued_runs(verbs: Store, look: Any) -> None:
    job = await factories.add_job(look, None, name="once", ended=True)
    await enqueue(look, {}, name="once")
    assert await verbs.upkeep.complete_jobs() == []
    await look.execute("DELETE FROM backlog")
    assert await verbs.upkeep.complete_jobs() == [job]


async def test_payloads_that_wait_and_payloads_of_history_are_measured_as_storage(
    verbs: Store, look: Any, task: int
) -> None:
    await look.execute("UPDATE tenants SET max_storage_bytes = 1 WHERE tenant = 1")
    sizes = [[size async for size in verbs.tenants.measure_storage(1)][-1]]
    noise = await look.fetchval("SELECT string_agg(md5(n::text), '') FROM generate_series(1, 1000) n")
    await enqueue(look, {"payload": noise}, {"payload": {"customer": "c", "noise": noise}})
    await park(look)
    sizes.append([size async for size in verbs.tenants.measure_storage(1)][-1])
    await look.execute("UPDATE jobs SET status = 'deleted' WHERE job = $1", task)
    while await verbs.tasks.end_of_deleted_jobs():
        pass
    sizes.append([size async for size in verbs.tenants.measure_storage(1)][-1])
    await look.execute("UPDATE tenants SET max_storage_bytes = NULL WHERE tenant = 1")
    assert sizes[1] - sizes[0] > 30_000 and sizes[2] - sizes[0] > 30_000


async def test_the_archive_has_key_and_payload_also_where_a_partition_lacks_their_columns(
    verbs: Store, look: Any, task: int
) -> None:
    from detent.store.retention import Part

    at = datetime.fromisoformat("2020-01-01T00:00:00+00:00")
    await look.execute("CREATE TABLE newer (LIKE run_history INCLUDING DEFAULTS)")
    await look.execute(
        "INSERT INTO newer (job, scheduled_at, token, finished_at, serial, revision, attempt, status, key, payload)"
        " VALUES ($1, $2, 1, $2, 0, 1, 1, 1, 'c1', '{\"n\": 1}')",
        task, at,
    )  # fmt: skip
    await look.execute("CREATE TABLE older AS SELECT * FROM newer; ALTER TABLE older DROP key, DROP payload")
    try:
        for name, found in (("newer", ("c1", {"n": 1})), ("older", (None, None))):
            part = Part(1, "run_history", name, at, False, "detached")
            ((line,),) = [page async for page in verbs.retention.lines(part)]
            row = json.loads(line)
            assert (row["concurrency_key"], row["payload"]) == found
    finally:
        await look.execute("DROP TABLE newer, older")
