"""A session that ends, in good order or not, while something stands in its way: what it had goes to others soon."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from detent.domain.identity import PARTITIONS
from detent.store import Store
from detent.store.db import connect
from detent.store.limits import REQUEST_LIMITS
from detent.store.upkeep import RUNS_CHANNEL
from tests.session.test_draining import Runs
from tests.session.test_session import soon
from tests.session.test_sharing import shared
from tests.support import factories
from tests.support.waiting import until

TTL = 1.0
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%' || $1 || '%'"


@pytest.fixture
async def other(database_url: str) -> AsyncIterator[Any]:
    """Somebody who locks rows and tables for as long as they like."""
    connection = await connect(database_url, "detent", REQUEST_LIMITS)
    await connection.execute("SET idle_in_transaction_session_timeout = 0")
    yield connection
    connection.terminate()


@pytest.fixture
async def heard(look: Any) -> AsyncIterator[list[str]]:
    """What nodes tell each other."""
    payloads: list[str] = []
    await look.add_listener(RUNS_CHANNEL, lambda *told: payloads.append(told[-1]))
    yield payloads


async def refused(look: Any, words: str) -> None:
    """A statement with these words waited for a lock, and got none."""
    await until(lambda: look.fetchval(WAITING, words), what=f"{words!r} to wait")
    await until(lambda: look.fetchval(f"SELECT ({WAITING}) = 0", words), what=f"{words!r} to fail")


async def test_a_share_that_cannot_be_handed_over_at_once_is_handed_over_while_the_last_runs_finish(
    look: Any, start: Any, other: Any
) -> None:
    runs = Runs()
    await factories.add_job(look, await soon(look))
    first = await start(runs, lease_ttl_seconds=TTL)
    await until(lambda: runs.called)
    second = await start(roles=("scheduler",), lease_ttl_seconds=TTL)
    await shared(look, first, second)
    async with other.transaction():
        await other.execute("SELECT FROM partitions WHERE holder = $1 LIMIT 1 FOR UPDATE", first.membership.node)
        closing = asyncio.create_task(first.close(60))
        await refused(look, "Graceful hand-over")
    await until(lambda: len(second.leadership.terms) == PARTITIONS, what="the share to be handed over")
    assert not closing.done()
    runs.released.set()
    await closing


async def test_runs_that_cannot_be_given_back_at_once_are_given_back_while_others_finish(
    look: Any, start: Any, other: Any, heard: list[str]
) -> None:
    runs = Runs()
    tick = await soon(look)
    for _ in range(2):
        await factories.add_job(look, tick)
    session = await start(runs, concurrency=1, lease_ttl_seconds=TTL)
    await until(lambda: look.fetchval("SELECT count(*) = 2 FROM live_runs WHERE owner IS NOT NULL"))
    await until(lambda: runs.called)
    heard.clear()
    async with other.transaction():
        await other.execute("SELECT FROM live_runs FOR UPDATE")
        closing = asyncio.create_task(session.close(60))
        await refused(look, "Return runs that were claimed")
    await until(lambda: look.fetchval("SELECT count(*) = 1 FROM live_runs WHERE owner IS NULL"))
    await until(lambda: "ready" in heard, what="the others to be told")
    assert not closing.done()
    runs.released.set()
    await closing


async def test_a_share_is_handed_over_without_waiting_for_other_work(look: Any, start: Any, other: Any) -> None:
    first, second = await start(lease_ttl_seconds=30), await start(lease_ttl_seconds=30)
    await shared(look, first, second)
    async with other.transaction():
        await other.execute("LOCK TABLE jobs")
        first.lifecycle.loop.wake()
        await until(lambda: look.fetchval(WAITING, ""), what="something that takes long")
        closing = asyncio.create_task(first.close(0))
        await until(lambda: len(second.leadership.terms) == PARTITIONS, 5, what="the share to be handed over")
    await closing


async def test_a_session_that_leaves_does_not_take_itself_for_evicted(look: Any, start: Any, other: Any) -> None:
    job = await factories.add_job(look, None)
    session = await start(roles=("scheduler",), lease_ttl_seconds=2.0)
    await factories.add_live_run(look, job, owner=session.membership.node)
    async with other.transaction():
        await other.execute("LOCK TABLE attempts")
        closing = asyncio.create_task(session.close(0))
        await refused(look, "Return the runs of an evicted node")
        await closing
    assert not session.membership.lost.is_set()


async def test_the_heartbeat_of_a_lost_membership_ends_and_its_row_with_it(look: Any, start: Any, other: Any) -> None:
    session = await start(lease_ttl_seconds=TTL)
    node = session.membership.node
    async with other.transaction():
        await other.execute("SELECT FROM nodes WHERE node = $1 FOR UPDATE", node)
        await session.membership.lost.wait()
    await until(lambda: not session._heartbeat._thread.is_alive(), 3, "the heartbeat to end")
    await look.execute("UPDATE nodes SET expires_at = now() + interval '1 hour'")  # as by a lost heartbeat
    await session.abandon()
    # Its own rescue may have evicted it before, and deleted the row.
    assert await look.fetchval("SELECT count(*) FROM nodes WHERE node = $1 AND NOT evicted", node) == 0


async def test_others_are_reported_runs_that_were_rescued(
    look: Any, start: Any, store: Store, heard: list[str]
) -> None:
    gone = await factories.add_node(look, 7, evicted=True)
    await factories.add_live_run(look, await factories.add_job(look, None), owner=gone)
    await start(roles=("scheduler",), lease_ttl_seconds=TTL)
    await until(lambda: look.fetchval("SELECT count(*) = 1 FROM live_runs WHERE owner IS NULL"))
    await until(lambda: "ready" in heard, what="the others to be told")
