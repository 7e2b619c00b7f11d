"""Replies that never arrive: the statement committed, and its sender does not know."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from detent.domain.run import Call, Claim, Outcome, Succeeded
from detent.node.session import Session
from detent.runtime import failpoints
from detent.settings.settings import Settings
from detent.store import Database, Store
from detent.store.db import OutcomeUnknown
from tests.interleavings.cutting_proxy import CuttingProxy
from tests.support.ends import ended_run, failed_run
from tests.support.factories import LONG_AGO, add_job, add_live_run, add_node
from tests.support.ticks import advance_of
from tests.support.waiting import until

NODE = 1
TOKEN = 1 << 22 | 1
HELD = Claim(1, 0, LONG_AGO, 0, TOKEN, 1)
LATER = LONG_AGO + timedelta(hours=1)
ENDED = ended_run(HELD, LONG_AGO, LONG_AGO, 1, result="done")
# A reply is lost on the way to the client, or the request on the way to the server. Neither tells which.
LOST = ("reply", "request")


@pytest.fixture
async def look(look: Any) -> Any:
    await add_node(look, NODE)
    return look


@pytest.fixture
async def proxy(database_url: str) -> AsyncIterator[tuple[CuttingProxy, str]]:
    async with CuttingProxy.before(database_url) as pair:
        yield pair


@pytest.fixture
async def store(proxy: tuple[CuttingProxy, str]) -> AsyncIterator[Store]:
    """A store whose connections lead through the proxy."""
    database = Database(proxy[1])
    await database.open()
    yield Store(database)
    await database.close()


def lose(proxy: tuple[CuttingProxy, str], lost: str) -> None:
    """Lose the reply (or the request) of the next statement. Tests send that statement once before, without effect, so
    that the driver already knows its types and sends nothing else."""
    if lost == "reply":
        proxy[0].lose_next_reply()
    else:
        proxy[0].lose_next_request()


@pytest.mark.parametrize("lost", LOST)
async def test_a_fire_of_unknown_outcome_is_fired_once_and_found_again(
    look: Any, proxy: tuple[CuttingProxy, str], store: Store, lost: str
) -> None:
    batch = [advance_of(1, LONG_AGO, 1, LATER, None)]
    await store.cursors.fire(NODE, 1, True, batch)
    job = await add_job(look)
    lose(proxy, lost)
    with pytest.raises(OutcomeUnknown):
        await store.cursors.fire(NODE, 1, True, batch)
    assert proxy[0].cuts == 1
    again = await store.cursors.fire(NODE, 1, True, batch)
    assert [item.why for item in again] == (["refused"] if lost == "reply" else [])
    (claim,) = await store.live_runs.reconcile(NODE)
    assert (claim.job, claim.scheduled_at, claim.token) == (job, LONG_AGO, TOKEN)
    assert await store.live_runs.settle(NODE, [ended_run(claim, LONG_AGO, LONG_AGO, 1, result="done")]) == []
    assert await look.fetchval("SELECT count(*) FROM run_history") == 1


@pytest.mark.parametrize("lost", LOST)
async def test_a_claim_of_unknown_outcome_is_found_by_reconciling(
    look: Any, proxy: tuple[CuttingProxy, str], store: Store, lost: str
) -> None:
    await store.live_runs.claim(NODE, 1, [1], 10)
    await add_live_run(look, 1)
    lose(proxy, lost)
    with pytest.raises(OutcomeUnknown):
        await store.live_runs.claim(NODE, 1, [1], 10)
    found = await store.live_runs.reconcile(NODE)
    claimed = await store.live_runs.claim(NODE, 1, [1], 10)
    assert len(found) == (1 if lost == "reply" else 0)
    assert [claim.token for claim in found + claimed] == [TOKEN + 1]


@pytest.mark.parametrize("lost", LOST)
async def test_a_settle_of_unknown_outcome_may_be_sent_again(
    look: Any, proxy: tuple[CuttingProxy, str], store: Store, lost: str
) -> None:
    await store.live_runs.settle(NODE, [ENDED])
    await add_live_run(look, 1, owner=NODE)
    lose(proxy, lost)
    with pytest.raises(OutcomeUnknown):
        await store.live_runs.settle(NODE, [ENDED])
    unmatched = await store.live_runs.settle(NODE, [ENDED])
    assert unmatched == ([ENDED] if lost == "reply" else [])
    assert await store.live_runs.committed([HELD]) == [True]
    assert [tuple(row) for row in await look.fetch("SELECT status, token, result FROM run_history")] == [
        (1, TOKEN, "done")
    ]
    assert await look.fetchval("SELECT count(*) FROM live_runs") == 0


@pytest.mark.parametrize("lost", LOST)
async def test_a_failure_of_unknown_outcome_is_counted_once(
    look: Any, proxy: tuple[CuttingProxy, str], store: Store, lost: str
) -> None:
    failed = failed_run(HELD, LONG_AGO, LONG_AGO, "failed", "no", timedelta(0))
    await store.live_runs.retry(NODE, [failed])
    await add_live_run(look, 1, owner=NODE)
    lose(proxy, lost)
    with pytest.raises(OutcomeUnknown):
        await store.live_runs.retry(NODE, [failed])
    unmatched = await store.live_runs.retry(NODE, [failed])
    assert unmatched == ([failed] if lost == "reply" else [])
    assert await store.live_runs.committed([HELD]) == [True]
    assert await look.fetchval("SELECT attempt FROM live_runs") == 2
    assert await look.fetchval("SELECT count(*) FROM attempts") == 1


# --- a whole node ---


class Called:
    """A target that remembers its calls."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    async def __call__(self, call: Call) -> Outcome:
        self.calls.append(call)
        return Succeeded("done")


