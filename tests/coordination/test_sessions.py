"""Whole sessions under every coordinator: they share the partitions, and whatever becomes of the service, each tick has
one run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

import pytest

from detent.cluster.rendezvous import share
from detent.domain.identity import PARTITIONS
from detent.domain.states import CODES, RunStatus
from detent.node.session import Session
from tests.support import factories
from tests.support.servers import Server
from tests.support.waiting import until

# The contract and the connections are in the short profile; whole sessions take their time.
pytestmark = pytest.mark.long

TTL = 1.0
# What depends on leadership more than on the service is shown with one of them in the short run.
IN_TURN = ["etcd", *(pytest.param(name, marks=pytest.mark.long) for name in ("zookeeper", "redis"))]
Start = Callable[..., Awaitable[Session]]


class Ticking:
    """Jobs of every second, and what the history says of them."""

    def __init__(self, look: Any, jobs: list[int]) -> None:
        self.look = look
        self.jobs = jobs

    async def go_on(self, ticks: int = 1) -> None:
        """Every job has runs of so many more ticks that are yet to come."""
        now = await self.look.fetchval("SELECT now()")
        counts = "SELECT count(h.job) AS n FROM jobs j LEFT JOIN run_history h ON h.job = j.job AND h.scheduled_at > $1"
        enough = f"SELECT min(n) >= $2 FROM ({counts} GROUP BY j.job) c"
        await until(lambda: self.look.fetchval(enough, now, ticks), 20, what=f"{ticks} more runs of every job")

    async def end(self) -> None:
        """No tick is missing, none has two runs, and all succeeded, or found their predecessor unfinished where the
        machine is slow."""
        await self.look.execute("UPDATE cursors SET next_tick = NULL, fire_at = NULL, generation = generation + 1")
        await until(lambda: self.look.fetchval("SELECT count(*) = 0 FROM live_runs"), what="the last runs")
        for job in self.jobs:
            rows = await self.look.fetch("SELECT scheduled_at, status FROM run_history WHERE job = $1 ORDER BY 1", job)
            ticks: list[datetime] = [row["scheduled_at"] for row in rows]
            expected = int((ticks[-1] - ticks[0]).total_seconds()) + 1
            assert len(ticks) == len(set(ticks)) == expected, "a tick is missing or doubled"
            assert {row["status"] for row in rows} <= {CODES[RunStatus.SUCCEEDED], CODES[RunStatus.SKIPPED]}


@pytest.fixture
async def ticking(look: Any) -> Ticking:
    now = await look.fetchval("SELECT date_trunc('second', now())")
    document = {"schedule": "every 1s", "target": {"type": "http", "url": "http://127.0.0.1:9/"}}
    return Ticking(look, [await factories.add_job(look, now, definition=document) for _ in range(16)])


async def shared(look: Any, *sessions: Session) -> None:
    """Every partition is held by the session to whom it belongs, and that session knows it."""
    nodes = [session.membership.node for session in sessions]

    async def settled() -> bool:
        rows = await look.fetch("SELECT partition, holder FROM partitions")
        held = {node: {row["partition"] for row in rows if row["holder"] == node} for node in nodes}
        return all(
            held[s.membership.node] == share(s.membership.node, nodes) == set(s.leadership.terms) for s in sessions
        )

    await until(settled, 20, what="the partitions to be shared")


async def numbered(look: Any) -> None:
    """Every partition is led under a nomination that the database knows."""
    await until(lambda: look.fetchval("SELECT min(nomination) > 0 FROM partitions"), 20, what="nominations on record")


async def test_sessions_share_the_partitions_and_hand_them_over(
    look: Any, start: Start, coordinator: str, ticking: Ticking
) -> None:
    first = await start(coordinator, TTL)
    second = await start(coordinator, TTL)
    await shared(look, first, second)
    await ticking.go_on()
    await first.close(1)
    await shared(look, second)
    third = await start(coordinator, TTL)
    await shared(look, second, third)
    await ticking.end()
    if third.coordinator.numbered:
        await numbered(look)


async def test_firing_goes_on_without_the_service_and_the_dead_are_replaced(
    look: Any, start: Start, server: Server, ticking: Ticking
) -> None:
    first, second = await start(server.url, TTL), await start(server.url, TTL)
    await shared(look, first, second)
    await ticking.go_on()
    led = dict(first.leadership.terms), dict(second.leadership.terms)
    server.kill()
    await until(lambda: first.leadership.coordinator_missing and second.leadership.coordinator_missing)
    await ticking.go_on(2)
    assert (first.leadership.terms, second.leadership.terms) == led

    third = await start(server.url, TTL)
    await second.abandon()  # which cannot resign: for the service, and for the others, it is as if it had been killed
    await until(lambda: len(first.leadership.terms | third.leadership.terms) == PARTITIONS, 20, "an adoption")
    assert led[0].items() <= first.leadership.terms.items(), "nothing is given up that another could not take"
    await ticking.go_on()

    await asyncio.to_thread(server.start)  # beside the sessions, whose loop it would hold up
    await shared(look, first, third)
    await numbered(look)
    await ticking.end()


@pytest.mark.parametrize("server", IN_TURN, indirect=True)
async def test_a_session_starts_without_the_service(look: Any, start: Start, server: Server, ticking: Ticking) -> None:
    server.kill()
    first, second = await start(server.url, TTL), await start(server.url, TTL)
    await ticking.go_on()
    assert first.leadership.coordinator_missing and second.leadership.coordinator_missing
    await asyncio.to_thread(server.start)
    await shared(look, first, second)
    await numbered(look)
    await ticking.end()


@pytest.mark.parametrize("server", IN_TURN, indirect=True)
async def test_a_service_that_counts_from_below_is_believed_again(look: Any, start: Start, server: Server) -> None:
    """Restored from a backup, or another one than before: its numbers are smaller than those on record."""
    await look.execute("UPDATE partitions SET nomination = $1", 1 << 62)
    session = await start(server.url, TTL)
    await shared(look, session)
    below = "SELECT max(nomination) < $1 AND min(nomination) > 0 FROM partitions"
    await until(lambda: look.fetchval(below, 1 << 62), 20, what="new nominations on record")


async def test_a_lock_connection_that_is_cut_costs_no_tick(look: Any, start: Start, ticking: Ticking) -> None:
    first, second = await start("advisory", TTL), await start("advisory", TTL)
    await shared(look, first, second)
    holders = "SELECT DISTINCT pid FROM pg_locks WHERE locktype = 'advisory'"
    cut = await look.fetch(f"SELECT pg_terminate_backend(pid) FROM ({holders}) h")
    assert len(cut) == 2
    await ticking.go_on()
    await shared(look, first, second)
    await ticking.end()
