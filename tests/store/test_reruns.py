"""Runs once more: re-runs of finished runs and dead runs brought back, against a real PostgreSQL."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from detent.errors import Conflict, NotFound
from detent.identity import MANUAL, RunKey, run_id
from detent.states import CODES, RunStatus
from detent.store import Store, reruns
from detent.store.cursors import Advance
from detent.store.live import Settlement
from factories import add_job, add_live_run, add_node

NODE = 7
AT = datetime.now(UTC).replace(hour=0, minute=5, second=0, microsecond=0)
HOUR = timedelta(hours=1)


async def finished(
    look: Any, job: int, at: datetime = AT, status: RunStatus = RunStatus.DEAD, serial: int = 0
) -> RunKey:
    ran = status in (RunStatus.SUCCEEDED, RunStatus.DEAD)
    await look.execute(
        "INSERT INTO run_history (job, scheduled_at, serial, revision, status, finished_at, token, attempt, node)"
        " VALUES ($1, $2, $3, 1, $4, $2, $5, $6, $7)",
        *(job, at, serial, CODES[status], 1 << 22 | 9 if ran else None, 4 if ran else None, NODE if ran else None),
    )
    return RunKey(job, at, serial)


async def job_id(look: Any, job: int) -> UUID:
    found: UUID = await look.fetchval("SELECT id FROM jobs WHERE job = $1", job)
    return found


async def settle(verbs: Store, look: Any, status: RunStatus = RunStatus.SUCCEEDED) -> None:
    await add_node(look, NODE)
    claims = await verbs.live.claim(NODE, 1, [1], 100)
    now = await look.fetchval("SELECT now()")
    assert await verbs.live.settle(NODE, [Settlement(claim, now, now, CODES[status]) for claim in claims]) == []


async def test_a_re_run_of_a_tick_is_a_new_serial_with_a_key_of_its_own(verbs: Store, look: Any) -> None:
    job = await add_job(look, definition={"schedule": "@daily", "target": {"type": "http", "url": "http://x/"}})
    first = await verbs.reruns.retry(await finished(look, job))
    run = await verbs.runs.get(first)
    assert first == RunKey(job, AT, 1)
    assert run is not None
    assert (run.status, run.attempt, run.idempotency_key) == (
        RunStatus.PENDING,
        1,
        f"{run.job_id}:{int(AT.timestamp())}:1",
    )
    await settle(verbs, look)
    assert await verbs.reruns.retry(first) == RunKey(job, AT, 2)
    dead = await verbs.runs.get(RunKey(job, AT))
    assert dead is not None
    assert dead.idempotency_key == f"{run.job_id}:{int(AT.timestamp())}"


async def test_a_re_run_of_a_manual_run_appends_to_the_key_of_that_run(verbs: Store, look: Any) -> None:
    job = await add_job(look)
    key = await verbs.jobs.trigger(await job_id(look, job))
    await settle(verbs, look, RunStatus.DEAD)
    again = await verbs.reruns.retry(key)
    run = await verbs.runs.get(again)
    assert again == key._replace(serial=MANUAL + 1)
    assert run is not None
    assert run.idempotency_key == f"{run.job_id}:{run_id(key)}:1"


async def test_two_triggers_in_one_millisecond_are_two_times(verbs: Store, look: Any) -> None:
    job = await add_job(look, lanes=5)
    async with look.transaction():
        found = []
        for _ in range(3):
            from detent.store.db import statement

            (row,) = await look.fetch(statement("trigger_now"), job, MANUAL)
            found.append((row["at"], row["serial"], row["lane"]))
    first = found[0][0]
    step = timedelta(milliseconds=1)
    assert found == [(first, MANUAL, 4), (first + step, MANUAL, 3), (first + 2 * step, MANUAL, 2)]


async def test_the_latest_finished_run_is_run_again_and_what_never_ran_does_not_count(verbs: Store, look: Any) -> None:
    job = await add_job(look)
    id_ = await job_id(look, job)
    with pytest.raises(Conflict, match="no finished run"):
        await verbs.reruns.retry_latest(id_)
    await finished(look, job, AT, RunStatus.SUCCEEDED)
    await finished(look, job, AT + HOUR, RunStatus.MISSED)
    await finished(look, job, AT + 2 * HOUR, RunStatus.SKIPPED)
    assert await verbs.reruns.retry_latest(id_) == RunKey(job, AT, 1)
    with pytest.raises(NotFound):
        await verbs.reruns.retry_latest(uuid4())


@pytest.mark.parametrize("status", [RunStatus.MISSED, RunStatus.SKIPPED, RunStatus.CANCELLED, RunStatus.SUCCEEDED])
async def test_every_finished_run_can_be_run_again(verbs: Store, look: Any, status: RunStatus) -> None:
    job = await add_job(look)
    assert await verbs.reruns.retry(await finished(look, job, status=status)) == RunKey(job, AT, 1)


async def test_what_cannot_be_run_again_says_why(verbs: Store, look: Any) -> None:
    job = await add_job(look)
    key = await finished(look, job)
    with pytest.raises(NotFound, match="There is no run"):
        await verbs.reruns.retry(key._replace(serial=3))
    with pytest.raises(NotFound):
        await verbs.reruns.retry(key, tenant=2)
    again = await verbs.reruns.retry(key)
    with pytest.raises(Conflict, match="still pending"):
        await verbs.reruns.retry(again)
    with pytest.raises(Conflict, match="runs already"):
        await verbs.reruns.retry(key)
    await look.execute("DELETE FROM live_runs")
    await look.execute("UPDATE jobs SET status = 'deleted'")
    with pytest.raises(Conflict, match="is deleted"):
        await verbs.reruns.retry(key)
    assert await look.fetchval("SELECT count(*) FROM live_runs") == 0


async def test_retries_at_once_get_one_serial_each(verbs: Store, look: Any) -> None:
    job = await add_job(look, lanes=10)
    key = await finished(look, job)
    found = await asyncio.gather(*(verbs.reruns.retry(key) for _ in range(5)))
    assert sorted(again.serial for again in found) == [1, 2, 3, 4, 5]


async def test_a_redriven_run_is_the_same_run_with_its_key_and_a_higher_token(verbs: Store, look: Any) -> None:
    job = await add_job(look)
    key = await finished(look, job)
    before = await verbs.runs.get(key)
    done = await verbs.reruns.redrive([key])
    assert done == reruns.Redriven([key], [], False)
    run = await verbs.runs.get(key)
    assert run is not None
    assert before is not None
    assert (run.id, run.idempotency_key, run.status, run.attempt) == (
        before.id,
        before.idempotency_key,
        RunStatus.PENDING,
        1,
    )
    assert run.token is not None
    assert before.token is not None
    assert run.token > before.token
    assert await verbs.reruns.dead() == ([], None)
    await settle(verbs, look)
    ended = await verbs.runs.get(key)
    assert ended is not None
    assert ended.status is RunStatus.SUCCEEDED


async def test_the_attempts_of_a_dead_run_stay_when_it_is_redriven(verbs: Store, look: Any) -> None:
    job = await add_job(look)
    await add_live_run(look, job, AT)
    await settle(verbs, look, RunStatus.DEAD)
    key = RunKey(job, AT)
    await verbs.reruns.redrive([key])
    await look.execute("DELETE FROM nodes")
    await settle(verbs, look)
    run = await verbs.runs.get(key)
    assert run is not None
    assert (run.status, len(run.attempts)) == (RunStatus.SUCCEEDED, 2)
    assert [attempt.token for attempt in run.attempts] == sorted(attempt.token for attempt in run.attempts)


async def test_a_redrive_takes_as_many_runs_as_a_job_has_lanes_and_a_second_one_none_twice(
    verbs: Store, look: Any
) -> None:
    one = await add_job(look)
    two = await add_job(look, lanes=2)
    keys = [await finished(look, job, AT + n * HOUR) for job in (one, two) for n in range(3)]
    done = await verbs.reruns.redrive_all()
    assert set(done.runs) == {keys[0], keys[3], keys[4]}
    assert set(done.waiting) == {keys[1], keys[2], keys[5]}
    assert not done.more
    again = await verbs.reruns.redrive_all()
    assert (again.runs, set(again.waiting)) == ([], set(done.waiting))
    assert await look.fetchval("SELECT count(*) FROM live_runs") == 3
    assert await look.fetchval("SELECT count(*) FROM run_history") == 3


async def test_redrives_at_once_bring_each_run_back_once(verbs: Store, look: Any) -> None:
    job = await add_job(look, lanes=50)
    keys = [await finished(look, job, AT + timedelta(minutes=n)) for n in range(20)]
    done = await asyncio.gather(*(verbs.reruns.redrive(keys if n % 2 else keys[::-1]) for n in range(4)))
    assert sorted(key for found in done for key in found.runs) == keys
    assert await look.fetchval("SELECT count(*) FROM live_runs") == 20
    assert await look.fetchval("SELECT count(*) FROM run_history") == 0


async def test_a_fire_and_a_redrive_at_once_share_the_lane_and_lose_nothing(verbs: Store, look: Any) -> None:
    await add_node(look, NODE)
    tick = AT + HOUR
    for _ in range(25):
        job = await add_job(look, AT + HOUR)
        await look.execute("UPDATE cursors SET fire_at = now(), next_tick = now() WHERE job = $1", job)
        tick = await look.fetchval("SELECT next_tick FROM cursors WHERE job = $1", job)
        key = await finished(look, job)
        advance = Advance(job, tick, 1, tick + HOUR, None)
        await asyncio.gather(verbs.reruns.redrive([key]), verbs.cursors.fire(NODE, 1, False, [advance]))
        rows = await look.fetch("SELECT scheduled_at, status FROM runs WHERE job = $1", job)
        found = {row["scheduled_at"]: row["status"] for row in rows}
        assert found in ({AT: "pending", tick: "skipped"}, {AT: "dead", tick: "pending"})
        assert len(rows) == 2


async def test_only_dead_runs_of_ones_own_living_jobs_are_redriven(verbs: Store, look: Any) -> None:
    await look.execute(
        "INSERT INTO tenants (name) SELECT 'other' WHERE NOT EXISTS (SELECT FROM tenants WHERE tenant = 2)"
    )
    good, gone, foreign = [await add_job(look) for _ in range(3)]
    await look.execute("UPDATE jobs SET status = 'deleted' WHERE job = $1", gone)
    await look.execute("UPDATE jobs SET tenant = 2 WHERE job = $1", foreign)
    keys = [await finished(look, job) for job in (good, gone, foreign)]
    keys.append(await finished(look, good, AT + HOUR, RunStatus.SUCCEEDED))
    assert (await verbs.reruns.redrive([*keys, keys[0]])).runs == [keys[0]]
    assert (await verbs.reruns.redrive_all()).runs == []
    assert (await verbs.reruns.redrive_all(tenant=2)).runs == [keys[2]]


async def test_a_redrive_is_bounded(verbs: Store, look: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reruns, "MOST_REDRIVEN", 2)
    monkeypatch.setattr(reruns, "MOST_LOOKED_AT", 3)
    job = await add_job(look, lanes=10)
    keys = [await finished(look, job, AT + n * HOUR) for n in range(4)]
    first = await verbs.reruns.redrive_all(job=await job_id(look, job))
    assert (first.runs, first.more) == (keys[:2], True)
    second = await verbs.reruns.redrive_all()
    assert (second.runs, second.more) == (keys[2:], False)


async def test_dead_letters_are_listed_newest_first_in_pages(verbs: Store, look: Any) -> None:
    one, two = await add_job(look), await add_job(look)
    keys = [await finished(look, job, AT - n * HOUR) for n in range(4) for job in (two, one)]
    await finished(look, one, AT - 9 * HOUR, RunStatus.SUCCEEDED)
    collected: list[Any] = []
    after = None
    while True:
        page, after = await verbs.reruns.dead(after=after, limit=3)
        collected += page
        if after is None:
            break
    assert [run.id for run in collected] == [run_id(key) for key in keys]
    only, _ = await verbs.reruns.dead(job=await job_id(look, one))
    assert [run.id for run in only] == [run_id(key) for key in keys[1::2]]
    assert await verbs.reruns.dead(tenant=2) == ([], None)


async def test_dead_letters_are_found_by_their_index(verbs: Store, look: Any) -> None:
    from detent.store.db import statement

    await look.execute("SET enable_seqscan = off")
    for name, arguments in (
        ("dead_letters", (1, AT + HOUR, 1, 0, 50, None)),
        ("oldest_dead", (1, None, 50)),
    ):
        plan = "\n".join(row[0] for row in await look.fetch("EXPLAIN " + statement(name), *arguments))
        assert "scheduled_at_job_serial_idx" in plan
