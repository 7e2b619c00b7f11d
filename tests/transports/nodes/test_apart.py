"""Schedulers and workers apart, with a broker between them: everything that works through PostgreSQL works here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from detent.cluster.operations import ClusterOperations
from detent.domain.identity import RunKey, node_name
from detent.domain.offer import QueueOffer, RunOffer
from detent.domain.run import Claim
from detent.node.session import Session
from detent.store import Store
from detent.store.live_runs import LiveRunStore
from detent.store.offers import OfferStore
from detent.store.queues import RunLimits
from detent.store.upkeep import RUNS_CHANNEL
from tests.session.test_session import document, soon
from tests.support import factories, tenants
from tests.support.waiting import until
from tests.transports.carriers import Carrier
from tests.transports.conftest import Connect
from tests.transports.nodes.conftest import Apart


@pytest.fixture
def claims(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The limits of the claims by priority that workers send to PostgreSQL."""
    sent: list[int] = []
    usual = LiveRunStore.claim

    async def claim(
        self: LiveRunStore, node: int, incarnation: int, queues: Sequence[int], limit: int, **way: Any
    ) -> Any:
        sent.append(limit)
        return await usual(self, node, incarnation, queues, limit, **way)

    monkeypatch.setattr(LiveRunStore, "claim", claim)
    return sent


