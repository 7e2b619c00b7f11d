"""What a job does whose run before is not over: the four policies, and how runs that wait move up."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from detent.domain.identity import MANUAL, RunKey, first_token
from detent.domain.states import RunStatus
from detent.jobs import JobOperations
from detent.store import Store, sql
from detent.store.cursors import Exceptional
from tests.support.ends import ended_run, failed_run
from tests.support.factories import LONG_AGO, add_job, add_live_run, add_node
from tests.support.ticks import advance_of
from tests.support.waiting import until

NODE, OTHER = 11, 12
HOUR = timedelta(hours=1)
SKIP, QUEUE, REPLACE = 1, -1, -2


@pytest.fixture(autouse=True)
async def node(look: Any) -> int:
    return await add_node(look, NODE)


async def fire(verbs: Store, job: int, tick: datetime = LONG_AGO, **how: bool) -> list[Exceptional]:
    advance = advance_of(job, tick, 1, tick + HOUR, None)
    return await verbs.cursors.fire(NODE, 1, how.pop("hand_off", True), [advance], **how)


async def live(look: Any, job: int) -> list[tuple[int, datetime, int | None, bool]]:
    rows = await look.fetch("SELECT * FROM live_runs WHERE job = $1 ORDER BY lane DESC", job)
    return [(row["lane"], row["scheduled_at"], row["owner"], row["cancel"]) for row in rows]


async def ledger(look: Any, job: int) -> list[tuple[datetime, int, str]]:
    rows = await look.fetch("SELECT * FROM run_history WHERE job = $1 ORDER BY scheduled_at", job)
    return [(row["scheduled_at"], row["status"], row["reason"]) for row in rows]


async def id_of(look: Any, job: int) -> UUID:
    found: UUID = await look.fetchval("SELECT id FROM jobs WHERE job = $1", job)
    return found


# --- fires ---


@pytest.mark.parametrize("lanes", [SKIP, QUEUE, REPLACE, 3])
@pytest.mark.parametrize("careful", [False, True])
async def test_a_job_that_is_alone_starts_in_lane_0_whatever_its_policy(
    look: Any, verbs: Store, lanes: int, careful: bool
) -> None:
    job = await add_job(look, lanes=lanes)
    assert await fire(verbs, job, careful=careful) == []
    assert await live(look, job) == [(0, LONG_AGO, NODE, False)]


@pytest.mark.parametrize("careful", [False, True])
@pytest.mark.parametrize("columns", [{"owner": NODE}, {"attempt": 2}, {}], ids=["running", "retrying", "pending"])
@pytest.mark.parametrize(("lanes", "lane"), [(QUEUE, -1), (REPLACE, -2)])
async def test_a_second_tick_waits_behind_a_run_in_any_state(
    look: Any, verbs: Store, lanes: int, lane: int, columns: dict[str, Any], careful: bool
) -> None:
    job = await add_job(look, LONG_AGO + HOUR, lanes=lanes)
    await add_live_run(look, job, **columns)
    assert await fire(verbs, job, LONG_AGO + HOUR, careful=careful) == [Exceptional(job, lane, None)]
    assert (lane, LONG_AGO + HOUR, None, False) in await live(look, job), "it waits without an owner"


@pytest.mark.parametrize("careful", [False, True])
@pytest.mark.parametrize(("lanes", "lane"), [(QUEUE, -1), (REPLACE, -2)])
async def test_a_third_tick_is_skipped_where_one_waits_already(
    look: Any, verbs: Store, lanes: int, lane: int, careful: bool
) -> None:
    job = await add_job(look, LONG_AGO + 2 * HOUR, lanes=lanes)
    await add_live_run(look, job, owner=NODE)
    await add_live_run(look, job, LONG_AGO + HOUR, lane=lane)
    assert await fire(verbs, job, LONG_AGO + 2 * HOUR, careful=careful) == [Exceptional(job, None, "overlap")]
    assert await ledger(look, job) == [(LONG_AGO + 2 * HOUR, 4, "overlap")]


@pytest.mark.parametrize("lanes", [SKIP, QUEUE, REPLACE, 2])
async def test_a_patient_tick_stays_where_it_is_while_there_is_no_place_for_it(
    look: Any, verbs: Store, lanes: int
) -> None:
    """Late ticks that come one upon another must not skip, or replace, each other."""
    job = await add_job(look, LONG_AGO + 2 * HOUR, lanes=lanes)
    await add_live_run(look, job, owner=NODE)
    if lanes == QUEUE:
        await add_live_run(look, job, LONG_AGO + HOUR, lane=-1)
    if lanes == 2:
        await add_live_run(look, job, LONG_AGO + HOUR, lane=1)
    assert await fire(verbs, job, LONG_AGO + 2 * HOUR, patient=True) == [Exceptional(job, None, "refused")]
    await look.execute("DELETE FROM live_runs WHERE job = $1", job)
    assert await fire(verbs, job, LONG_AGO + 2 * HOUR, patient=True) == []


async def test_a_waiting_tick_counts_as_a_run_of_a_bounded_job(look: Any, verbs: Store) -> None:
    job = await add_job(look, LONG_AGO + HOUR, lanes=QUEUE, runs_left=1)
    await add_live_run(look, job, owner=NODE)
    await fire(verbs, job, LONG_AGO + HOUR, careful=True)
    row = await look.fetchrow("SELECT runs_left, ended FROM cursors WHERE job = $1", job)
    assert tuple(row) == (0, True)


# --- moving up ---


@pytest.mark.parametrize("lane", [-1, -2])
async def test_a_waiting_run_moves_up_when_lane_0_is_free_and_can_then_be_claimed(
    look: Any, verbs: Store, lane: int
) -> None:
    job = await add_job(look, lanes=lane)
    await add_live_run(look, job, LONG_AGO, lane=lane, serial=MANUAL, attempt=2, crashes=1, once=True, priority=7)
    assert await verbs.live_runs.claim(NODE, 1, [1], 10) == []
    assert await verbs.live_runs.promote()
    (claim,) = await verbs.live_runs.claim(NODE, 1, [1], 10)
    assert (claim.job, claim.lane, claim.serial, claim.attempt, claim.crashes) == (job, 0, MANUAL, 2, 1)
    assert claim.once
    assert len(await live(look, job)) == 1


async def test_nothing_moves_up_while_lane_0_is_taken(look: Any, verbs: Store) -> None:
    job = await add_job(look, lanes=QUEUE)
    await add_live_run(look, job, owner=NODE)
    await add_live_run(look, job, LONG_AGO + HOUR, lane=-1)
    assert not await verbs.live_runs.promote()
    assert not await verbs.live_runs.promote([job])
    assert [lane for lane, *_ in await live(look, job)] == [0, -1]


async def test_a_waiting_run_moves_up_only_with_the_jobs_that_are_named(look: Any, verbs: Store) -> None:
    named, other = [await add_job(look, lanes=QUEUE) for _ in range(2)]
    for job in (named, other):
        await add_live_run(look, job, lane=-1)
    assert await verbs.live_runs.promote([named])
    assert [lane for lane, *_ in await live(look, named) + await live(look, other)] == [0, -1]


async def test_a_run_that_is_to_be_replaced_is_asked_to_stop_and_the_next_waits_for_its_end(
    look: Any, verbs: Store
) -> None:
    job = await add_job(look, lanes=REPLACE)
    await add_live_run(look, job, owner=NODE)
    await add_live_run(look, job, LONG_AGO + HOUR, lane=-2)
    assert not await verbs.live_runs.promote()
    assert await live(look, job) == [(0, LONG_AGO, NODE, True), (-2, LONG_AGO + HOUR, None, False)]
    assert not await verbs.live_runs.promote(), "asked once is asked"
    await look.execute("DELETE FROM live_runs WHERE job = $1 AND lane = 0", job)
    assert await verbs.live_runs.promote()
    assert await live(look, job) == [(0, LONG_AGO + HOUR, None, False)]


@pytest.mark.parametrize("end", ["settled", "retried", "rescued"])
@pytest.mark.parametrize("cancelled", [False, True], ids=["replaced", "cancelled before"])
async def test_a_run_that_is_replaced_ends_with_that_reason_unless_an_operator_was_first(
    look: Any, verbs: Store, end: str, cancelled: bool
) -> None:
    await add_node(look, OTHER)
    job = await add_job(look, lanes=REPLACE)
    await add_live_run(look, job, owner=OTHER)
    key = RunKey(job, LONG_AGO)
    if cancelled:
        await verbs.live_runs.cancel([key])
    await add_live_run(look, job, LONG_AGO + HOUR, lane=-2)
    await verbs.live_runs.promote([job])
    (claim,) = await verbs.live_runs.reconcile(OTHER)
    now = await look.fetchval("SELECT now()")
    if end == "settled":
        await verbs.live_runs.settle(OTHER, [ended_run(claim, now, now, 3, "cancelled while it ran")])
    elif end == "retried":
        await verbs.live_runs.retry(OTHER, [failed_run(claim, now, now, "failed", "no", HOUR)])
    else:
        await look.execute("UPDATE nodes SET evicted = true WHERE node = $1", OTHER)
        await verbs.nodes.rescue(OTHER)
    otherwise = {"settled": "cancelled while it ran", "retried": "cancelled", "rescued": "lost"}[end]
    assert await ledger(look, job) == [(LONG_AGO, 3, otherwise if cancelled else "replaced")]


async def test_a_run_that_succeeds_although_it_is_replaced_has_succeeded(look: Any, verbs: Store) -> None:
    job = await add_job(look, lanes=REPLACE)
    await add_live_run(look, job, owner=NODE)
    await add_live_run(look, job, LONG_AGO + HOUR, lane=-2)
    await verbs.live_runs.promote([job])
    (claim,) = await verbs.live_runs.reconcile(NODE)
    now = await look.fetchval("SELECT now()")
    await verbs.live_runs.settle(NODE, [ended_run(claim, now, now, 1, result="1")])
    assert await look.fetchval("SELECT status = 1 AND reason IS NULL FROM run_history WHERE job = $1", job)


@pytest.mark.parametrize("columns", [{"attempt": 2}, {}], ids=["retrying", "pending"])
async def test_a_run_that_no_node_holds_is_replaced_on_the_spot(
    look: Any, verbs: Store, columns: dict[str, Any]
) -> None:
    job = await add_job(look, lanes=REPLACE)
    await add_live_run(look, job, **columns)
    await add_live_run(look, job, LONG_AGO + HOUR, lane=-2)
    assert await verbs.live_runs.promote([job])
    assert await live(look, job) == [(0, LONG_AGO + HOUR, None, False)]
    assert await ledger(look, job) == [(LONG_AGO, 3, "replaced")]


async def test_a_run_whose_node_is_gone_makes_way_for_the_one_that_replaces_it(look: Any, verbs: Store) -> None:
    await add_node(look, OTHER, evicted=True)
    job = await add_job(look, lanes=REPLACE)
    await add_live_run(look, job, owner=OTHER, cancel=True)
    await add_live_run(look, job, LONG_AGO + HOUR, lane=-2)
    await verbs.nodes.rescue(OTHER)
    assert await verbs.live_runs.promote()
    assert await live(look, job) == [(0, LONG_AGO + HOUR, None, False)]
    assert [status for _, status, _ in await ledger(look, job)] == [3]


async def test_after_an_edit_to_another_policy_both_that_wait_run_one_after_the_other(look: Any, verbs: Store) -> None:
    job = await add_job(look, lanes=SKIP)
    await add_live_run(look, job, LONG_AGO, lane=-1)
    await add_live_run(look, job, LONG_AGO + HOUR, lane=-2)
    assert await verbs.live_runs.promote()
    assert await live(look, job) == [(0, LONG_AGO, None, False), (-2, LONG_AGO + HOUR, None, False)]


# --- runs that are asked for ---


@pytest.mark.parametrize(
    ("lanes", "lane", "status"), [(SKIP, None, "pending"), (QUEUE, -1, "pending"), (REPLACE, -2, "pending")]
)
async def test_a_trigger_beside_a_run_follows_the_policy(
    look: Any, verbs: Store, lanes: int, lane: int | None, status: str
) -> None:
    job = await add_job(look, lanes=lanes)
    await add_live_run(look, job, owner=NODE)
    key = await JobOperations(verbs).lifecycle.trigger(await id_of(look, job))
    run = await verbs.runs.get(key)
    assert run is not None
    assert run.status == status
    found = await live(look, job)
    assert [place for place, *_ in found] == [0] if lane is None else [0, lane]
    assert found[0][3] == (lanes == REPLACE), "what is replaced is asked to stop at once"


async def test_a_trigger_of_a_job_that_is_alone_starts_at_once_whatever_its_policy(look: Any, verbs: Store) -> None:
    for lanes in (SKIP, QUEUE, REPLACE, 3):
        job = await add_job(look, lanes=lanes)
        await JobOperations(verbs).lifecycle.trigger(await id_of(look, job))
        assert [lane for lane, *_ in await live(look, job)] == [max(lanes - 1, 0)]


async def test_a_repeat_replaces_what_runs(look: Any, verbs: Store) -> None:
    job = await add_job(look, lanes=REPLACE)
    token = first_token(1)
    await look.execute(
        "INSERT INTO run_history (job, scheduled_at, token, finished_at, serial, revision, attempt, status)"
        " VALUES ($1, $2, $3, $2, 0, 1, 1, 1)",
        job,
        LONG_AGO - HOUR,
        token,
    )
    await add_live_run(look, job, owner=NODE)
    await JobOperations(verbs).runs.retry(RunKey(job, LONG_AGO - HOUR))
    assert await live(look, job) == [(0, LONG_AGO, NODE, True), (-2, LONG_AGO - HOUR, None, False)]


async def test_a_cancelled_run_makes_way_for_the_one_that_waits(look: Any, verbs: Store) -> None:
    job = await add_job(look, lanes=QUEUE)
    await add_live_run(look, job)
    await add_live_run(look, job, LONG_AGO + HOUR, lane=-1)
    await JobOperations(verbs).runs.cancel(RunKey(job, LONG_AGO))
    assert await live(look, job) == [(0, LONG_AGO + HOUR, None, False)]


async def test_a_run_that_moves_up_while_its_cancellation_waits_is_cancelled(
    look: Any, another: Any, verbs: Store
) -> None:
    """It is in another row by then, which the statement that waited cannot see."""
    job = await add_job(look, lanes=QUEUE)
    await add_live_run(look, job, lane=-1)
    async with another.transaction():
        assert [row["what"] for row in await another.fetch(sql.run.PROMOTE.text, [job], 10)] == ["promoted"]
        cancelling = asyncio.create_task(JobOperations(verbs).runs.cancel(RunKey(job, LONG_AGO)))
        await until(lambda: look.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"))
    assert await cancelling is RunStatus.CANCELLED
    assert await live(look, job) == []


async def test_a_run_that_has_ended_is_not_taken_for_another_one_in_the_lane_of_its_number(
    look: Any, verbs: Store
) -> None:
    """Runs of the same tick again: the second one is in lane 1, the first one had lane 2. The search for the first one
    took the second one for it, and never ended, with the second one locked."""
    job = await add_job(look, lanes=3)
    await add_live_run(look, job, lane=1, serial=2, owner=NODE)
    async with asyncio.timeout(10):
        found = await verbs.live_runs.cancel([RunKey(job, LONG_AGO, 1), RunKey(job, LONG_AGO, 2)])
    assert found == {RunKey(job, LONG_AGO, 2): NODE}
