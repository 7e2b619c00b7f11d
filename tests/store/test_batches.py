"""Ten thousand jobs in one call: all or none, every fault told, and by name only what is different changed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from detent.domain.job import HttpTarget, JobSpec
from detent.errors import Conflict, ManyFaults, UsageError
from detent.jobs import JobOperations, batches
from detent.jobs.batches import BatchNamesTaken, RegisteredJob
from detent.store import Store
from tests.support.waiting import until

HTTP = HttpTarget(url="http://127.0.0.1:9/")
TABLES = ("jobs", "cursors", "schedules", "queues", "job_revisions", "run_history", "live_runs")


def spec(**fields: Any) -> JobSpec:
    return JobSpec(**{"schedule": "every 1h", "target": HTTP, **fields})


def many(count: int, **fields: Any) -> list[JobSpec]:
    return [spec(name=f"n{number:05}", **fields) for number in range(count)]


def changes(told: Sequence[RegisteredJob]) -> list[str]:
    return [each.change for each in told]


async def counts(look: Any) -> dict[str, int]:
    return {table: await look.fetchval(f"SELECT count(*) FROM {table}") for table in TABLES}


async def cursors(look: Any) -> list[Any]:
    rows = await look.fetch("SELECT * FROM cursors ORDER BY job")
    return list(rows)


@pytest.mark.parametrize("count", [3, 200])
async def test_a_batch_is_registered_as_single_jobs_are(verbs: Store, look: Any, count: int) -> None:
    document: dict[str, Any] = {
        "payload": {"ü": [1, None, "\\"]},
        "tags": ["a b", 'q"'],
        "queue": "mail",
        "max_runs": 3,
        "jitter_seconds": 1,
        "priority": 7,
    }
    (single,) = await JobOperations(verbs).registration.add(
        [spec(name="single", schedule="0 9 * * MON", **document)], owner="app"
    )
    told = await JobOperations(verbs).batches.create(many(count, schedule="0 9 * * MON", **document), owner="app")
    assert [each.name for each in told] == [f"n{number:05}" for number in range(count)]
    for each in (told[0], told[-1]):
        job = await verbs.jobs.get(each.id)
        assert job is not None
        own = {"id", "name", "created_at", "updated_at"}
        expected = {key: value for key, value in msgspec.structs.asdict(single).items() if key not in own}
        assert {key: value for key, value in msgspec.structs.asdict(job).items() if key not in own} == expected
    rows = await look.fetch(
        "SELECT owner, tags, c.runs_left, c.priority, c.queue, c.schedule, c.fire_at >= c.next_tick AS later, count(*)"
        " FROM jobs JOIN cursors c USING (job) GROUP BY 1, 2, 3, 4, 5, 6, 7"
    )
    assert [(row["owner"], row["runs_left"], row["priority"], row["count"]) for row in rows] == [
        ("app", 3, 7, count + 1)
    ]
    jobs, _ = await verbs.jobs.list(limit=2)
    assert [job.name for job in jobs] == ["single", "n00000"]


@pytest.mark.parametrize("count", [3, 200])
async def test_a_name_that_is_taken_keeps_the_whole_batch_out_and_is_pointed_at(
    verbs: Store, look: Any, count: int
) -> None:
    await JobOperations(verbs).registration.add([spec(name="n00001"), spec(name="n00002")])
    before = await counts(look)
    with pytest.raises(BatchNamesTaken, match=r"A job named .* already exists") as caught:
        await JobOperations(verbs).batches.create(many(count))
    assert [fault.pointer for fault in caught.value.faults] == ["/1/name", "/2/name"]
    assert await counts(look) == before | {"queues": before["queues"]}


async def test_every_fault_is_reported_with_its_item_and_nothing_is_registered(verbs: Store, look: Any) -> None:
    before = await counts(look)
    items: list[JobSpec | UsageError] = [
        spec(name="a"),
        spec(name="b", schedule="nonsense"),
        UsageError("priority is 101: give a whole number from -100 to 100.", "/priority"),
        spec(name="a"),
        spec(name="c", payload={"x": ["\0"]}),
        spec(name="d", ends_at=None, schedule="2001-01-01T00:00:00Z"),
    ]
    for verb in (JobOperations(verbs).batches.create, JobOperations(verbs).batches.upsert):
        with pytest.raises(
            ManyFaults, match=r"^5 of the jobs are wrong, so none was registered; at /1/schedule: "
        ) as caught:
            await verb(items)
        pointers = [fault.pointer for fault in caught.value.faults]
        assert pointers == ["/1/schedule", "/2/priority", "/3/name", "/4/payload/x/0", "/5/schedule"]
        assert "The job at /0" in caught.value.faults[2].message
    assert await counts(look) == before


async def test_at_most_a_hundred_faults_are_reported(verbs: Store) -> None:
    with pytest.raises(ManyFaults, match=r"^More than 100 of the jobs are wrong.*The first 100 are listed") as caught:
        await JobOperations(verbs).batches.create(many(150, schedule="x"))
    assert len(caught.value.faults) == 100


async def test_an_upsert_creates_changes_and_leaves_alone_in_one_go(verbs: Store, look: Any) -> None:
    await JobOperations(verbs).batches.create(many(120, payload={"big": 1e300, "n": 1}))
    before = await cursors(look)
    wanted = [
        *many(100, payload={"big": 1e300, "n": 1}),
        *(spec(name=f"n{number:05}", payload={"n": 2}) for number in range(100, 120)),
        *(spec(name=f"new{number}") for number in range(60)),
        spec(),
    ]
    told = await JobOperations(verbs).batches.upsert(wanted)
    assert changes(told) == ["unchanged"] * 100 + ["updated"] * 20 + ["created"] * 61
    assert [each.revision for each in told] == [1] * 100 + [2] * 20 + [1] * 61
    after = await cursors(look)
    assert after[:100] == before[:100]
    for old, new in zip(before[100:], after[100:120], strict=True):
        assert (new["next_tick"], new["generation"], new["revision"]) == (old["next_tick"], 2, 2)
    assert await look.fetchval("SELECT count(*) FROM job_revisions") == 20
    assert changes(await JobOperations(verbs).batches.upsert(wanted[:-1])) == ["unchanged"] * 180


async def test_an_upsert_with_other_schedules_moves_the_cursors_and_never_fires(verbs: Store, look: Any) -> None:
    await JobOperations(verbs).batches.create(many(60))
    await look.execute(
        "UPDATE cursors SET last_tick = now(), next_tick = now() + interval '2 d', fire_at = now() + interval '2 d'"
    )
    await JobOperations(verbs).lifecycle.pause((await verbs.jobs.list(limit=1))[0][0].id)
    told = await JobOperations(verbs).batches.upsert(many(60, schedule="* * * * * *"))
    assert changes(told) == ["updated"] * 60
    rows = await look.fetch(
        "SELECT next_tick > last_tick AS ahead, next_tick < now() + interval '5 s' AS soon FROM cursors ORDER BY job"
    )
    assert (rows[0]["ahead"], rows[0]["soon"]) == (None, None)  # paused: it has no next tick
    assert all(row["ahead"] and row["soon"] for row in rows[1:])
    assert await look.fetchval("SELECT count(*) FROM live_runs") == 0


async def test_ticks_that_were_due_are_given_up_on_record_when_an_upsert_moves_on(verbs: Store, look: Any) -> None:
    await JobOperations(verbs).batches.create(many(55))
    await look.execute(
        "UPDATE cursors SET next_tick = now() - interval '1 s', fire_at = now() - interval '1 s' WHERE job % 2 = 0"
    )
    overdue = await look.fetchval("SELECT count(*) FROM cursors WHERE next_tick < now()")
    await JobOperations(verbs).batches.upsert(many(55, schedule="@yearly"))
    assert await look.fetchval("SELECT count(*) FROM run_history WHERE reason = 'edited' AND status = 4") == overdue


async def test_two_concurrent_batches_with_the_same_names_both_succeed_and_make_each_job_once(
    verbs: Store, look: Any
) -> None:
    wanted = many(300)
    told = await asyncio.gather(
        JobOperations(verbs).batches.upsert(wanted), JobOperations(verbs).batches.upsert(wanted[::-1])
    )
    assert sorted({*changes(told[0]), *changes(told[1])}) == ["created", "unchanged"]
    assert await look.fetchval("SELECT count(*) FROM jobs") == 300
    results = await asyncio.gather(
        *(JobOperations(verbs).batches.create(many(300, tags=["x"])) for _ in range(2)), return_exceptions=True
    )
    assert all(isinstance(result, Conflict) for result in results)


async def test_an_edit_between_reading_and_writing_is_not_overwritten_unseen(
    verbs: Store, look: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await JobOperations(verbs).batches.create(many(60))
    jobs = JobOperations(verbs)
    existing = jobs.batches._existing
    calls = 0

    async def then_edited(items: Any, tenant: int) -> Any:
        nonlocal calls
        calls += 1
        rows = await existing(items, tenant)
        if calls == 1:
            await JobOperations(verbs).registration.upsert(spec(name="n00007", priority=1))
        return rows

    monkeypatch.setattr(jobs.batches, "_existing", then_edited)
    told = await jobs.batches.upsert(many(60, priority=9))
    assert calls == 2
    assert [each.revision for each in told if each.name in ("n00006", "n00007")] == [2, 3]


async def test_the_loop_has_its_turn_while_a_batch_is_read(verbs: Store) -> None:
    turns = 0
    done = asyncio.Event()

    async def count() -> None:
        nonlocal turns
        while not done.is_set():
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await JobOperations(verbs).batches.create(many(2000))
    done.set()
    await counting
    assert turns >= 2000 // batches.AT_A_TIME


async def test_a_batch_is_announced_as_a_sweep(verbs: Store, look: Any) -> None:
    heard: list[str] = []
    await look.add_listener("detent_jobs", lambda *said: heard.append(said[3]))
    await JobOperations(verbs).batches.create(many(200))
    await until(lambda: heard == ["sweep"])


async def test_jobs_of_other_tenants_are_neither_seen_nor_in_the_way(verbs: Store, look: Any) -> None:
    await look.execute(
        "INSERT INTO tenants (name) SELECT 'other' WHERE NOT EXISTS (SELECT FROM tenants WHERE tenant = 2)"
    )
    await JobOperations(verbs).batches.create(many(60))
    assert changes(await JobOperations(verbs).batches.upsert(many(60), tenant=2)) == ["created"] * 60
    assert await look.fetchval("SELECT count(*) FROM jobs WHERE tenant = 2") == 60
