"""Several sessions on one database: who leads what, and how it changes hands."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

from detent.cluster.hints import Hints
from detent.cluster.leadership import WAITING_PASSES_PER_TTL
from detent.cluster.rendezvous import share
from detent.domain.identity import PARTITIONS
from detent.domain.run import Call, Outcome, Succeeded
from detent.node.session import Session
from detent.runtime.service import Loop
from detent.runtime.wakeups import Wakeups
from detent.store import Store
from detent.store.db import POOLS, PoolName
from tests.support import factories
from tests.support.waiting import until

TTL = 1.0
LANES = 10
PATIENCE = 60.0


async def holders(look: Any) -> Counter[int | None]:
    return Counter(row["holder"] for row in await look.fetch("SELECT holder FROM partitions"))


async def shared(look: Any, *sessions: Session) -> None:
    """Every partition is held by the session to whom it belongs, and that session knows it."""
    nodes = [session.membership.node for session in sessions]

    async def settled() -> bool:
        rows = await look.fetch("SELECT partition, holder FROM partitions")
        held = {node: {row["partition"] for row in rows if row["holder"] == node} for node in nodes}
        return all(
            held[s.membership.node] == share(s.membership.node, nodes) == set(s.leadership.terms) for s in sessions
        )

    await until(settled, what="the partitions to be shared")


async def test_two_sessions_share_all_partitions_between_them(look: Any, start: Any) -> None:
    first = await start(lease_ttl_seconds=TTL)
    await until(lambda: len(first.leadership.terms) == PARTITIONS)
    second = await start(lease_ttl_seconds=TTL)
    await shared(look, first, second)
    assert sum((await holders(look)).values()) == PARTITIONS
    assert set(await holders(look)) == {first.membership.node, second.membership.node}


async def test_only_the_share_that_moves_gets_a_new_term(look: Any, start: Any) -> None:
    first, second = await start(lease_ttl_seconds=TTL), await start(lease_ttl_seconds=TTL)
    await shared(look, first, second)
    before = first.leadership.terms | second.leadership.terms
    third = await start(lease_ttl_seconds=TTL)
    await shared(look, first, second, third)
    after = first.leadership.terms | second.leadership.terms
    assert all(before[partition] == term for partition, term in after.items())
    assert all(term > before[partition] for partition, term in third.leadership.terms.items())


async def test_a_session_that_closes_hands_its_share_to_the_others(look: Any, start: Any) -> None:
    first, second = await start(lease_ttl_seconds=30), await start(lease_ttl_seconds=30)
    await shared(look, first, second)
    await second.close(0)
    await shared(look, first)  # long before the lease would have ended


async def test_the_share_of_a_session_that_vanished_is_taken_when_its_lease_ends(look: Any, start: Any) -> None:
    first, second = await start(lease_ttl_seconds=TTL), await start(lease_ttl_seconds=TTL)
    await shared(look, first, second)
    await second.abandon()
    await shared(look, first)


async def test_a_worker_without_the_scheduler_role_leads_nothing_but_frees_what_the_dead_held(
    look: Any, start: Any
) -> None:
    worker = await start(roles=("worker",), lease_ttl_seconds=TTL)
    scheduler = await start(lease_ttl_seconds=TTL)
    await shared(look, scheduler)
    await scheduler.abandon()
    gone = "SELECT count(*) FROM nodes WHERE evicted"
    await until(lambda: look.fetchval(gone), what="the eviction")
    assert worker.leadership.terms == {}


async def test_jobs_fire_once_each_tick_while_sessions_come_and_go(look: Any, start: Any) -> None:
    """The jobs allow overlap: a session that is abandoned may hold a run, and until that is rescued it is not over, so
    a job that does not allow overlap would skip its tick. Here it always holds some."""
    now = await look.fetchval("SELECT date_trunc('second', now())")
    document: dict[str, Any] = {"schedule": "every 1s", "target": {"type": "http", "url": "http://127.0.0.1:9/"}}
    document |= {"concurrent_policy": "ALLOW", "max_concurrent": LANES}
    jobs = [await factories.add_job(look, now, definition=document, lanes=LANES) for _ in range(20)]
    calls: Counter[str] = Counter()
    holding, held = asyncio.Event(), asyncio.Event()

    async def note(call: Call) -> Outcome:
        calls[call.run_id] += 1
        return Succeeded()

    async def note_or_hold(call: Call) -> Outcome:
        if holding.is_set():
            calls[call.run_id] += 1
            held.set()
            await asyncio.Event().wait()
        return await note(call)

    async def ran(ticks: int) -> None:
        counts = "SELECT count(h.job) AS n FROM jobs j LEFT JOIN run_history h USING (job) GROUP BY j.job"
        enough = f"SELECT min(n) >= $1 FROM ({counts}) c"
        await until(lambda: look.fetchval(enough, ticks), PATIENCE, f"{ticks} runs of every job")

    first = await start(note, lease_ttl_seconds=TTL)
    await ran(1)
    second = await start(note_or_hold, lease_ttl_seconds=TTL)
    await ran(3)
    await first.close(1)
    await start(note, lease_ttl_seconds=TTL)
    await ran(5)
    holding.set()
    await asyncio.wait_for(held.wait(), PATIENCE)
    await second.abandon()
    await ran(9)
    await look.execute("UPDATE cursors SET next_tick = NULL, fire_at = NULL, generation = generation + 1")
    await until(lambda: look.fetchval("SELECT count(*) = 0 FROM live_runs"), PATIENCE, "the last runs")
    for job in jobs:
        rows = await look.fetch("SELECT scheduled_at, status, reason FROM run_history WHERE job = $1 ORDER BY 1", job)
        ticks = [row["scheduled_at"] for row in rows]
        seconds = int((ticks[-1] - ticks[0]).total_seconds())
        assert len(ticks) == len(set(ticks)) == seconds + 1, "a tick is missing or doubled"
        assert {(row["status"], row["reason"]) for row in rows} == {(1, None)}
    # Two only where a call was under way when its session was abandoned, which was so of at least one.
    assert set(calls.values()) == {1, 2}


async def test_a_session_that_is_drained_hands_over_and_keeps_its_membership(look: Any, start: Any) -> None:
    first, second = await start(lease_ttl_seconds=TTL), await start(lease_ttl_seconds=TTL)
    await shared(look, first, second)
    await look.execute("UPDATE nodes SET draining = true WHERE node = $1", second.membership.node)
    await shared(look, first)
    assert second.leadership.terms == {} and second.membership.trusted
    await look.execute("UPDATE nodes SET draining = false")
    await shared(look, first, second)


async def test_a_partition_that_its_owner_does_not_take_is_taken_by_another(look: Any, start: Any) -> None:
    """A node that is alive and cannot lead: its heartbeat goes on, its leadership does not."""
    first, second = await start(lease_ttl_seconds=TTL), await start(lease_ttl_seconds=TTL)
    await shared(look, first, second)
    await second.leadership.loop.stop()
    await look.execute("UPDATE partitions SET holder = NULL WHERE holder = $1", second.membership.node)
    await until(lambda: len(first.leadership.terms) == PARTITIONS, what="the orphans to be taken")


async def test_partitions_that_a_session_holds_unknowingly_go_to_their_owner(look: Any, start: Any) -> None:
    """The reply to its taking was lost, and before the next pass another node joined."""
    first, second = await start(lease_ttl_seconds=TTL), await start(lease_ttl_seconds=TTL)
    await shared(look, first, second)
    nodes = first.membership.node, second.membership.node
    await look.execute("UPDATE partitions SET holder = $1 WHERE holder = $2", *nodes)
    await shared(look, first, second)


async def test_an_orphan_whose_adoption_was_not_answered_is_led_after_all(look: Any, start: Any) -> None:
    first, second = await start(lease_ttl_seconds=TTL), await start(lease_ttl_seconds=TTL)
    await shared(look, first, second)
    await second.leadership.loop.stop()
    await look.execute("UPDATE partitions SET holder = NULL WHERE holder = $1", second.membership.node)
    await until(lambda: len(first.leadership.terms) == PARTITIONS, what="the orphans to be taken")
    for partition in share(second.membership.node, [first.membership.node, second.membership.node]):
        del first.leadership.terms[partition]
    await until(lambda: len(first.leadership.terms) == PARTITIONS, what="the orphans to be taken again")


async def test_a_session_that_closes_leaves_nothing_that_it_holds_without_knowing(look: Any, start: Any) -> None:
    session = await start(lease_ttl_seconds=30)
    await shared(look, session)
    await session.leadership.loop.stop()
    session.leadership.terms.clear()
    await session.close(0)
    assert set(await holders(look)) == {None}
    assert await look.fetchval("SELECT count(*) FROM nodes") == 0


async def test_a_session_that_waits_for_its_share_polls_often(look: Any, start: Any) -> None:
    """Others tell when they have given it up, which it may not hear."""
    first = await start(lease_ttl_seconds=30)
    await shared(look, first)
    await first.leadership.loop.stop()
    second = await start(lease_ttl_seconds=30)
    assert await second.leadership.tick() <= 30 / WAITING_PASSES_PER_TTL
    first.leadership.loop = Loop("leadership", first.leadership.tick)
    first.leadership.loop.start()
    await shared(look, first, second)
    assert await second.leadership.tick() > 30 / WAITING_PASSES_PER_TTL


async def test_a_new_listener_reads_everything_it_may_have_missed(store: Store) -> None:
    called: list[str] = []

    wakeups = Wakeups()
    wakeups.jobs_changed.subscribe(lambda _jobs: called.append("jobs"))
    wakeups.runs_ready.subscribe(lambda: called.append("runs"))
    wakeups.runs_cancelled.subscribe(lambda: called.append("cancelled"))
    wakeups.share_changed.subscribe(lambda: called.append("share"))
    wakeups.hold_changed.subscribe(lambda: called.append("hold"))
    hints = Hints(store, wakeups)
    await hints.tick()
    assert set(called) == {"jobs", "runs", "cancelled", "share", "hold"}
    called.clear()
    await hints.tick()
    assert called == []
    await hints.close()


async def test_a_share_is_taken_also_where_all_connections_for_work_are_in_use(
    look: Any, start: Any, store: Store
) -> None:
    session = await start(lease_ttl_seconds=30)
    await shared(look, session)
    await session.leadership.loop.stop()
    gone = await factories.add_node(look, 7, evicted=True)
    await look.execute("UPDATE partitions SET holder = $1", gone)
    async with AsyncExitStack() as busy:
        for _ in range(POOLS[PoolName.WORK][0]):
            await busy.enter_async_context(store.database.connection(PoolName.WORK))
        await session.leadership.tick()
    await shared(look, session)
