"""Ends of several runs of one job in one batch, which only jobs that allow overlap have: they are settled by lane, in
one statement, and otherwise exactly as the single ends beside them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest

from detent.domain.run import Claim, HeldRun
from detent.store import Store, sql
from detent.store.settlements import settle_statements
from tests.support.ends import claims_in, ended_run
from tests.support.factories import LONG_AGO, add_live_run, add_node

NODE, OTHER = 11, 12
SECOND = timedelta(seconds=1)
TOKEN = 1 << 22 | 1
STARTED, FINISHED = LONG_AGO + SECOND, LONG_AGO + 2 * SECOND
WRITTEN = ("run_history", "attempts")
BY_JOB, BY_LANE = sql.run.SETTLE, sql.run.SETTLE_LANES


@pytest.fixture(autouse=True)
async def node(look: Any) -> int:
    return await add_node(look, NODE)


async def held(look: Any, job: int, lane: int, **columns: Any) -> Claim:
    """A run in a lane, of which the node is the owner; its tick, serial and token are those of no other lane."""
    own: dict[str, Any] = {"owner": NODE, "lane": lane, "serial": lane, "token": TOKEN + lane, "attempt": 1, **columns}
    await add_live_run(look, job, LONG_AGO + lane * SECOND, **own)
    return Claim(job, lane, LONG_AGO + lane * SECOND, own["serial"], own["token"], 1, own["attempt"])


def success(claim: Claim, result: str | None = None) -> HeldRun:
    return ended_run(claim, STARTED, FINISHED, 1, result=result)


async def history(look: Any) -> list[tuple[int, datetime]]:
    rows = await look.fetch("SELECT job, scheduled_at FROM run_history ORDER BY job, scheduled_at")
    return [tuple(row) for row in rows]


async def live(look: Any) -> list[tuple[int, int]]:
    return [tuple(row) for row in await look.fetch("SELECT job, lane FROM live_runs ORDER BY job, lane")]


def runs_of(ends: Sequence[HeldRun]) -> list[tuple[int, datetime]]:
    return sorted((item.claim.job, item.claim.scheduled_at) for item in ends)


# --- which statements ---


async def test_a_batch_needs_two_statements_however_many_runs_of_a_job_are_in_it(look: Any, verbs: Store) -> None:
    lanes = {1: 20, 2: 1, 3: 2, 4: 1}
    ends = [success(await held(look, job, lane)) for job, count in lanes.items() for lane in range(count)]
    sent = list(settle_statements(ends[::-1]))
    assert [(statement, arguments[0]) for statement, arguments in sent] == [
        (BY_JOB, [2, 4]),
        (BY_LANE, (1,) * 20 + (3,) * 2),
    ]
    assert await verbs.live_runs.settle(NODE, ends[::-1]) == []
    assert (await history(look), await live(look)) == (runs_of(ends), [])


async def test_a_batch_with_several_runs_of_each_job_needs_one_statement(look: Any, verbs: Store) -> None:
    ends = [success(await held(look, job, lane)) for lane in (2, 0, 1) for job in (2, 1)]
    assert [statement for statement, _ in settle_statements(ends)] == [BY_LANE]
    assert await verbs.live_runs.settle(NODE, ends) == []
    assert await history(look) == runs_of(ends)


# --- what is written ---


@pytest.mark.parametrize("replaced", [None, True])
@pytest.mark.parametrize("attempt", [1, 3])
async def test_what_is_written_is_what_the_statement_by_job_writes(
    look: Any, verbs: Store, replaced: bool | None, attempt: int
) -> None:
    """The same four ends, in a batch each and then in one."""
    written = []
    for apart in (True, False):
        await look.execute("DELETE FROM run_history; DELETE FROM attempts")
        columns: dict[str, Any] = {
            "attempt": attempt,
            "replaced": replaced,
            "key": "k",
            "payload": '{"a": 1}',
            "revision": 4,
        }
        claims = [await held(look, 1, lane, **columns) for lane in range(4)]
        ends = [
            success(claims[0], "fine"),
            success(claims[1]),
            ended_run(claims[2], STARTED, FINISHED, 2, "exhausted", "said", "failed", "broken", traceback="line 1"),
            ended_run(claims[3], STARTED, FINISHED, 3, "cancelled", None, "cancelled", "stopped"),
        ]
        for batch in [[end] for end in ends] if apart else [ends]:
            assert await verbs.live_runs.settle(NODE, batch) == []
        tables = [await look.fetch(f"SELECT * FROM {table} ORDER BY scheduled_at") for table in WRITTEN]
        written.append([[tuple(row) for row in rows] for rows in tables])
    assert written[0] == written[1]
    assert [len(rows) for rows in written[1]] == [4, 4 if attempt > 1 else 2]
    reasons = [row["reason"] for row in await look.fetch("SELECT reason FROM run_history ORDER BY scheduled_at")]
    assert reasons == [None, None, "exhausted", "replaced" if replaced else "cancelled"]


async def test_runs_of_other_lanes_stay(look: Any, verbs: Store) -> None:
    claims = [await held(look, 1, lane) for lane in range(5)]
    assert await verbs.live_runs.settle(NODE, [success(claims[3]), success(claims[1])]) == []
    assert await live(look) == [(1, 0), (1, 2), (1, 4)]


# --- what is not held ---


@pytest.mark.parametrize("column", ["token", "scheduled_at", "serial", "lane", "owner"])
async def test_a_run_that_is_not_held_holds_up_none_of_its_job_and_none_of_others(
    look: Any, verbs: Store, column: str
) -> None:
    claims = [await held(look, 1, lane) for lane in (0, 2, 4)] + [await held(look, 2, 0)]
    late = claims[1]
    if column == "owner":
        await look.execute("UPDATE live_runs SET owner = $1 WHERE job = 1 AND lane = 2", OTHER)
    else:
        values: dict[str, Any] = {"token": TOKEN + 9, "scheduled_at": LONG_AGO + 9 * SECOND, "serial": 9, "lane": 9}
        late = late._replace(**{column: values[column]})
    ends = [success(claim) for claim in (claims[3], claims[2], late, claims[0])]
    assert claims_in(await verbs.live_runs.settle(NODE, ends)) == [late]
    assert await verbs.live_runs.committed([late]) == [False]
    assert await live(look) == [(1, 2)]
    assert await history(look) == runs_of([ends[0], ends[1], ends[3]])


@pytest.mark.parametrize("column", ["token", "scheduled_at", "serial"])
async def test_a_late_end_of_a_run_before_in_the_same_lane_is_told_from_the_one_that_is_held(
    look: Any, verbs: Store, column: str
) -> None:
    """Both are found by their lane, so both are reported; which of them committed, history knows."""
    claim, other = await held(look, 1, 3), await held(look, 1, 1)
    values: dict[str, Any] = {"token": claim.token - 1, "scheduled_at": LONG_AGO, "serial": 0}
    late = claim._replace(**{column: values[column]})
    ends = [success(late, "late"), success(claim, "fine"), success(other)]
    assert await verbs.live_runs.settle(NODE, ends) == ends[:2]
    assert await verbs.live_runs.committed([late, claim]) == [False, True]
    results = "SELECT result FROM run_history WHERE job = 1 ORDER BY scheduled_at"
    assert [row["result"] for row in await look.fetch(results)] == [None, "fine"]
    assert await live(look) == []


@pytest.mark.parametrize("lanes", [1, 3])
async def test_an_end_that_is_in_a_batch_twice_is_written_once(look: Any, verbs: Store, lanes: int) -> None:
    claims = [await held(look, 1, lane) for lane in range(lanes)] + [await held(look, 2, 0)]
    ends = [success(claim, "first") for claim in claims] + [success(claims[0], "again")]
    assert await verbs.live_runs.settle(NODE, ends) == []
    assert await history(look) == runs_of(ends[:-1])
    assert {row["result"] for row in await look.fetch("SELECT result FROM run_history")} == {"first"}


async def test_an_end_that_is_in_a_batch_twice_and_not_held_is_reported_twice(look: Any, verbs: Store) -> None:
    claim, other = await held(look, 1, 0, owner=OTHER), await held(look, 1, 1)
    ends = [success(claim), success(other), success(claim, "again")]
    assert await verbs.live_runs.settle(NODE, ends) == [ends[0], ends[2]]
    assert await live(look) == [(1, 0)]


async def test_a_batch_that_is_sent_again_is_known_to_have_committed(look: Any, verbs: Store) -> None:
    ends = [success(await held(look, 1, lane)) for lane in range(3)]
    assert await verbs.live_runs.settle(NODE, ends) == []
    assert await verbs.live_runs.settle(NODE, ends) == ends
    assert await verbs.live_runs.committed([item.claim for item in ends]) == [True] * 3