@pytest.fixture
def by_key(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The jobs whose runs workers have claimed by key."""
    jobs: list[int] = []
    usual = OfferStore.claim

    async def claim(self: OfferStore, node: int, incarnation: int, offers: Sequence[RunOffer]) -> list[Claim]:
        claims = await usual(self, node, incarnation, offers)
        jobs.extend(claim.job for claim in claims)
        return claims

    monkeypatch.setattr(OfferStore, "claim", claim)
    return jobs


async def drain(store: Store, session: Session) -> None:
    await ClusterOperations(store).drain(node_name(session.membership.node), True)
    await store.upkeep.wake(RUNS_CHANNEL, "share")
    await until(lambda: session.draining)


async def test_every_tick_is_one_run_that_was_offered_and_neither_announced_nor_searched_for(
    apart: Apart, look: Any, carrier: Carrier, announced: list[str], claims: list[int]
) -> None:
    await factories.add_job(look, await soon(look))
    scheduler, worker = await apart.scheduler(), await apart.worker()
    await apart.ended(1)
    claims.clear()
    announced.clear()
    tick = await soon(look, 1.0)
    for _ in range(20):
        await factories.add_job(look, tick)
    scheduler.scheduler.jobs_changed(None)
    ticks = [row["scheduled_at"] for row in await apart.ended(21)]
    assert ticks.count(tick) == 20
    assert apart.target.called_once_each(21)
    assert announced == []
    assert claims == []
    if not carrier.may_double:
        # Each of the 20 was claimed by an offer. Only others can be stale: those of the first run, which the worker may
        # have found when it started, and those that the scan repeats while a slow machine leaves a run waiting for 2 s.
        sent, stale = scheduler._metrics, worker._metrics
        await until(lambda: stale.offers_stale <= sent.offers_sent - 20, what="no more offers than were sent")
    await until(lambda: scheduler._metrics.offers_sent >= 20)
    assert await look.fetchval("SELECT count(*) FROM live_runs") == 0


async def test_a_retry_is_offered_to_another_worker_when_it_is_due(apart: Apart, look: Any, store: Store) -> None:
    apart.target.failing = 1
    definition = document(max_retries=2, retry_max_seconds=3600)
    job = await factories.add_job(look, await soon(look), definition=definition)
    await apart.scheduler()
    first = await apart.worker()
    await until(lambda: look.fetchval("SELECT count(*) = 1 FROM live_runs WHERE attempt = 2 AND owner IS NULL"))
    second = await apart.worker()
    await drain(store, first)
    due = await soon(look, 1.0)
    await look.execute("UPDATE live_runs SET not_before = $1", due)  # far from due until here
    (run,) = await apart.ended(1)
    assert (run["job"], run["attempt"], run["node"]) == (job, 2, second.membership.node)
    assert run["started_at"] >= due
    assert len(set(apart.target.runs)) == 1
    assert second._metrics.offers_taken >= 1


async def test_runs_that_wait_for_a_full_worker_start_by_priority(apart: Apart, look: Any) -> None:
    apart.target.gate.clear()
    tick = await soon(look)
    for _ in range(4):  # two run, two wait in memory
        await factories.add_job(look, tick)
    scheduler, _ = await apart.scheduler(), await apart.worker(concurrency=2)
    await until(lambda: look.fetchval("SELECT count(*) = 4 FROM live_runs WHERE owner IS NOT NULL"))
    jobs = {}
    for priority in (1, 8):
        later = await soon(look, 0.0)
        jobs[priority] = {await factories.add_job(look, later, priority=priority) for _ in range(4)}
        scheduler.scheduler.jobs_changed(None)
        await apart.waiting(4 if priority == 1 else 8)
    apart.target.gate.set()
    await apart.ended(12)
    assert set(apart.target.jobs[4:8]) == jobs[8]
    assert set(apart.target.jobs[8:]) == jobs[1]


async def test_a_limit_of_a_queue_holds(apart: Apart, look: Any, store: Store) -> None:
    await store.queues.limit("default", RunLimits(2, None), tenant=1)
    tick = await soon(look)
    for _ in range(6):
        await factories.add_job(look, tick)
    await apart.scheduler()
    await apart.worker()
    await apart.worker()
    await apart.ended(6)
    assert apart.target.most <= 2
    assert apart.target.called_once_each(6)


async def test_a_limit_of_one_queue_leaves_the_runs_of_others_to_be_claimed_by_key(
    apart: Apart, look: Any, store: Store, by_key: list[int]
) -> None:
    mail = await factories.add_queue(look, "mail")
    await store.queues.limit("mail", RunLimits(1, None), tenant=1)
    tick = await soon(look)
    limited = [await factories.add_job(look, tick, queue=mail) for _ in range(4)]
    for _ in range(6):
        await factories.add_job(look, tick)
    scheduler = await apart.scheduler()
    workers = [await apart.worker(queues=("default", "mail")) for _ in range(2)]
    ended = [run for run in await apart.ended(10) if run["job"] in limited]
    spans = sorted((run["started_at"], run["finished_at"]) for run in ended)
    assert all(finished <= started for (_, finished), (started, _) in pairwise(spans))
    assert all(session.worker is not None and not session.worker._claiming.direct for session in workers)
    tick = await soon(look, 1.0)
    others = {await factories.add_job(look, tick) for _ in range(20)}
    scheduler.scheduler.jobs_changed(None)
    await apart.ended(30)
    assert not set(by_key) & set(limited)
    assert len(set(by_key) & others) >= 15  # a late search under the limit may find a few of them
    assert apart.target.called_once_each(30)


async def test_tenants_share_a_worker_by_their_weights(apart: Apart, look: Any, store: Store) -> None:
    """A worker that claims by key would take the offers of the tenant that had more of them."""
    apart.target.gate.clear()
    other = await tenants.add_tenant(store, "other")
    many: list[int] = []
    few: list[int] = []
    for tenant, count, jobs in ((1, 12, many), (other, 2, few)):
        for number in range(count):
            job, _ = await tenants.add_job(store, look, tenant, f"job-{number}")
            jobs.append(job)
    tick = await soon(look, 0.0)
    await look.execute("UPDATE cursors SET next_tick = $1, fire_at = $1 WHERE job = ANY ($2)", tick, many)
    scheduler = await apart.scheduler()
    await apart.waiting(12)
    await look.execute("UPDATE cursors SET next_tick = $1, fire_at = $1 WHERE job = ANY ($2)", tick, few)
    scheduler.scheduler.jobs_changed(None)
    await apart.waiting(14)
    await apart.worker(concurrency=4)
    await until(lambda: apart.target.running == 4)
    assert set(few) & set(apart.target.jobs)
    apart.target.gate.set()
    await apart.ended(14)
    assert apart.target.called_once_each(14)


async def test_a_run_that_was_offered_and_cancelled_is_not_called(apart: Apart, look: Any, store: Store) -> None:
    tick = await soon(look)
    job = await factories.add_job(look, tick)
    scheduler = await apart.scheduler()
    await apart.waiting(1)
    await until(lambda: scheduler._metrics.offers_sent)
    assert await store.live_runs.cancel([RunKey(job, tick)]) == {RunKey(job, tick): None}
    worker = await apart.worker()
    await until(lambda: worker._metrics.offers_stale)
    assert len(await apart.ended(1, status=3)) == 1
    assert apart.target.calls == []


async def test_the_queue_of_on_demand_runs_is_offered(
    apart: Apart, look: Any, connect: Connect, cluster_of: str
) -> None:
    await factories.add_task(look, name="mail")
    scheduler = await apart.scheduler()
    runs = json.dumps([{"payload": {"number": number}} for number in range(10)])
    await look.fetch("SELECT * FROM enqueue_many('mail', $1)", runs)
    await until(lambda: scheduler._metrics.offers_sent, what="an offer")
    program = await connect(cluster_of)
    queue = await look.fetchval("SELECT queue FROM backlog LIMIT 1")
    (taken,) = await program.take([queue], 10, await look.fetchval("SELECT now()"), 2.0)
    assert isinstance(taken.offer, QueueOffer)
    await program.give_back([taken])
    worker = await apart.worker()
    await apart.ended(10)
    assert apart.target.called_once_each(10)
    await until(lambda: worker._metrics.offers_taken)


async def test_a_worker_that_drains_takes_no_offer(apart: Apart, look: Any, store: Store) -> None:
    await factories.add_job(look, await soon(look, 3600))
    scheduler = await apart.scheduler()
    draining, other = await apart.worker(), await apart.worker()
    await drain(store, draining)
    tick = await soon(look)
    for _ in range(10):
        await factories.add_job(look, tick)
    scheduler.scheduler.jobs_changed(None)
    assert {row["node"] for row in await apart.ended(10)} == {other.membership.node}
    await other.close(0)
    assert draining._metrics.offers_taken == 0


async def test_while_all_ticks_are_paused_nothing_is_offered(apart: Apart, look: Any, store: Store) -> None:
    operations = ClusterOperations(store)
    await operations.pause_ticks("test", "a test")
    tick = await soon(look, 0.0)
    job = await factories.add_job(look, tick)
    scheduler, _ = await apart.scheduler(), await apart.worker()
    await until(lambda: scheduler.membership.held)
    assert scheduler._metrics.offers_sent == 0
    await operations.resume_ticks()
    (run,) = await apart.ended(1)
    assert (run["job"], run["scheduled_at"]) == (job, tick)