@pytest.fixture
async def called(database_url: str) -> AsyncIterator[Called]:
    """A node in this process, scheduler and worker, whose target this is."""
    database = Database(database_url)
    await database.open()
    target = Called()
    session = Session(Store(database), Settings(concurrency=4), ("scheduler", "worker"), {"http": target}, [])
    await session.open()
    yield target
    failpoints.arm("")
    await session.close(5)
    await database.close()


async def due_soon(look: Any) -> tuple[int, datetime]:
    """A job the running node knows of, with a tick in a moment: when it fires, the worker is not busy claiming, so the
    run is handed to it."""
    at: datetime = await look.fetchval("SELECT date_trunc('milliseconds', now() + '0.5 s'::interval)")
    job = await add_job(look, at, every="every 1d")
    await look.execute("SELECT pg_notify('detent_jobs', $1)", str(job))
    return job, at


async def finished(look: Any, job: int) -> Any:
    return await until(lambda: look.fetchrow("SELECT * FROM run_history WHERE job = $1", job), 30, "the run in history")


@pytest.mark.parametrize("step", [pytest.param("S5", marks=pytest.mark.long), "W5"])
async def test_a_node_that_loses_a_reply_leaves_no_run_behind_and_settles_once(
    look: Any, called: Called, step: str
) -> None:
    """S5: the fire's; its run, already this node's, is adopted by looking. W5: the settle's; it is sent again."""
    failpoints.arm(f"{step}=drop")
    job, at = await due_soon(look)
    run = await finished(look, job)
    assert (run["scheduled_at"], run["status"], run["attempt"], run["result"]) == (at, 1, 1, "done")
    assert failpoints._armed[step].hits, "the failpoint was never reached"
    assert await look.fetchval("SELECT count(*) FROM live_runs") == 0
    assert await look.fetchval("SELECT count(*) FROM run_history") == 1
    assert await look.fetchval("SELECT count(*) FROM attempts") == 0, "a result was taken for a stale one"
    assert [call.token for call in called.calls] == [TOKEN], "the run was claimed, not handed over"
