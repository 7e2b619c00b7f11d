"""What every transport promises, on real brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

from detent.domain.offer import Offer, QueueOffer, RunOffer
from detent.transports.transport import TakenOffer, Transport
from tests.transports.carriers import Carrier
from tests.transports.conftest import Connect

NOW = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
QUEUE, OTHER_QUEUE = 7, 8
# Longer than any broker needs to deliver what it has, shorter than a test may take.
PATIENCE = 10.0
# For a take that finds nothing.
SHORT = 0.3


def offer_of(job: int, *, queue: int = QUEUE, priority: int = 5, due: datetime = NOW, token: int = 1) -> RunOffer:
    return RunOffer(queue, job, 0, NOW, 0, token, 1, priority, due)


def jobs_of(taken: Sequence[TakenOffer]) -> list[int]:
    return [each.offer.job for each in taken if isinstance(each.offer, RunOffer)]


async def take_all(
    transport: Transport, count: int, queues: Sequence[int] = (QUEUE,), now: datetime = NOW
) -> list[TakenOffer]:
    """Takes until it has so many."""
    taken: list[TakenOffer] = []
    async with asyncio.timeout(PATIENCE):
        while len(taken) < count:
            taken += await transport.take(queues, count - len(taken), now, 1.0)
    return taken


async def take_nothing(transport: Transport, queues: Sequence[int] = (QUEUE,), now: datetime = NOW) -> None:
    assert await transport.take(queues, 10, now, SHORT) == []


async def test_an_offer_arrives_as_it_was_sent(transport: Transport, connect: Connect) -> None:
    sent: list[Offer] = [offer_of(1, priority=-100), QueueOffer(QUEUE, 100, NOW), offer_of(2, token=2**52)]
    await transport.send(sent)
    taken = await take_all(await connect(), 3)
    assert {each.offer for each in taken} == set(sent)


async def test_what_is_finished_does_not_return(carrier: Carrier, transport: Transport, connect: Connect) -> None:
    await transport.send([offer_of(1)])
    await transport.finish(await take_all(transport, 1))
    await asyncio.sleep(carrier.hold_seconds * 1.5)
    await take_nothing(await connect())


async def test_what_a_lost_worker_had_returns_to_others(transport: Transport, connect: Connect) -> None:
    await transport.send([offer_of(1)])
    await take_all(transport, 1)
    other = await connect()
    await take_nothing(other)
    assert jobs_of(await take_all(other, 1)) == [1]
