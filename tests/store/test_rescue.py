"""Rescue: what happens to the runs of a node that was lost."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from detent.domain.job import HttpTarget, JobSpec
from detent.domain.run import Claim, End, Failed, PlannedRetry
from detent.store import Store
from detent.store.nodes import CRASH_CAP, RESCUE_BATCH, Rescued
from detent.worker.settle import decide
from tests.support.ends import ended_run, failed_run
from tests.support.factories import LONG_AGO, add_live_run, add_node

GONE, NODE = 11, 12
TOKEN = 1 << 22 | 1
STARTED = LONG_AGO + timedelta(seconds=1)


@pytest.fixture(autouse=True)
async def nodes(look: Any) -> None:
    await add_node(look, GONE, evicted=True)
    await add_node(look, NODE)


async def live(look: Any) -> Any:
    return await look.fetchrow("SELECT * FROM live_runs")


async def ended(look: Any) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in await look.fetch("SELECT status, reason, token, node, attempt FROM run_history")]


async def lost(look: Any) -> list[tuple[Any, ...]]:
    rows = await look.fetch("SELECT token, node, attempt, outcome, started_at FROM attempts")
    return [tuple(row) for row in rows]


def brief(rescued: list[Rescued]) -> list[tuple[int, int, bool]]:
    return [(run.job, run.lane, run.dead) for run in rescued]


async def test_a_run_not_known_to_have_started_returns_uncounted(look: Any, verbs: Store) -> None:
    await add_live_run(look, 1, owner=GONE, attempt=2)
    assert brief(await verbs.nodes.rescue(GONE)) == [(1, 0, False)]
    run = await live(look)
    assert (run["owner"], run["attempt"], run["crashes"], run["token"]) == (None, 2, 1, TOKEN + 1)
    assert run["not_before"] > LONG_AGO
    assert await lost(look) == [(TOKEN, GONE, 2, "lost", None)]
    assert await ended(look) == []
    assert await verbs.nodes.rescue(GONE) == []


async def test_a_run_that_had_started_has_lost_an_attempt(look: Any, verbs: Store) -> None:
    await add_live_run(look, 1, owner=GONE, started_at=STARTED)
    assert brief(await verbs.nodes.rescue(GONE)) == [(1, 0, False)]
    run = await live(look)
    assert (run["owner"], run["started_at"], run["attempt"], run["crashes"]) == (None, None, 2, 1)
    assert await lost(look) == [(TOKEN, GONE, 1, "lost", STARTED)]


async def test_a_rescued_run_is_claimed_by_another_under_a_higher_token(look: Any, verbs: Store) -> None:
    await add_live_run(look, 1, owner=GONE)
    await verbs.nodes.rescue(GONE)
    (claim,) = await verbs.live_runs.claim(NODE, 1, [1], 10)
    assert (claim.token, claim.crashes) == (TOKEN + 2, 1)
    late = ended_run(Claim(1, 0, LONG_AGO, 0, TOKEN, 1), STARTED, STARTED, 1)
    assert await verbs.live_runs.settle(GONE, [late]) == [late]
    assert await verbs.live_runs.committed([late.claim]) == [False]


async def test_an_at_most_once_run_that_had_started_is_dead(look: Any, verbs: Store) -> None:
    await add_live_run(look, 1, owner=GONE, once=True, started_at=STARTED)
    assert brief(await verbs.nodes.rescue(GONE)) == [(1, 0, True)]
    assert await ended(look) == [(2, "lost", TOKEN, GONE, 1)]
    assert await live(look) is None
    assert [row[3] for row in await lost(look)] == ["lost"]


async def test_an_at_most_once_run_that_had_not_started_returns(look: Any, verbs: Store) -> None:
    await add_live_run(look, 1, owner=GONE, once=True)
    assert brief(await verbs.nodes.rescue(GONE)) == [(1, 0, False)]
    assert (await live(look))["owner"] is None


@pytest.mark.parametrize(("lost_alone", "dead"), [(None, False), (CRASH_CAP - 1, True), (CRASH_CAP, True)])
async def test_a_run_that_takes_its_node_with_it_too_often_while_it_is_alone_is_dead(
    look: Any, verbs: Store, lost_alone: int | None, dead: bool
) -> None:
    await add_live_run(look, 1, owner=GONE, crashes=2, started_at=STARTED, alone=True, lost_alone=lost_alone)
    assert brief(await verbs.nodes.rescue(GONE)) == [(1, 0, dead)]
    run = await live(look)
    assert (run is None) == dead
    if run is not None:
        assert (run["alone"], run["lost_alone"], run["crashes"]) == (None, 1, 3)


async def test_a_run_is_never_dead_for_a_node_that_ran_others_too_however_often_that_happens(
    look: Any, verbs: Store
) -> None:
    await add_live_run(look, 1, owner=GONE, crashes=1, started_at=STARTED)
    for _ in range(10):
        assert brief(await verbs.nodes.rescue(GONE)) == [(1, 0, False)]
        await look.execute("UPDATE live_runs SET owner = $1, started_at = $2", GONE, STARTED)
    await look.execute("UPDATE live_runs SET crashes = 30000, attempt = 30000")  # as far as they go
    assert brief(await verbs.nodes.rescue(GONE)) == [(1, 0, False)]
    run = await live(look)
    assert (run["crashes"], run["attempt"], run["lost_alone"]) == (30000, 30000, None)


async def test_a_start_alone_is_recorded_until_others_start_too(look: Any, verbs: Store) -> None:
    await look.execute("UPDATE nodes SET evicted = false WHERE node = $1", GONE)
    for job in (1, 2):
        await add_live_run(look, job, owner=GONE, crashes=2)
    claims = [Claim(job, 0, LONG_AGO, 0, TOKEN, 1) for job in (1, 2)]
    assert await verbs.live_runs.start(GONE, claims, [True, False]) == {(1, 0): "go", (2, 0): "go"}
    alone = "SELECT alone FROM live_runs ORDER BY job"
    assert [row["alone"] for row in await look.fetch(alone)] == [True, None]
    await verbs.live_runs.accompany(NODE, claims[0])  # a run of another node
    assert [row["alone"] for row in await look.fetch(alone)] == [True, None]
    await verbs.live_runs.accompany(GONE, claims[0])
    assert [row["alone"] for row in await look.fetch(alone)] == [None, None]


async def test_alone_counts_only_after_a_start(look: Any, verbs: Store) -> None:
    """What is left of an earlier start says nothing about a run that was given back and lost again."""
    await add_live_run(look, 1, owner=GONE, crashes=2, alone=True, lost_alone=CRASH_CAP)
    assert brief(await verbs.nodes.rescue(GONE)) == [(1, 0, False)]


async def test_the_neighbours_of_a_poisonous_run_are_not_counted_with_it(look: Any, verbs: Store) -> None:
    await add_live_run(look, 1, owner=GONE, crashes=9, started_at=STARTED, alone=True, lost_alone=CRASH_CAP)
    for job in (2, 3):
        await add_live_run(look, job, owner=GONE, crashes=9)
    assert {(run.job, run.dead) for run in await verbs.nodes.rescue(GONE)} == {(1, True), (2, False), (3, False)}


async def test_a_run_that_history_knows_already_does_not_keep_others_from_being_rescued(
    look: Any, verbs: Store
) -> None:
    """It cannot be told how that came about; the record stands, and the lane is free."""
    await add_live_run(look, 1, owner=GONE, once=True, started_at=STARTED)
    await add_live_run(look, 2, owner=GONE)
    await look.execute(
        "INSERT INTO run_history (job, scheduled_at, token, finished_at, serial, revision, attempt, status)"
        " VALUES (1, $1, 1, now(), 0, 1, 1, 1)",
        LONG_AGO,
    )
    assert {(run.job, run.dead) for run in await verbs.nodes.rescue(GONE)} == {(1, True), (2, False)}
    assert await look.fetchval("SELECT status FROM run_history") == 1
    assert (await live(look))["job"] == 2


async def test_losses_before_the_start_do_not_bring_a_run_closer_to_its_cap(look: Any, verbs: Store) -> None:
    await add_live_run(look, 1, owner=GONE)
    for _ in range(CRASH_CAP + 2):
        assert brief(await verbs.nodes.rescue(GONE)) == [(1, 0, False)]
        run = await live(look)
        assert (run["attempt"], run["crashes"]) == (1, 1)
        await look.execute("UPDATE live_runs SET owner = $1", GONE)


async def test_lost_attempts_leave_a_run_all_its_retries(look: Any, verbs: Store) -> None:
    spec = JobSpec(schedule="every 1h", target=HttpTarget(url="http://127.0.0.1:9/"), max_retries=1)
    await add_live_run(look, 1, owner=GONE)
    for loss in range(CRASH_CAP):
        await look.execute("UPDATE live_runs SET owner = $1, started_at = $2", GONE, STARTED if loss else None)
        assert brief(await verbs.nodes.rescue(GONE)) == [(1, 0, False)]
    for expected in (PlannedRetry, End):
        (claim,) = await verbs.live_runs.claim(NODE, 1, [1], 1)
        end = decide(claim, spec, Failed("broken"), 0.0)
        assert isinstance(end, expected), f"attempt {claim.attempt}, {claim.crashes} losses"
        if isinstance(end, PlannedRetry):
            assert (
                await verbs.live_runs.retry(
                    NODE, [failed_run(claim, STARTED, STARTED, end.outcome, end.error, end.delay)]
                )
                == []
            )


@pytest.mark.parametrize("started_at", [None, STARTED])
async def test_a_run_that_was_asked_to_stop_is_cancelled(look: Any, verbs: Store, started_at: Any) -> None:
    await add_live_run(look, 1, owner=GONE, cancel=True, started_at=started_at)
    assert brief(await verbs.nodes.rescue(GONE)) == [(1, 0, False)]
    assert await ended(look) == [(3, "lost", TOKEN, GONE, 1)]
    assert await live(look) is None
    late = Claim(1, 0, LONG_AGO, 0, TOKEN, 1)
    assert await verbs.live_runs.committed([late]) == [False], "the owner's own settle did not commit"


async def test_only_the_runs_of_an_evicted_node_are_rescued(look: Any, verbs: Store) -> None:
    await add_live_run(look, 1, owner=NODE)
    await add_live_run(look, 2)
    await add_live_run(look, 3, owner=99)
    for node in (GONE, NODE, 99):
        assert await verbs.nodes.rescue(node) == []
    assert await look.fetchval("SELECT count(*) FROM live_runs WHERE token = $1", TOKEN) == 3


async def test_a_rescue_comes_in_batches_until_nothing_is_left(look: Any, verbs: Store) -> None:
    await look.execute(
        "INSERT INTO live_runs (job, scheduled_at, token, owner, not_before, queue, revision, lane, priority)"
        " SELECT n, $1, $2, $3, $1, 1, 1, 0, 5 FROM generate_series(1, $4::bigint) AS n",
        LONG_AGO, TOKEN, GONE, RESCUE_BATCH + 5,
    )  # fmt: skip
    assert [len(await verbs.nodes.rescue(GONE)) for _ in range(3)] == [RESCUE_BATCH, 5, 0]


async def test_a_run_that_another_session_has_locked_is_left_for_the_next_pass(
    look: Any, verbs: Store, another: Any
) -> None:
    """A handler's transaction that does not end must not hold up the rescue of all the others."""
    await add_live_run(look, 1, owner=GONE)
    await add_live_run(look, 2, owner=GONE)
    async with another.transaction():
        await another.execute("UPDATE live_runs SET cancel = true WHERE job = 1")
        assert brief(await verbs.nodes.rescue(GONE)) == [(2, 0, False)]
        assert await verbs.nodes.rescue(GONE) == []
        assert not await verbs.nodes.delete(GONE), "it still has a run"
    assert brief(await verbs.nodes.rescue(GONE)) == [(1, 0, False)]
    assert [row[0] for row in await ended(look)] == [3]


async def test_a_run_that_was_settled_meanwhile_is_left_alone(look: Any, verbs: Store, another: Any) -> None:
    await add_live_run(look, 1, owner=GONE)
    async with another.transaction():
        await another.execute("DELETE FROM live_runs")
        assert await verbs.nodes.rescue(GONE) == []
    assert await verbs.nodes.rescue(GONE) == []
    assert await lost(look) == []
