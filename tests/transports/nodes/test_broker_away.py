"""A broker that dies, comes back, loses everything, or delivers what it should not: runs go through PostgreSQL."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable
from datetime import datetime
from typing import Any

import msgspec
import pytest

from detent.domain.offer import RunOffer
from detent.node.session import Session
from detent.scheduler import offering
from detent.transports import redis
from detent.transports.transport import Transport, TransportAwayError
from tests.session.test_session import soon
from tests.support import factories
from tests.support.relay import Relay, relay_to
from tests.support.waiting import until
from tests.transports.carriers import Carrier
from tests.transports.conftest import Connect
from tests.transports.nodes.conftest import Apart


def _can_be_killed(carrier: Carrier) -> None:
    if not carrier.broker.can_restart:
        pytest.skip(f"{carrier.broker.name} runs in the process of the test")


async def add_ticks(look: Any, scheduler: Session, count: int, seconds: float = 0.3) -> datetime:
    tick = await soon(look, seconds)
    for _ in range(count):
        await factories.add_job(look, tick)
    scheduler.scheduler.jobs_changed(None)
    return tick


async def test_while_the_broker_is_dead_runs_go_through_postgresql_and_then_through_it_again(
    apart: Apart, look: Any, carrier: Carrier, announced: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    _can_be_killed(carrier)
    await factories.add_job(look, await soon(look))
    scheduler, worker = await apart.scheduler(), await apart.worker()
    await apart.ended(1)
    await asyncio.sleep(carrier.settle_seconds)
    carrier.broker.kill()
    await add_ticks(look, scheduler, 10)
    await apart.ended(11)
    await until(lambda: not scheduler.link.up and not worker.link.up, carrier.away_seconds)
    await until(lambda: "ready" in announced)
    assert scheduler._metrics.transport_fallbacks == worker._metrics.transport_fallbacks == 1
    await add_ticks(look, scheduler, 5)
    await apart.ended(16)
    carrier.broker.ensure()
    await until(lambda: scheduler.link.up and worker.link.up, 30)
    runs = 16

    async def all_were_offered() -> bool:
        """Not always at once: RabbitMQ accepts connections before its queues answer, a worker of Kafka waits for its
        partitions, and the last poll of the worker comes within a second."""
        nonlocal runs
        announced.clear()
        runs, before = runs + 10, worker._metrics.offers_taken
        await add_ticks(look, scheduler, 10)
        await apart.ended(runs)
        return announced == [] and worker._metrics.offers_taken >= before + 10

    await until(all_were_offered, 60, "runs to go through the broker again")
    assert apart.target.called_once_each(runs)
    log = capsys.readouterr().out
    losses = scheduler._metrics.transport_fallbacks + worker._metrics.transport_fallbacks
    assert log.count("the broker is away") == losses
    assert 2 <= log.count("the broker is back") <= losses


async def test_a_node_starts_while_the_broker_is_away(apart: Apart, look: Any, carrier: Carrier) -> None:
    _can_be_killed(carrier)
    carrier.broker.kill()
    await factories.add_job(look, await soon(look))
    scheduler, worker = await apart.scheduler(), await apart.worker()
    await apart.ended(1)
    assert not scheduler.link.up
    carrier.broker.ensure()
    await until(lambda: scheduler.link.up and worker.link.up, 30)


@pytest.mark.long
async def test_a_broker_that_stops_in_the_middle_delays_nothing_for_long(
    apart: Apart, look: Any, carrier: Carrier
) -> None:
    """As a machine that hangs: its connections stay open and nothing is answered."""
    if not carrier.relayed:
        pytest.skip(f"{carrier.broker.name} tells its clients where to connect")
    async with relay_to(carrier.broker.port) as relay:
        apart.address = carrier.address(port=relay.port)
        await factories.add_job(look, await soon(look))
        scheduler, worker = await apart.scheduler(), await apart.worker()
        await apart.ended(1)
        relay.answers = False
        await add_ticks(look, scheduler, 10)
        await apart.ended(11)
        await until(lambda: not scheduler.link.up and not worker.link.up, 20)
        relay.answers = True
        relay.cut()
        await until(lambda: scheduler.link.up and worker.link.up, 30)
        await add_ticks(look, scheduler, 10)
        await apart.ended(21)
        assert apart.target.called_once_each(21)
        await scheduler.close(0)
        await worker.close(0)


async def test_what_an_emptied_broker_lost_is_offered_again(
    apart: Apart, look: Any, carrier: Carrier, connect: Connect, cluster_of: str
) -> None:
    """By the scan: here no worker polls, and nothing is announced."""
    scheduler = await apart.scheduler()
    await add_ticks(look, scheduler, 5)
    await until(lambda: scheduler._metrics.offers_sent == 5)
    await carrier.empty(cluster_of)
    await until(lambda: scheduler._metrics.offers_sent >= 10, 20)
    program = await connect(cluster_of)
    waiting = {row["job"] for row in await look.fetch("SELECT job FROM live_runs")}

    async def all_of_them() -> bool:
        taken = await program.take([1], 10, await look.fetchval("SELECT now()"), 1.0)
        waiting.difference_update(one.offer.job for one in taken if isinstance(one.offer, RunOffer))
        return not waiting

    await until(all_of_them, 20)


async def test_doubled_reordered_and_stale_offers_start_each_run_once(
    apart: Apart, look: Any, connect: Connect, cluster_of: str
) -> None:
    scheduler = await apart.scheduler()
    tick = await add_ticks(look, scheduler, 20)
    await apart.waiting(20)
    rows = await look.fetch("SELECT queue, job, lane, scheduled_at, serial, token, revision, priority FROM live_runs")
    offers = [RunOffer(**row, due=tick) for row in rows]
    stale = [msgspec.structs.replace(offer, token=offer.token - 1) for offer in offers]
    gone = [msgspec.structs.replace(offer, job=offer.job + 1000) for offer in offers]
    # A broker that recognizes the same offer is given different ones of the same run.
    doubled = [msgspec.structs.replace(offer, run_id=str(copy)) for offer in offers for copy in range(3)]
    sent = [*stale, *gone, *doubled]
    random.Random(22).shuffle(sent)
    broker = await connect(cluster_of)
    await broker.send(sent)
    workers = [await apart.worker(concurrency=3) for _ in range(2)]
    await apart.ended(20)
    await until(lambda: sum(one._metrics.offers_taken for one in workers) >= len(sent), 20)
    assert apart.target.called_once_each(20)
    assert await look.fetchval("SELECT count(*) FROM attempts WHERE outcome = 'stale'") == 0


async def test_offers_with_numbers_that_no_run_has_are_dropped(
    apart: Apart, look: Any, connect: Connect, cluster_of: str
) -> None:
    scheduler = await apart.scheduler()
    tick = await add_ticks(look, scheduler, 5)
    await apart.waiting(5)
    await until(lambda: scheduler._metrics.offers_sent >= 5)
    (queue,) = {row["queue"] for row in await look.fetch("SELECT queue FROM live_runs")}
    strange = [RunOffer(queue, job, lane, tick, 0, 1, 1, 5, tick) for job, lane in ((2**70, 0), (1, 2**40), (1, -1))]
    broker = await connect(cluster_of)
    await broker.send(strange)
    worker = await apart.worker()
    await apart.ended(5)
    await until(lambda: worker._metrics.offers_taken >= len(strange))
    await until(lambda: _has_none(broker, queue), what="the offers to be gone")
    assert apart.target.called_once_each(5)


async def _has_none(broker: Transport, queue: int) -> bool:
    return (await broker.depth([queue]))[queue].offers == 0


@pytest.fixture
async def hanging(carrier: Carrier, apart: Apart, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Relay]:
    """A relay to Redis. When it stops to answer, calls end after a minute, and so not by themselves in a test."""
    if carrier.broker_name != "redis":
        pytest.skip("the same with all brokers")
    monkeypatch.setattr(redis, "ANSWER_SECONDS", 60.0)
    async with relay_to(carrier.broker.port) as relay:
        apart.address = carrier.address(port=relay.port)
        yield relay


async def test_a_scheduler_that_stops_hands_its_partitions_over_while_the_broker_hangs(
    apart: Apart, look: Any, hanging: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offering, "FINISH_SECONDS", 60.0)
    scheduler = await apart.scheduler()
    hanging.answers = False
    await add_ticks(look, scheduler, 5)
    await apart.waiting(5)
    closing = asyncio.create_task(scheduler.close(0))
    led = "SELECT count(*) FROM partitions WHERE holder = $1"
    await until(lambda: _is_none(look.fetchval(led, scheduler.membership.node)), 20, "the partitions to be released")
    assert not closing.done()
    hanging.answers = True
    hanging.cut()
    await closing


async def _is_none(asked: Awaitable[int]) -> bool:
    return await asked == 0


async def test_a_worker_that_cannot_open_the_broker_stops(apart: Apart, look: Any, hanging: Relay) -> None:
    await factories.add_job(look, await soon(look, 3600))
    worker = await apart.worker()
    assert worker.worker is not None and worker.worker.offers is not None
    hanging.answers = False
    worker.link.away(TransportAwayError("It hangs."))
    worker.worker.offers.interrupt()
    await until(worker.link._opening.locked, what="the worker to open it again")
    async with asyncio.timeout(20):
        await worker.close(0)
