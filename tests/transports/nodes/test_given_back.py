"""Offers that a worker has taken and does not use return to others at once, and not when their hold ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from detent.domain.offer import Offer, QueueOffer
from detent.errors import DetentError
from detent.store import Store
from detent.store.offers import OfferStore
from detent.store.queues import RunLimits
from detent.transports.transport import TakenOffer
from detent.worker.offers import OfferTaker
from tests.session.test_session import soon
from tests.support import factories
from tests.support.waiting import until
from tests.transports.conftest import Connect
from tests.transports.nodes.conftest import Apart
from tests.transports.offers import NOW, offer_of, take_all

SERVED, UNSERVED = 1, 77


@pytest.fixture
async def taker(apart: Apart, look: Any) -> OfferTaker:
    """Of a worker that takes no offers by itself any more."""
    await factories.add_job(look, await soon(look, 3600))
    worker = (await apart.worker()).worker
    assert worker is not None and worker.offers is not None
    worker.offers.interrupt()
    await worker.offers.loop.stop()
    return worker.offers


async def taken_of(taker: OfferTaker, offers: Sequence[Offer]) -> list[TakenOffer]:
    await taker._transport.send(offers)
    return await take_all(taker._transport, len(offers), [SERVED, UNSERVED])


async def returned(connect: Connect, cluster: str, count: int) -> list[str]:
    """Takes until it has so many different ones: a broker may deliver one twice. They are finished then, because the
    next test has the same cluster."""
    other = await connect(cluster)
    found: set[str] = set()
    while len(found) < count:
        (one,) = await take_all(other, 1, [SERVED, UNSERVED])
        await other.finish([one])
        found.add(repr(one.offer))
    return sorted(found)


async def test_when_a_claim_fails_everything_that_was_taken_returns(
    taker: OfferTaker, connect: Connect, cluster_of: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_arguments: object) -> None:
        raise DetentError("The database is away.")

    offers: list[Offer] = [
        *(offer_of(job, queue=SERVED) for job in (1, 2, 3)),
        QueueOffer(SERVED, 5, NOW),
        offer_of(4, queue=UNSERVED),
    ]
    taken = await taken_of(taker, offers)
    monkeypatch.setattr(OfferStore, "claim", fails)
    monkeypatch.setattr(taker._capacity, "reserved", taker._intake.free - 1)  # ticks were handed off meanwhile
    with pytest.raises(DetentError):
        await taker._use(taken)
    assert await returned(connect, cluster_of, 5) == sorted(map(repr, offers))


async def test_an_offer_of_a_queue_that_the_worker_stopped_to_serve_returns_also_under_limits(
    taker: OfferTaker, connect: Connect, cluster_of: str, store: Store
) -> None:
    await store.queues.limit("default", RunLimits(2, None), tenant=1)
    await until(lambda: not taker._claiming.by_key, 20, "the limit to be known")
    offers: list[Offer] = [offer_of(1, queue=UNSERVED), QueueOffer(UNSERVED, 5, NOW)]
    await taker._use(await taken_of(taker, [*offers, offer_of(2, queue=SERVED)]))
    assert await returned(connect, cluster_of, 2) == sorted(map(repr, offers))
