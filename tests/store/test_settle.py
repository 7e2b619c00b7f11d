"""The end of runs: settle, retry, give back, cancel; and zero rows, which is lost ownership."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from detent.domain.identity import RunKey
from detent.domain.job import Definition, HttpTarget, JobSpec
from detent.domain.run import Claim, Failed, HeldRun, Succeeded
from detent.domain.states import RunStatus
from detent.runtime import failpoints
from detent.runtime.wakeups import Wakeups
from detent.store import Store
from detent.store.db import OutcomeUnknown, Rejected
from detent.telemetry.metrics import Metrics
from detent.worker.settle import Settler
from tests.support.ends import claims_in, ended_run, failed_run
from tests.support.factories import LONG_AGO, add_live_run, add_node
from tests.support.waiting import until

NODE, OTHER = 11, 12
SECOND = timedelta(seconds=1)
TOKEN = 1 << 22 | 1
STARTED, FINISHED = LONG_AGO + SECOND, LONG_AGO + 2 * SECOND
# Each names something that is not held: any other key of the run, or another token.
NOT_HELD = [
    {"token": TOKEN + 1},
    {"token": TOKEN - 1},
    {"scheduled_at": LONG_AGO + SECOND},
    {"serial": 1},
    {"lane": 1},
    {"job": 2},
]


@pytest.fixture(autouse=True)
async def node(look: Any) -> int:
    return await add_node(look, NODE)


async def held(look: Any, job: int = 1, **columns: Any) -> Claim:
    """A run of which the node is the owner."""
    await add_live_run(look, job, **{"owner": NODE, **columns})
    row = await look.fetchrow("SELECT * FROM live_runs WHERE job = $1", job)
    names = {"concurrency_key": "key"}
    return Claim(**{name: row[names.get(name, name)] for name in Claim._fields})


def success(claim: Claim, result: str | None = "fine") -> HeldRun:
    return ended_run(claim, STARTED, FINISHED, 1, result=result)


def death(claim: Claim) -> HeldRun:
    return ended_run(claim, STARTED, FINISHED, 2, "retries exhausted", "said", "failed", "broken")


def called(claim: Claim, **fields: Any) -> HeldRun:
    """As a worker has it when its target has been called."""
    run = HeldRun(claim, STARTED.timestamp())
    spec = JobSpec(schedule="every 1h", target=HttpTarget(url="http://127.0.0.1:9/"), **fields)
    run.definition = Definition(UUID(int=claim.job), f"job-{claim.job}", spec)
    return run


def failure(claim: Claim, delay: timedelta = SECOND) -> HeldRun:
    return failed_run(claim, STARTED, FINISHED, "failed", "broken", delay)


@pytest.mark.parametrize("different", ["scheduled_at", "token", "serial", "nothing"])
async def test_plain_successes_are_written_as_they_are_whatever_they_agree_in(
    look: Any, verbs: Store, different: str
) -> None:
    values: dict[str, list[Any]] = {
        "scheduled_at": [LONG_AGO, LONG_AGO + SECOND],
        "token": [TOKEN, TOKEN + 5],
        "serial": [0, 3],
        "nothing": [],
    }
    claims = []
    for job in (1, 2, 3):
        columns = {different: values[different][job % 2]} if values[different] else {}
        claims.append(await held(look, job, **columns))
    begun = [STARTED + timedelta(microseconds=claim.job) for claim in claims]
    batch = [ended_run(claim, at, at + SECOND, 1) for claim, at in zip(claims, begun, strict=True)]
    assert await verbs.live_runs.settle(NODE, batch) == []
    assert await live(look) == []
    found = [
        (row["job"], row["scheduled_at"], row["serial"], row["token"], row["started_at"], row["finished_at"])
        for row in await history(look)
    ]
    assert sorted(found) == [
        (claim.job, claim.scheduled_at, claim.serial, claim.token, at, at + SECOND)
        for claim, at in zip(claims, begun, strict=True)
    ]


async def history(look: Any) -> list[Any]:
    return list(await look.fetch("SELECT * FROM run_history ORDER BY job, scheduled_at"))


async def attempts(look: Any) -> list[tuple[Any, ...]]:
    rows = await look.fetch("SELECT job, token, attempt, outcome, error FROM attempts ORDER BY job, token")
    return [tuple(row) for row in rows]


async def live(look: Any) -> list[Any]:
    return list(await look.fetch("SELECT * FROM live_runs ORDER BY job"))


# --- settle ---


async def test_a_settled_run_moves_to_history_with_its_words(look: Any, verbs: Store) -> None:
    claim = await held(look, attempt=1, revision=4, serial=3)
    assert await verbs.live_runs.settle(NODE, [success(claim)]) == []
    (row,) = await history(look)
    assert (row["job"], row["scheduled_at"], row["serial"], row["status"]) == (1, LONG_AGO, 3, 1)
    assert (row["token"], row["node"], row["attempt"], row["revision"]) == (TOKEN, NODE, 1, 4)
    assert (row["started_at"], row["finished_at"], row["reason"], row["result"]) == (STARTED, FINISHED, None, "fine")
    assert await live(look) == []
    assert await attempts(look) == [], "a success at the first attempt needs no second row"


async def test_every_attempt_that_was_not_a_plain_success_is_kept(look: Any, verbs: Store) -> None:
    late, dead = await held(look, 1, attempt=2), await held(look, 2)
    await verbs.live_runs.settle(NODE, [success(late), death(dead)])
    assert await attempts(look) == [(1, TOKEN, 2, "succeeded", None), (2, TOKEN, 1, "failed", "broken")]
    assert [(row["status"], row["reason"], row["result"]) for row in await history(look)] == [
        (1, None, "fine"),
        (2, "retries exhausted", "said"),
    ]


@pytest.mark.parametrize("change", NOT_HELD, ids=str)
async def test_a_settle_of_what_is_not_held_changes_nothing(look: Any, verbs: Store, change: dict[str, Any]) -> None:
    claim = await held(look)
    before = await live(look)
    late = success(claim._replace(**change))
    assert await verbs.live_runs.settle(NODE, [late]) == [late]
    assert await verbs.live_runs.committed([late.claim]) == [False]
    assert (await live(look), await history(look)) == (before, [])


@pytest.mark.parametrize("owner", [OTHER, None])
async def test_a_settle_by_a_node_that_is_not_the_owner_changes_nothing(
    look: Any, verbs: Store, owner: int | None
) -> None:
    claim = await held(look, owner=owner)
    assert claims_in(await verbs.live_runs.settle(NODE, [success(claim)])) == [claim]
    assert await history(look) == []


@pytest.mark.parametrize("alike", [True, False], ids=["alike", "mixed"])
@pytest.mark.parametrize("column", ["token", "scheduled_at", "serial", "lane", "owner"])
async def test_one_lost_run_does_not_hold_up_its_neighbours(look: Any, verbs: Store, column: str, alike: bool) -> None:
    """Mixed, every column is sent as an array, and the one that is wrong has the value of the next run."""
    claims = []
    for job in (1, 2, 3):
        n = 0 if alike else job
        own: dict[str, Any] = {"scheduled_at": LONG_AGO + n * SECOND, "serial": n, "lane": n, "token": TOKEN + n}
        claims.append(await held(look, job, **own))
    late = claims[1]
    if column == "owner":
        await look.execute("UPDATE live_runs SET owner = $1 WHERE job = 2", OTHER)
    else:
        others: dict[str, Any] = {"token": TOKEN + 5, "scheduled_at": LONG_AGO + SECOND, "serial": 1, "lane": 1}
        late = late._replace(**{column: others[column] if alike else getattr(claims[2], column)})
    ends = [success(claims[2]), success(late), success(claims[0])]
    assert await verbs.live_runs.settle(NODE, ends) == [ends[1]]
    assert [row["job"] for row in await history(look)] == [1, 3]
    assert [row["job"] for row in await live(look)] == [2]


async def test_a_later_run_in_the_same_lane_is_not_mistaken_for_the_one_before(look: Any, verbs: Store) -> None:
    claim = await held(look, scheduled_at=LONG_AGO + SECOND)
    late = success(claim._replace(scheduled_at=LONG_AGO))
    assert await verbs.live_runs.settle(NODE, [late]) == [late]
    assert len(await live(look)) == 1


async def test_a_settle_sent_twice_is_known_to_have_committed(look: Any, verbs: Store) -> None:
    claim = await held(look)
    await verbs.live_runs.settle(NODE, [success(claim)])
    assert claims_in(await verbs.live_runs.settle(NODE, [success(claim)])) == [claim]
    assert await verbs.live_runs.committed([claim, claim._replace(token=TOKEN + 1)]) == [True, False]
    assert len(await history(look)) == 1


async def test_a_settle_whose_reply_is_dropped_is_of_unknown_outcome(look: Any, verbs: Store) -> None:
    claim = await held(look)
    failpoints.arm("W5=drop")
    try:
        with pytest.raises(OutcomeUnknown):
            await verbs.live_runs.settle(NODE, [success(claim)])
    finally:
        failpoints.arm("")
    assert await verbs.live_runs.committed([claim]) == [True]


async def test_a_result_that_cannot_be_stored_rejects_its_batch(look: Any, verbs: Store) -> None:
    claims = [await held(look, job) for job in (1, 2)]
    with pytest.raises(Rejected):
        await verbs.live_runs.settle(NODE, [success(claims[0]), success(claims[1], "a NUL \x00 in a text")])
    assert len(await live(look)) == 2


# --- retry ---


async def test_a_failed_attempt_is_kept_and_the_next_one_waits(look: Any, verbs: Store) -> None:
    claim = await held(look, attempt=2, started_at=LONG_AGO)
    assert await verbs.live_runs.retry(NODE, [failure(claim, timedelta(hours=1))]) == []
    (row,) = await live(look)
    assert (row["owner"], row["started_at"], row["attempt"], row["token"]) == (None, None, 3, TOKEN)
    wait: timedelta = await look.fetchval("SELECT not_before - now() FROM live_runs")
    assert timedelta(minutes=59) < wait <= timedelta(hours=1)
    assert await attempts(look) == [(1, TOKEN, 2, "failed", "broken")]
    assert await history(look) == []
    assert await verbs.live_runs.claim(NODE, 1, [1], 1) == []


async def test_the_next_attempt_has_a_token_of_its_own(look: Any, verbs: Store) -> None:
    claim = await held(look)
    await verbs.live_runs.retry(NODE, [failure(claim, timedelta(0))])
    (again,) = await verbs.live_runs.claim(NODE, 1, [1], 1)
    assert (again.attempt, again.token) == (2, TOKEN + 1)
    assert claims_in(await verbs.live_runs.settle(NODE, [success(claim)])) == [claim], "the first attempt is over"
    assert await verbs.live_runs.settle(NODE, [success(again)]) == []
    assert [row[1:4] for row in await attempts(look)] == [(TOKEN, 1, "failed"), (TOKEN + 1, 2, "succeeded")]


@pytest.mark.parametrize("change", NOT_HELD, ids=str)
async def test_a_retry_of_what_is_not_held_changes_nothing(look: Any, verbs: Store, change: dict[str, Any]) -> None:
    claim = await held(look)
    before = await live(look)
    late = failure(claim._replace(**change))
    assert await verbs.live_runs.retry(NODE, [late]) == [late]
    assert claims_in(await verbs.live_runs.retry(OTHER, [failure(claim)])) == [claim]
    assert (await live(look), await attempts(look)) == (before, [])


async def test_a_failure_reported_twice_is_counted_once(look: Any, verbs: Store) -> None:
    claim = await held(look)
    await verbs.live_runs.retry(NODE, [failure(claim)])
    assert claims_in(await verbs.live_runs.retry(NODE, [failure(claim)])) == [claim]
    assert await verbs.live_runs.committed([claim]) == [True]
    assert (await live(look))[0]["attempt"] == 2


async def test_a_run_that_was_asked_to_stop_is_not_tried_again(look: Any, verbs: Store) -> None:
    """Waiting for a next attempt would occupy the lane of a run that was reported as cancelled."""
    stopped, other = await held(look, 1, cancel=True), await held(look, 2)
    hour = timedelta(hours=1)
    assert await verbs.live_runs.retry(NODE, [failure(stopped, hour), failure(other, hour)]) == []
    (row,) = await history(look)
    assert (row["job"], row["status"], row["reason"], row["token"], row["attempt"]) == (1, 3, "cancelled", TOKEN, 1)
    assert [(row["job"], row["attempt"]) for row in await live(look)] == [(2, 2)]
    assert [row[0] for row in await attempts(look)] == [1, 2]
    assert claims_in(await verbs.live_runs.retry(NODE, [failure(stopped)])) == [stopped]
    assert await verbs.live_runs.committed([stopped]) == [True]


# --- stale ---


async def test_a_stale_result_is_kept_and_changes_nothing_else(look: Any, verbs: Store) -> None:
    claim = await held(look, token=TOKEN + 1, owner=OTHER)
    before = await live(look)
    late = success(claim._replace(token=TOKEN))
    await verbs.live_runs.record_stale(NODE, [late])
    assert await attempts(look) == [(1, TOKEN, 1, "stale", "refused: succeeded")]
    assert (await live(look), await history(look)) == (before, [])
    assert await verbs.live_runs.committed([late.claim]) == [False], "a stale result is not a settled one"


async def test_a_stale_result_is_added_to_the_lost_attempt_it_belongs_to(look: Any, verbs: Store) -> None:
    claim = await held(look, started_at=LONG_AGO)
    await verbs.nodes.leave(NODE)
    await verbs.nodes.rescue(NODE)
    assert [row[3] for row in await attempts(look)] == ["lost"]
    await verbs.live_runs.record_stale(NODE, [success(claim)])
    await verbs.live_runs.record_stale(NODE, [success(claim)])
    assert await attempts(look) == [(1, TOKEN, 1, "stale", "the node that ran it was lost; refused: succeeded")]


async def test_a_stale_result_never_overwrites_a_settled_attempt(look: Any, verbs: Store) -> None:
    claim = await held(look)
    await verbs.live_runs.retry(NODE, [failure(claim)])
    await verbs.live_runs.record_stale(NODE, [success(claim)])
    assert await attempts(look) == [(1, TOKEN, 1, "failed", "broken")]


# --- give back ---


@pytest.mark.parametrize("culprit", [3, 4, 6])
async def test_a_result_that_cannot_be_stored_stops_none_of_its_neighbours(
    look: Any, verbs: Store, culprit: int
) -> None:
    """History has a run of its key already, so nothing could ever be written for it."""
    claims = {job: await held(look, job) for job in range(1, 7)}
    await look.execute(
        "INSERT INTO run_history (job, scheduled_at, token, finished_at, serial, revision, attempt, status)"
        " VALUES ($1, $2, 1, now(), 0, 1, 1, 1)",
        culprit,
        LONG_AGO,
    )
    settled: list[HeldRun] = []
    metrics = Metrics()
    settler = Settler(
        verbs, NODE, settled=lambda runs, _delays: settled.extend(runs), wakeups=Wakeups(), metrics=metrics
    )
    for claim in claims.values():  # the first two are sent at once, the others together
        settler.add(HeldRun(claim, STARTED.timestamp()), Succeeded("fine"), FINISHED.timestamp())
    await settler.drain(10)
    assert sorted(run.claim.job for run in settled) == [1, 2, 3, 4, 5, 6]
    assert metrics.ends["unknown", RunStatus.SUCCEEDED] == 5
    assert await look.fetchval("SELECT count(*) FROM live_runs") == 0, "no lane is held"
    assert [row["job"] for row in await history(look)] == [1, 2, 3, 4, 5, 6]
    (attempt,) = await look.fetch("SELECT job, error FROM attempts")
    assert tuple(attempt) == (culprit, "refused: succeeded; the result could not be stored")


async def test_a_failure_that_cannot_be_recorded_ends_its_run(look: Any, verbs: Store) -> None:
    claim = await held(look)
    await look.execute(
        "INSERT INTO attempts (job, scheduled_at, serial, token, finished_at, attempt, outcome)"
        " VALUES (1, $1, 0, $2, now(), 1, 'failed')",
        LONG_AGO,
        claim.token,
    )
    settler = Settler(verbs, NODE, settled=lambda _runs, _delays: None, wakeups=Wakeups(), metrics=Metrics())
    settler.add(called(claim), Failed("broken"), FINISHED.timestamp())
    await settler.drain(10)
    assert await look.fetchval("SELECT count(*) FROM live_runs") == 0
    (row,) = await history(look)
    assert (row["status"], row["reason"]) == (2, "quarantined")


@pytest.mark.parametrize("blocked", ["settle", "retry"])
async def test_a_kind_of_results_that_is_not_written_does_not_hold_up_another(
    look: Any, verbs: Store, monkeypatch: pytest.MonkeyPatch, blocked: str
) -> None:
    released = asyncio.Event()
    write = getattr(verbs.live_runs, blocked)

    async def write_when_released(*arguments: Any) -> Any:
        await released.wait()
        return await write(*arguments)

    monkeypatch.setattr(verbs.live_runs, blocked, write_when_released)
    settler = Settler(verbs, NODE, settled=lambda _runs, _delays: None, wakeups=Wakeups(), metrics=Metrics())
    for job in range(1, 9):
        outcome = Succeeded() if job % 2 else Failed("broken")
        settler.add(called(await held(look, job), max_retries=3), outcome, FINISHED.timestamp())
    written = "run_history" if blocked == "retry" else "attempts"

    async def all_written() -> bool:
        return bool(await look.fetchval(f"SELECT count(*) = 4 FROM {written}"))

    await until(all_written)
    released.set()
    await settler.drain(10)
    assert await look.fetchval("SELECT count(*) FROM run_history") == 4
    assert await look.fetchval("SELECT count(*) FROM live_runs WHERE owner IS NULL") == 4


async def test_a_run_given_back_is_as_it_was_before_its_claim_but_for_the_token(look: Any, verbs: Store) -> None:
    claim = await held(look, started_at=LONG_AGO)
    assert await verbs.live_runs.give_back(NODE, [claim]) == {(1, 0)}
    (row,) = await live(look)
    assert (row["owner"], row["started_at"], row["token"]) == (None, None, TOKEN + 1)
    assert (row["attempt"], row["crashes"], row["not_before"]) == (1, 0, LONG_AGO)
    assert await attempts(look) == []
    assert claims_in(await verbs.live_runs.settle(NODE, [success(claim)])) == [claim]
    (again,) = await verbs.live_runs.claim(NODE, 1, [1], 1)
    assert again.token == TOKEN + 2


@pytest.mark.parametrize("change", NOT_HELD, ids=str)
async def test_giving_back_what_is_not_held_changes_nothing(look: Any, verbs: Store, change: dict[str, Any]) -> None:
    claim = await held(look)
    before = await live(look)
    assert await verbs.live_runs.give_back(NODE, [claim._replace(**change)]) == set()
    assert await verbs.live_runs.give_back(OTHER, [claim]) == set()
    assert await verbs.live_runs.put_off(NODE, [(claim._replace(**change), SECOND)]) == set()
    assert await verbs.live_runs.put_off(OTHER, [(claim, SECOND)]) == set()
    assert await live(look) == before


async def test_a_run_that_is_put_off_waits_as_pending_and_its_attempt_does_not_count(look: Any, verbs: Store) -> None:
    claim = await held(look, started_at=LONG_AGO, once=True)
    before = await look.fetchval("SELECT now()")
    assert await verbs.live_runs.put_off(NODE, [(claim, 60 * SECOND)]) == {(1, 0)}
    (row,) = await live(look)
    assert (row["owner"], row["started_at"], row["token"]) == (None, None, TOKEN + 1)
    assert (row["attempt"], row["crashes"]) == (1, 0)
    assert before + 60 * SECOND <= row["not_before"] <= await look.fetchval("SELECT now()") + 60 * SECOND
    assert await attempts(look) == []
    assert [row["status"] for row in await look.fetch("SELECT status FROM runs")] == ["pending"]
    assert claims_in(await verbs.live_runs.settle(NODE, [success(claim)])) == [claim]
    assert await verbs.live_runs.put_off(NODE, [(claim, SECOND)]) == set()
    assert await verbs.live_runs.claim(NODE, 1, [1], 1) == []
    await look.execute("UPDATE live_runs SET not_before = now()")
    (again,) = await verbs.live_runs.claim(NODE, 1, [1], 1)
    assert (again.token, again.attempt) == (TOKEN + 2, 1)
    assert await verbs.live_runs.start(NODE, [again]) == {(1, 0): "go"}


async def test_each_run_of_a_batch_is_put_off_for_its_own_time(look: Any, verbs: Store) -> None:
    first, second = await held(look, 1), await held(look, 2)
    assert await verbs.live_runs.put_off(NODE, [(second, 60 * SECOND), (first, SECOND)]) == {(1, 0), (2, 0)}
    waits = "SELECT job FROM live_runs WHERE not_before > now() + interval '30 seconds'"
    assert [row["job"] for row in await look.fetch(waits)] == [2]


async def test_a_run_that_was_cancelled_meanwhile_is_not_put_off(look: Any, verbs: Store) -> None:
    claim = await held(look)
    assert await verbs.live_runs.cancel([claim.key]) == {claim.key: NODE}
    assert await verbs.live_runs.put_off(NODE, [(claim, 60 * SECOND)]) == {(1, 0)}
    (again,) = await verbs.live_runs.claim(NODE, 1, [1], 1)
    assert again.cancel


async def test_a_run_that_is_put_off_can_be_cancelled_while_it_waits(look: Any, verbs: Store) -> None:
    claim = await held(look)
    await verbs.live_runs.put_off(NODE, [(claim, 60 * SECOND)])
    assert await verbs.live_runs.cancel([claim.key]) == {claim.key: None}
    assert [row["status"] for row in await history(look)] == [3]


# --- cancel ---


@pytest.mark.parametrize("state", [{}, {"attempt": 3}, {"crashes": 1}], ids=str)
async def test_a_run_that_no_node_holds_is_cancelled_on_the_spot(
    look: Any, verbs: Store, state: dict[str, Any]
) -> None:
    await add_live_run(look, 1, **state)
    assert await verbs.live_runs.cancel([RunKey(1, LONG_AGO)]) == {RunKey(1, LONG_AGO): None}
    (row,) = await history(look)
    assert (row["status"], row["reason"], row["attempt"]) == (3, "cancelled", state.get("attempt", 1))
    assert await live(look) == []


async def test_a_run_that_another_session_holds_is_asked_to_stop(look: Any, verbs: Store) -> None:
    claim = await held(look)
    for _ in range(2):
        assert await verbs.live_runs.cancel([claim.key]) == {claim.key: NODE}
    assert [(row["owner"], row["cancel"], row["token"]) for row in await live(look)] == [(NODE, True, TOKEN)]
    assert await history(look) == []
    stopped = ended_run(claim, STARTED, FINISHED, 3, "cancelled", None, "cancelled", "cancelled")
    assert await verbs.live_runs.settle(NODE, [stopped]) == []
    assert [(row["status"], row["reason"]) for row in await history(look)] == [(3, "cancelled")]


async def test_cancelling_what_is_not_live_answers_nothing(look: Any, verbs: Store) -> None:
    claim = await held(look)
    await verbs.live_runs.settle(NODE, [success(claim)])
    before = await history(look)
    unknown = [claim.key, RunKey(1, LONG_AGO, 5), RunKey(9, datetime.fromisoformat("2021-01-01T00:00:00+00:00"))]
    assert await verbs.live_runs.cancel(unknown) == {}
    assert await history(look) == before


async def test_one_run_of_several_lanes_is_cancelled_by_its_key(look: Any, verbs: Store) -> None:
    for lane in range(3):
        await add_live_run(look, 1, LONG_AGO + lane * SECOND, lane=lane)
    await verbs.live_runs.cancel([RunKey(1, LONG_AGO + SECOND)])
    assert [row["lane"] for row in await look.fetch("SELECT lane FROM live_runs ORDER BY lane")] == [0, 2]
    assert [row["scheduled_at"] for row in await history(look)] == [LONG_AGO + SECOND]


Verb = Callable[[Store, Claim], Awaitable[Any]]
AFTER_A_WAIT: dict[str, Verb] = {
    "settle_succeeded": lambda store, claim: store.live_runs.settle(NODE, [success(claim, None)]),
    "settle": lambda store, claim: store.live_runs.settle(NODE, [success(claim)]),
    "retry": lambda store, claim: store.live_runs.retry(NODE, [failure(claim)]),
    "start": lambda store, claim: store.live_runs.start(NODE, [claim]),
    "give_back": lambda store, claim: store.live_runs.give_back(NODE, [claim]),
    "put_off": lambda store, claim: store.live_runs.put_off(NODE, [(claim, SECOND)]),
}
# Each: what it answers, and how the run stands then: live and owned, or not, or ended with this status.
WHAT_BECAME: dict[str, tuple[object, str]] = {
    "settle_succeeded": ([], "ended 1"),
    "settle": ([], "ended 1"),
    "retry": ([], "free"),
    "start": ({(1, 0): "go"}, "owned"),
    "give_back": ({(1, 0)}, "free"),
    "put_off": ({(1, 0)}, "free"),
}


@pytest.mark.parametrize("verb", WHAT_BECAME)
async def test_a_row_is_still_found_after_a_wait_for_a_concurrent_change(
    look: Any, verbs: Store, another: Any, verb: str
) -> None:
    """The version that the statement saw when it began is gone by then: it has to follow the row to the next."""
    claim = await held(look)
    transaction = another.transaction()
    await transaction.start()
    await another.execute("UPDATE live_runs SET priority = 3")
    answer = asyncio.ensure_future(AFTER_A_WAIT[verb](verbs, claim))
    await until(lambda: look.fetchval("SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"))
    await transaction.commit()
    assert (await answer, await standing(look)) == WHAT_BECAME[verb]


async def standing(look: Any) -> str:
    row = await look.fetchrow("SELECT owner, started_at IS NOT NULL AS started, priority FROM live_runs")
    if row is None:
        return f"ended {await look.fetchval('SELECT status FROM run_history')}"
    assert row["priority"] == 3
    return "owned" if row["owner"] else "free"
