"""Offers of the contract suite, and how it takes them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime

from detent.domain.offer import RunOffer
from detent.transports.transport import TakenOffer, Transport, TransportAwayError
from tests.support.waiting import until

NOW = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
QUEUE, OTHER_QUEUE = 7, 8
PATIENCE = 15.0
"""Longer than any broker needs to deliver what it has."""
LONG_HOLD = 60.0
"""What returns within PATIENCE did not return because its hold was over."""
SHORT = 0.3
"""For a take that is to find nothing."""


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


async def opened_again(transport: Transport) -> None:
    """The broker is back: whoever uses the transport opens it until it can."""

    async def opens() -> bool:
        with suppress(TransportAwayError):
            await transport.open()
            return True
        return False

    await until(opens, 90.0, "the transport to open again")
