"""Ticks skipped, runs cancelled and triggered, jobs whose runs die, revisions: each verb on a real PostgreSQL."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

import pytest

from detent.contract.job import Job
from detent.domain.identity import RunKey
from detent.domain.states import RunStatus
from detent.errors import Conflict, NotFound, UsageError
from detent.jobs import JobOperations
from detent.store import Store, sql
from tests.store.moving import HOUR, NODE, fire, full_hour, job_of_old, number_of, run, settle, spec
from tests.support.factories import add_live_run, add_node
from tests.support.ticks import advance_of


@pytest.fixture(autouse=True)
async def node(look: Any) -> AsyncIterator[None]:
    await add_node(look, NODE)
    yield


async def history(look: Any) -> list[tuple[datetime, str | None, str]]:
    rows = await look.fetch("SELECT * FROM runs WHERE serial = 0 ORDER BY scheduled_at")
    return [(row["scheduled_at"], row["reason"], row["status"]) for row in rows]


# -- skip one tick


async def test_a_tick_that_is_to_be_skipped_is_passed_over_and_kept(verbs: Store, look: Any) -> None:
    job = await job_of_old(verbs, look, 3.5 * HOUR)
    first, second = [await look.fetchval("SELECT next_tick FROM cursors") + n * HOUR for n in (0, 1)]
    await look.execute("INSERT INTO skips (job, tick) SELECT job, $1 FROM cursors", second)
    await look.execute("UPDATE cursors SET skips = true")
    assert (await verbs.cursors.load([await number_of(look, job)]))[0].bounded
    for tick in (first, second):
        assert await fire(verbs, look, job, careful=True) == tick
        if tick == first:
            await settle(verbs, look, job, tick)
    assert not await look.fetchval("SELECT skips FROM cursors")
    assert await history(look) == [(first, None, "succeeded"), (second, "by request", "skipped")]
    assert await run(verbs, look, job) == [second + HOUR]


async def test_a_plain_fire_of_a_job_with_ticks_to_skip_is_refused(verbs: Store, look: Any) -> None:
    await job_of_old(verbs, look, 3.5 * HOUR)
    await look.execute("UPDATE cursors SET skips = true")
    row = await look.fetchrow("SELECT * FROM cursors")
    advance = advance_of(row["job"], row["next_tick"], row["generation"], row["next_tick"] + HOUR, None)
    assert [item.why for item in await verbs.cursors.fire(NODE, 1, True, [advance])] == ["refused"]


async def test_a_skip_is_asked_for_and_taken_back(verbs: Store, look: Any) -> None:
    (job,) = await JobOperations(verbs).registration.add([spec()])
    tick = await full_hour(look) + 3 * HOUR
    before = await look.fetchrow("SELECT * FROM cursors")
    skip = await JobOperations(verbs).lifecycle.skip(job.id, tick, "holiday", by="ada")
    after = await look.fetchrow("SELECT * FROM cursors")
    assert (skip.at, skip.reason, skip.created_by) == (tick, "holiday", "ada")
    assert (after["generation"], after["skips"], after["next_tick"]) == (
        before["generation"] + 1,
        True,
        before["next_tick"],
    )
    assert [each.at for each in await JobOperations(verbs).lifecycle.skips(job.id)] == [tick]
    await JobOperations(verbs).lifecycle.unskip(job.id, tick)
    assert await JobOperations(verbs).lifecycle.skips(job.id) == []
    assert not await look.fetchval("SELECT skips FROM cursors")
    with pytest.raises(NotFound, match="is not marked to be skipped"):
        await JobOperations(verbs).lifecycle.unskip(job.id, tick)


async def test_a_fire_that_has_not_seen_a_skip_or_its_undoing_is_refused(verbs: Store, look: Any) -> None:
    job = await job_of_old(verbs, look, 1.5 * HOUR)
    before = await look.fetchrow("SELECT * FROM cursors")
    tick = await full_hour(look) + 3 * HOUR

    async def fire_as_read_before() -> list[str | None]:
        late = advance_of(before["job"], before["next_tick"], before["generation"], before["next_tick"] + HOUR, None)
        return [item.why for item in await verbs.cursors.fire(NODE, 1, True, [late], careful=True)]

    await JobOperations(verbs).lifecycle.skip(job.id, tick)
    assert await fire_as_read_before() == ["refused"]
    before = await look.fetchrow("SELECT * FROM cursors")
    await JobOperations(verbs).lifecycle.unskip(job.id, tick)
    assert await fire_as_read_before() == ["refused"]
    assert await look.fetchval("SELECT count(*) FROM live_runs") == 0


async def test_what_cannot_be_skipped_is_refused_with_the_ticks_nearby(verbs: Store, look: Any) -> None:
    (job,) = await JobOperations(verbs).registration.add([spec(name="report")])
    hour = await full_hour(look)
    with pytest.raises(UsageError, match="only a future tick"):
        await JobOperations(verbs).lifecycle.skip(job.id, hour)
    with pytest.raises(UsageError) as wrong:
        await JobOperations(verbs).lifecycle.skip(job.id, hour + 2.5 * HOUR)
    ticks = [(hour + n * HOUR).isoformat().replace("+00:00", "Z") for n in (2, 3)]
    assert wrong.value.message.endswith(f"which is not a tick of 'report': the nearest are {ticks[0]} and {ticks[1]}.")
    assert wrong.value.pointer == "/at"
    await look.execute("UPDATE jobs SET status = 'completed'")
    with pytest.raises(Conflict, match="no tick left to skip"):
        await JobOperations(verbs).lifecycle.skip(job.id, hour + HOUR)


# -- cancel, trigger


async def test_all_open_runs_of_a_job_are_cancelled(verbs: Store, look: Any) -> None:
    (job,) = await JobOperations(verbs).registration.add([spec(concurrent_policy="ALLOW")])
    number, hour = await number_of(look, job), await full_hour(look)
    await add_live_run(look, number, hour - HOUR, owner=NODE)
    await add_live_run(look, number, hour, lane=1)
    done = await JobOperations(verbs).lifecycle.cancel_runs(job.id)
    assert (done.cancelled, done.stopping) == ([RunKey(number, hour)], [RunKey(number, hour - HOUR)])
    assert await look.fetchval("SELECT cancel FROM live_runs")
    await look.execute("DELETE FROM live_runs")
    assert await JobOperations(verbs).lifecycle.cancel_runs(job.id) == ([], [], False)


async def test_a_trigger_keeps_its_payload_for_the_run_and_its_repeats(verbs: Store, look: Any) -> None:
    (job,) = await JobOperations(verbs).registration.add([spec(payload={"n": 1}, concurrent_policy="ALLOW")])
    key = await JobOperations(verbs).lifecycle.trigger(job.id, {"n": 2})
    assert key.on_demand
    assert await verbs.live_runs.own_payload(key) == '{"n": 2}'
    await verbs.live_runs.cancel([key])
    assert await verbs.live_runs.own_payload(await JobOperations(verbs).runs.retry(key)) == '{"n": 2}'
    plain = await JobOperations(verbs).lifecycle.trigger(job.id)
    assert await verbs.live_runs.own_payload(plain) is None
    null = await JobOperations(verbs).lifecycle.trigger(job.id, None)
    assert await verbs.live_runs.own_payload(null) == "null"


@pytest.mark.parametrize(("payload", "words"), [({"a": "x" * 2000}, "are allowed"), ({"a": "\0"}, "NUL")])
async def test_a_payload_that_cannot_be_kept_is_refused(verbs: Store, look: Any, payload: Any, words: str) -> None:
    (job,) = await JobOperations(verbs).registration.add([spec()])
    with pytest.raises(UsageError, match=words):
        await JobOperations(verbs, max_payload_bytes=1000).lifecycle.trigger(job.id, payload)
    assert await look.fetchval("SELECT count(*) FROM live_runs") == 0


# -- jobs whose runs die


async def dead_runs(verbs: Store, look: Any, job: Job, *statuses: RunStatus) -> None:
    for status in statuses:
        await settle(verbs, look, job, await fire(verbs, look, job), status)
    await look.execute("UPDATE run_history SET finished_at = clock_timestamp()")


async def test_a_job_is_paused_after_as_many_dead_runs_in_a_row_as_it_bears(verbs: Store, look: Any) -> None:
    job = await job_of_old(verbs, look, 9.5 * HOUR, auto_pause_after=3)
    number = await number_of(look, job)
    dead, good = RunStatus.DEAD, RunStatus.SUCCEEDED
    await dead_runs(verbs, look, job, dead, dead, good, dead, dead)
    assert await JobOperations(verbs).automatic.pause_failing([number]) == []
    await dead_runs(verbs, look, job, dead)
    assert await JobOperations(verbs).automatic.pause_failing([number]) == [job.id]
    paused = await verbs.jobs.get(job.id)
    assert (paused.status, paused.paused_reason, paused.paused_by) == ("paused", "the last 3 runs were dead", "detent")


async def test_after_it_was_resumed_or_changed_a_failing_job_has_all_its_chances_again(verbs: Store, look: Any) -> None:
    job = await job_of_old(verbs, look, 9.5 * HOUR, auto_pause_after=2)
    number = await number_of(look, job)
    await dead_runs(verbs, look, job, RunStatus.DEAD, RunStatus.DEAD)
    await JobOperations(verbs).registration.patch(job.id, {"payload": 1})
    assert await JobOperations(verbs).automatic.pause_failing([number]) == []


async def test_whether_a_job_is_paused_is_reported_by_its_latest_runs_alone(verbs: Store, look: Any) -> None:
    job = await job_of_old(verbs, look, 9.5 * HOUR, auto_pause_after=3)
    await look.execute(
        "INSERT INTO run_history (job, scheduled_at, token, finished_at, serial, revision, attempt, status)"
        " SELECT job, now() - interval '100 days' + n * interval '1 minute', 1, now() - interval '50 days', 0, 1, 1, 1"
        "   FROM jobs, generate_series(1, 20000) AS n"
    )
    await look.execute("ANALYZE run_history")
    await dead_runs(verbs, look, job, RunStatus.DEAD, RunStatus.DEAD)
    await look.execute("UPDATE run_history SET finished_at = now() - interval '50 days' WHERE status = 1")
    number = await number_of(look, job)
    (plan,) = await look.fetch(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql.job.FIND_DEAD_STREAKS.text}", [number])
    removed = re.findall(r'"Rows Removed by Filter": (\d+)', plan[0])
    assert sum(map(int, removed)) < 100, "history was walked through for runs that count"
    assert await JobOperations(verbs).automatic.pause_failing([number]) == []


async def test_a_job_that_does_not_say_so_is_never_paused_by_itself(verbs: Store, look: Any) -> None:
    job = await job_of_old(verbs, look, 5.5 * HOUR)
    await dead_runs(verbs, look, job, RunStatus.DEAD, RunStatus.DEAD)
    assert await JobOperations(verbs).automatic.pause_failing([await number_of(look, job)]) == []


# -- revisions


async def test_every_revision_says_who_made_it_when_and_what_it_was(verbs: Store, look: Any) -> None:
    (job,) = await JobOperations(verbs).registration.add([spec(name="report", priority=1)], by="ada")
    await JobOperations(verbs).registration.patch(job.id, {"priority": 2}, by="bob")
    await JobOperations(verbs).registration.patch(job.id, {"priority": 3, "name": "reports"}, by="cora")
    found, following = await verbs.revisions.list(job.id)
    assert [(each.revision, each.changed_by, each.definition.priority) for each in found] == [
        (3, "cora", 3),
        (2, "bob", 2),
        (1, "ada", 1),
    ]
    assert following is None
    assert found[2].made_at == job.created_at < found[1].made_at == found[2].replaced_at
    page, following = await verbs.revisions.list(job.id, limit=1)
    assert (len(page), following) == (2, 3)
    assert (await verbs.revisions.list(job.id, below=following, limit=1))[0][0].revision == 2
    back, change = await JobOperations(verbs).revisions.roll_back(job.id, 1, by="dan")
    assert (back.name, back.priority, back.revision, change) == ("report", 1, 4, "updated")
    with pytest.raises(NotFound, match="no revision 9"):
        await JobOperations(verbs).revisions.get(job.id, 9)
