"""A node that is asked to hand over: it leads nothing, takes nothing new, finishes what it runs, and may come back."""

from __future__ import annotations

import asyncio
from typing import Any

from detent.cluster.operations import ClusterOperations
from detent.domain.identity import node_name
from detent.domain.run import Call, Outcome, Succeeded
from detent.node.readiness import Readiness
from detent.node.session import Session
from detent.store import Store
from detent.store.upkeep import RUNS_CHANNEL
from tests.session.test_session import soon
from tests.support import factories
from tests.support.waiting import until


class Runs:
    """Runs that are held until they are released."""

    def __init__(self) -> None:
        self.called: list[str] = []
        self.released = asyncio.Event()

    async def __call__(self, call: Call) -> Outcome:
        self.called.append(call.run_id)
        await self.released.wait()
        return Succeeded()


async def drain(store: Store, session: Session, draining: bool = True) -> None:
    """As the API does it."""
    await ClusterOperations(store).drain(node_name(session.membership.node), draining)
    await store.upkeep.wake(RUNS_CHANNEL, "share")
    await until(lambda: session.draining is draining)


async def leads(look: Any, session: Session) -> int:
    count: int = await look.fetchval("SELECT count(*) FROM partitions WHERE holder = $1", session.membership.node)
    return count


async def test_a_draining_node_hands_its_partitions_to_the_others(look: Any, start: Any, store: Store) -> None:
    first = await start()
    second = await start()
    await until(lambda: len(first.leadership.terms) + len(second.leadership.terms) == 256)
    await drain(store, first)
    await until(lambda: len(second.leadership.terms) == 256)
    assert (await leads(look, first), await leads(look, second)) == (0, 256)
    await drain(store, first, False)
    await until(
        lambda: len(first.leadership.terms) > 50 and len(first.leadership.terms) + len(second.leadership.terms) == 256
    )


async def test_a_draining_node_finishes_what_runs_and_gives_back_the_rest(look: Any, start: Any, store: Store) -> None:
    runs = Runs()
    tick = await soon(look)
    for _ in range(4):
        await factories.add_job(look, tick)
    session = await start(runs, concurrency=2)
    await until(lambda: len(runs.called) == 2)
    await until(lambda: look.fetchval("SELECT count(*) = 4 FROM live_runs WHERE owner IS NOT NULL"))
    await drain(store, session)
    await until(lambda: look.fetchval("SELECT count(*) = 2 FROM live_runs WHERE owner IS NULL"))
    runs.released.set()
    await until(lambda: look.fetchval("SELECT count(*) = 2 FROM run_history WHERE status = 1"))
    assert len(runs.called) == 2
    waiting = await look.fetch("SELECT owner, attempt, crashes FROM live_runs")
    assert [tuple(row) for row in waiting] == [(None, 1, 0)] * 2
    await drain(store, session, False)
    await until(lambda: look.fetchval("SELECT count(*) = 4 FROM run_history WHERE status = 1"))
    assert await look.fetchval("SELECT count(*) FROM attempts") == 0


async def test_a_draining_worker_is_handed_nothing_and_claims_nothing(look: Any, start: Any, store: Store) -> None:
    draining = await start(Runs())
    await drain(store, draining)
    runs = Runs()
    runs.released.set()
    other = await start(runs)
    job = await factories.add_job(look, await soon(look))
    other.scheduler.jobs_changed({job})  # its first sweep may have come before
    await until(lambda: look.fetchval("SELECT count(*) = 1 FROM run_history WHERE job = $1", job))
    assert await look.fetchval("SELECT node FROM run_history") == other.membership.node
    assert draining.worker.free_capacity == 0


async def test_a_draining_node_is_not_ready_and_says_why(start: Any, store: Store) -> None:
    session = await start()
    ready = Readiness(("scheduler", "worker"), lambda: store, lambda: session, lambda: False)
    await until(lambda: len(session.leadership.terms) == 256)
    checks = await ready()
    assert all(check.ok for check in checks.values()), checks
    assert checks["partitions"].why == "It leads 256 of 256."
    await drain(store, session)
    checks = await ready()
    assert [name for name, check in checks.items() if not check.ok] == ["not draining"]
    assert "--undo" in checks["not draining"].why


async def test_what_is_not_there_is_reported_by_the_checks(start: Any, store: Store, look: Any) -> None:
    lost = Readiness(("scheduler",), lambda: None, lambda: None, lambda: True)
    checks = await lost()
    assert {name for name, check in checks.items() if not check.ok} == {"database", "member", "not draining"}
    await look.execute("UPDATE cluster SET held_at = now(), held_by = 'ann', held_reason = 'secret plans'")
    api = Readiness(("api",), lambda: store, lambda: None, lambda: False)
    held = (await api())["ticks"]
    assert (held.ok, held.needed) == (False, False)
    assert "secret" not in held.why and "ann" not in held.why


async def test_elections_are_purged_after_a_month_but_for_the_leader_of_each_partition_then(
    store: Store, look: Any
) -> None:
    for partition, days in ((1, 29), (1, 31), (1, 32), (2, 90), (2, 91)):
        await look.execute(
            "INSERT INTO elections (partition, term, node, nomination, at)"
            " VALUES ($1, 100 - $2::integer, 7, 0, now() - make_interval(days => $2::integer))",
            partition,
            days,
        )
    await store.cluster.purge_elections()
    kept = await look.fetch("SELECT partition, 100 - term AS days FROM elections ORDER BY partition, term DESC")
    assert [tuple(row) for row in kept] == [(1, 29), (1, 31), (2, 90)]
