"""Runs that are offered: which the scan finds, and which a worker gets that claims them by key."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest

from detent.domain.identity import decode_run_id
from detent.domain.offer import RunOffer
from detent.domain.run import Claim
from detent.store import Store
from detent.telemetry.metrics import QueueDepth
from tests.support.factories import LONG_AGO, add_live_run, add_node, add_queue

NODE, OTHER = 11, 12
MINUTE = timedelta(minutes=1)
FIRST_TOKEN = 1 << 22 | 1


@pytest.fixture(autouse=True)
async def node(look: Any) -> int:
    return await add_node(look, NODE)


async def offers(verbs: Store, ahead: timedelta = MINUTE) -> list[RunOffer]:
    return await verbs.offers.waiting(ahead, 200, 2000)


async def test_an_offered_run_is_the_nodes_own_under_a_higher_token(look: Any, verbs: Store) -> None:
    await add_live_run(look, 1, LONG_AGO, attempt=2, crashes=1, once=True, serial=4, revision=6)
    (offer,) = await offers(verbs)
    assert decode_run_id(UUID(offer.run_id)) == (1, LONG_AGO, 4)
    (claim,) = await verbs.offers.claim(NODE, 1, [offer, offer])
    assert claim == Claim(1, 0, LONG_AGO, 4, FIRST_TOKEN + 1, 6, 2, 1, True, False, 1)
    assert await verbs.offers.claim(NODE, 1, [offer]) == []
    assert await verbs.live_runs.reconcile(NODE) == [claim]


@pytest.mark.parametrize(
    "change",
    [{"job": 2}, {"lane": 1}, {"scheduled_at": LONG_AGO + MINUTE}, {"serial": 1}, {"token": FIRST_TOKEN + 1}],
)
async def test_a_run_that_is_not_as_it_was_offered_is_not_claimed(
    look: Any, verbs: Store, change: dict[str, Any]
) -> None:
    await add_live_run(look, 1)
    (offer,) = await offers(verbs)
    assert await verbs.offers.claim(NODE, 1, [msgspec.structs.replace(offer, **change)]) == []
    assert len(await verbs.offers.claim(NODE, 1, [offer])) == 1


async def test_only_a_run_without_an_owner_that_is_due_and_does_not_wait_for_another_is_claimed(
    look: Any, verbs: Store
) -> None:
    later = datetime.now(UTC) + MINUTE
    await add_live_run(look, 1, not_before=later)
    await add_live_run(look, 2)
    await add_live_run(look, 3)
    found = await offers(verbs, 2 * MINUTE)
    assert {offer.job for offer in found} == {1, 2, 3}
    await look.execute("UPDATE live_runs SET owner = 99 WHERE job = 2")
    await look.execute("UPDATE live_runs SET lane = -1 WHERE job = 3")
    waiting = [msgspec.structs.replace(offer, lane=-1) for offer in found if offer.job == 3]
    assert await verbs.offers.claim(NODE, 1, [*found, *waiting]) == []


async def test_an_evicted_or_unknown_node_claims_nothing(look: Any, verbs: Store) -> None:
    await add_live_run(look, 1)
    await add_node(look, OTHER, evicted=True)
    found = await offers(verbs)
    assert await verbs.offers.claim(OTHER, 1, found) == await verbs.offers.claim(99, 1, found) == []


async def test_a_run_that_another_claim_has_locked_is_left_to_it(look: Any, verbs: Store, another: Any) -> None:
    await add_live_run(look, 1)
    await add_live_run(look, 2)
    found = await offers(verbs)
    async with another.transaction():
        await another.execute("SELECT FROM live_runs WHERE job = 1 FOR UPDATE")
        assert [claim.job for claim in await verbs.offers.claim(NODE, 1, found)] == [2]


async def test_the_scan_finds_what_waits_and_what_will_soon(look: Any, verbs: Store) -> None:
    now = datetime.now(UTC)
    await add_live_run(look, 1, now - MINUTE, priority=9)
    await add_live_run(look, 2, now - MINUTE, not_before=now + MINUTE / 2, queue=2)
    await add_live_run(look, 3, now - MINUTE, not_before=now + 2 * MINUTE)  # too far
    await add_live_run(look, 4, now - MINUTE, owner=5)
    await add_live_run(look, 5, now - MINUTE, lane=-1)
    await add_live_run(look, 6, now - MINUTE)
    await look.execute("UPDATE live_runs SET not_before = 'infinity' WHERE job = 6")  # waits for a concurrency key
    found = {offer.job: offer for offer in await offers(verbs)}
    assert found.keys() == {1, 2}
    assert (found[1].priority, found[1].queue, found[2].queue) == (9, 1, 2)
    assert {offer.job for offer in await offers(verbs, timedelta())} == {1}


async def test_the_scan_reads_the_first_of_every_queue_and_priority(look: Any, verbs: Store) -> None:
    now = datetime.now(UTC)
    for queue in (1, 2):
        for priority in (1, 9):
            for number in range(5):
                at = now - MINUTE - number * timedelta(seconds=1)
                await add_live_run(look, 100 * queue + 10 * priority + number, at, queue=queue, priority=priority)
    found = await verbs.offers.waiting(MINUTE, 2, 2000)
    assert {offer.job % 10 for offer in found} == {3, 4}  # the oldest
    assert len(found) == 8
    assert len(await verbs.offers.waiting(MINUTE, 2, 3)) == 3


async def test_the_depth_of_a_queue_is_counted_by_its_name(look: Any, verbs: Store) -> None:
    now = datetime.now(UTC)
    tasks = await add_queue(look, needs="task:")
    await add_queue(look, "images")
    await add_live_run(look, 1, now - MINUTE)
    await add_live_run(look, 2, now - 2 * MINUTE, queue=tasks)
    await add_live_run(look, 3, now + MINUTE)
    depths = (await verbs.signals.read()).queues
    assert depths["images"] == QueueDepth(0, 0.0)
    assert depths["default"].runs == 2
    assert 120 <= depths["default"].oldest < 180
