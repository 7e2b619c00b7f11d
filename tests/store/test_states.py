"""The state table against the database: every event in every state, and rows that no state allows."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from detent.domain.identity import RunKey
from detent.domain.run import Claim, HeldRun
from detent.domain.states import CODES, END_CODES, FINAL, OPEN, TRANSITIONS, Event, RunStatus
from detent.store import Store
from tests.support.ends import ended_run, failed_run
from tests.support.factories import LONG_AGO, add_live_run, add_node

NODE = 11
TOKEN = 1 << 22 | 1
CLAIM = Claim(1, 0, LONG_AGO, 0, TOKEN, 1)
LIVE: dict[RunStatus, dict[str, Any]] = {
    RunStatus.PENDING: {},
    RunStatus.RUNNING: {"owner": NODE},
    RunStatus.RETRYING: {"attempt": 2},
}


@pytest.fixture(autouse=True)
async def node(look: Any) -> int:
    return await add_node(look, NODE)


async def insert(look: Any, table: str, **columns: Any) -> None:
    places = ", ".join(f"${n}" for n in range(1, len(columns) + 1))
    await look.execute(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places})", *columns.values())


def finished_row(status: int, **columns: Any) -> dict[str, Any]:
    ran = status in (1, 2)
    return {
        "job": 1,
        "scheduled_at": LONG_AGO,
        "serial": 0,
        "revision": 1,
        "finished_at": LONG_AGO,
        "status": status,
        "token": TOKEN if ran else None,
        "attempt": 1 if ran else None,
        **columns,
    }


async def put_into(look: Any, status: RunStatus) -> None:
    if status in OPEN:
        await add_live_run(look, 1, **LIVE[status])
    else:
        await insert(look, "run_history", **finished_row(CODES[status]))


def settlement(status: RunStatus, outcome: str) -> HeldRun:
    return ended_run(CLAIM, LONG_AGO, LONG_AGO, CODES[status], outcome=outcome)


async def apply(verbs: Store, event: Event) -> None:
    """What a worker, a surviving node or a person does; a worker that has lost the run is notified and stops."""
    match event:
        case Event.CLAIM:
            await verbs.live_runs.claim(NODE, 1, [1], 1)
        case Event.GIVE_BACK:
            await verbs.live_runs.give_back(NODE, [CLAIM])
        case Event.SUCCEED:
            await verbs.live_runs.settle(NODE, [settlement(RunStatus.SUCCEEDED, "succeeded")])
        case Event.FAIL:
            await verbs.live_runs.retry(NODE, [failed_run(CLAIM, LONG_AGO, LONG_AGO, "failed", "no", timedelta(0))])
        case Event.LOSE:
            await verbs.nodes.leave(NODE)
            await verbs.nodes.rescue(NODE)
        case Event.EXHAUST:
            await verbs.live_runs.settle(NODE, [settlement(RunStatus.DEAD, "failed")])
        case Event.CANCEL:
            await verbs.live_runs.cancel([RunKey(1, LONG_AGO)])
            await verbs.live_runs.settle(NODE, [settlement(RunStatus.CANCELLED, "cancelled")])


@pytest.mark.parametrize("event", Event)
@pytest.mark.parametrize("state", RunStatus)
async def test_every_event_in_every_state_does_what_the_table_says(
    look: Any, verbs: Store, state: RunStatus, event: Event
) -> None:
    await put_into(look, state)
    await apply(verbs, event)
    rows = await look.fetch("SELECT status FROM runs")
    assert [row["status"] for row in rows] == [TRANSITIONS.get((state, event), state)]


async def test_the_view_names_each_finished_status_as_the_table_does(look: Any) -> None:
    for serial, status in enumerate(sorted(FINAL)):
        await insert(look, "run_history", **finished_row(CODES[status], serial=serial))
    rows = await look.fetch("SELECT status FROM runs ORDER BY serial")
    assert [row["status"] for row in rows] == sorted(FINAL)


async def test_a_rescued_run_and_one_that_was_asked_to_stop_show_it(look: Any) -> None:
    await add_live_run(look, 1, crashes=1)
    await add_live_run(look, 2, owner=NODE, cancel=True)
    rows = await look.fetch("SELECT status, reason FROM runs ORDER BY job")
    assert [tuple(row) for row in rows] == [("retrying", None), ("running", "cancelling")]


def test_the_table_leads_out_of_every_open_state_and_never_out_of_a_final_one() -> None:
    assert {state for state, _ in TRANSITIONS} == OPEN
    assert all(((state, Event.CANCEL) in TRANSITIONS) for state in OPEN)
    reached = {RunStatus.PENDING}
    for _ in OPEN:
        reached |= {after for (state, _), after in TRANSITIONS.items() if state in reached}
    assert reached == set(RunStatus) - {RunStatus.SKIPPED, RunStatus.MISSED}, "what never ran has no transitions"
    assert CODES.keys() == FINAL


def test_workers_can_end_a_run_only_as_the_table_says() -> None:
    ends = {Event.SUCCEED: RunStatus.SUCCEEDED, Event.EXHAUST: RunStatus.DEAD, Event.CANCEL: RunStatus.CANCELLED}
    assert {event: CODES[status] for event, status in ends.items()} == END_CODES


# --- rows that lie ---

CURSOR = {"job": 1, "queue": 1, "schedule": 1, "partition": 0}
RUN = {
    "job": 1, "scheduled_at": LONG_AGO, "token": TOKEN, "not_before": LONG_AGO,
    "queue": 1, "revision": 1, "lane": 0, "priority": 5,
}  # fmt: skip
LATER = LONG_AGO + timedelta(hours=1)
LIES: dict[str, tuple[str, dict[str, Any]]] = {
    "a next tick that has fired": (
        "cursors",
        {**CURSOR, "next_tick": LONG_AGO, "fire_at": LONG_AGO, "last_tick": LONG_AGO},
    ),
    "a fire before its tick": ("cursors", {**CURSOR, "next_tick": LATER, "fire_at": LONG_AGO}),
    "a tick that never fires": ("cursors", {**CURSOR, "next_tick": LONG_AGO}),
    "a fire without a tick": ("cursors", {**CURSOR, "fire_at": LONG_AGO}),
    "an end with a tick to come": (
        "cursors",
        {**CURSOR, "next_tick": LONG_AGO, "fire_at": LONG_AGO, "ended": True},
    ),
    "less than no runs left": ("cursors", {**CURSOR, "runs_left": -1}),
    "a priority above a hundred": ("cursors", {**CURSOR, "priority": 101}),
    "a priority below minus a hundred": ("cursors", {**CURSOR, "priority": -101}),
    "a waiting run with an owner": ("live_runs", {**RUN, "lane": -1, "owner": NODE}),
    "a start without an owner": ("live_runs", {**RUN, "started_at": LONG_AGO}),
    "a zeroth attempt": ("live_runs", {**RUN, "attempt": 0}),
    "less than no crashes": ("live_runs", {**RUN, "crashes": -1}),
    "a success without a token": ("run_history", finished_row(1, token=None)),
    "a death without an attempt": ("run_history", finished_row(2, attempt=None)),
    "a skip with a token": ("run_history", finished_row(4, token=TOKEN)),
    "a miss with an attempt": ("run_history", finished_row(5, attempt=1)),
    "a range without an end": ("run_history", finished_row(5, ticks=3)),
    "a range of nothing": ("run_history", finished_row(5, ticks=0, until=LATER)),
    "an unknown status": ("run_history", finished_row(6)),
    "an unknown outcome": (
        "attempts",
        {
            "job": 1, "scheduled_at": LONG_AGO, "serial": 0, "token": TOKEN, "finished_at": LONG_AGO,
            "attempt": 1, "outcome": "unknown",
        },
    ),
    "a job with an unknown status": (
        "jobs",
        {"id": "8d5f0a3c-0000-7000-8000-000000000001", "name": "x", "partition": 0, "target": "http",
         "definition": "{}", "status": "gone"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
async def test_a_row_that_lies_is_refused(look: Any, lie: str) -> None:
    table, columns = LIES[lie]
    with pytest.raises(asyncpg.CheckViolationError):
        await insert(look, table, **columns)


async def test_two_runs_cannot_hold_one_lane_nor_a_tick_be_in_history_twice(look: Any) -> None:
    await insert(look, "live_runs", **RUN)
    with pytest.raises(asyncpg.UniqueViolationError):
        await insert(look, "live_runs", **{**RUN, "scheduled_at": LATER})
    await insert(look, "run_history", **finished_row(1))
    with pytest.raises(asyncpg.UniqueViolationError):
        await insert(look, "run_history", **finished_row(4))
