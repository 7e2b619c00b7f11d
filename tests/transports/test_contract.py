"""What every transport promises, on real brokers."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from detent.domain.offer import Offer, QueueOffer
from detent.transports.transport import Transport
from tests.support.waiting import until
from tests.transports.carriers import Carrier
from tests.transports.conftest import Connect
from tests.transports.offers import (
    NOW,
    OTHER_QUEUE,
    PATIENCE,
    QUEUE,
    jobs_of,
    offer_of,
    opened_again,
    take_all,
    take_nothing,
)


async def test_an_offer_arrives_as_it_was_sent(transport: Transport, connect: Connect) -> None:
    sent: list[Offer] = [offer_of(1, priority=-100), QueueOffer(QUEUE, 100, NOW), offer_of(2, token=2**52)]
    await transport.send(sent)
    taken = await take_all(await connect(), 3)
    assert {each.offer for each in taken} == set(sent)


async def test_nothing_to_send_and_nothing_to_take_is_no_error(transport: Transport) -> None:
    await transport.send([])
    await transport.finish([])
    await transport.give_back([])
    await transport.extend([])
    assert await transport.take([], 10, NOW, 0) == []
    assert await transport.take([QUEUE], 10, NOW, 0) == []
    assert await transport.depth([]) == {}


async def test_what_is_finished_does_not_return(carrier: Carrier, connect: Connect) -> None:
    transport, other = (
        await connect(hold_seconds=carrier.hold_seconds),
        await connect(hold_seconds=carrier.hold_seconds),
    )
    await transport.send([offer_of(1)])
    await transport.finish(await take_all(transport, 1))
    assert await other.take([QUEUE], 10, NOW, carrier.hold_seconds * 1.3) == []


async def test_what_a_lost_worker_had_returns_to_others_when_the_hold_is_over(
    carrier: Carrier, connect: Connect
) -> None:
    transport, other = (
        await connect(hold_seconds=carrier.hold_seconds),
        await connect(hold_seconds=carrier.hold_seconds),
    )
    await transport.send([offer_of(1), offer_of(2)])
    clock = asyncio.get_running_loop().time
    begun = clock()
    await transport.finish([one for one in await take_all(transport, 2) if jobs_of([one]) == [1]])
    assert jobs_of(await take_all(other, 1)) == [2]
    assert clock() - begun > carrier.hold_seconds - 0.1


async def test_the_same_offer_sent_twice_is_taken_once_or_twice(carrier: Carrier, transport: Transport) -> None:
    await transport.send([offer_of(1), offer_of(1)])
    await transport.send([offer_of(1)])
    first = await take_all(transport, 1)
    rest = await transport.take([QUEUE], 10, NOW, 0.2)
    if carrier.deduplicates:
        assert jobs_of([*first, *rest]) == [1]
    else:
        assert set(jobs_of([*first, *rest])) == {1}
    await transport.finish([*first, *rest])


async def test_an_offer_that_was_finished_can_be_sent_again(carrier: Carrier, transport: Transport) -> None:
    await transport.send([offer_of(1)])
    await transport.finish(await take_all(transport, 1))
    await asyncio.sleep(carrier.forgets_seconds)
    await transport.send([offer_of(1)])
    assert jobs_of(await take_all(transport, 1)) == [1]


async def test_a_delivery_that_is_finished_leaves_the_same_offer_that_was_sent_meanwhile(
    carrier: Carrier, connect: Connect
) -> None:
    transport = await connect()
    await transport.send([offer_of(1)])
    before = await take_all(transport, 1)
    await asyncio.sleep(carrier.forgets_seconds)
    await transport.send([offer_of(1)])
    await transport.finish(before)
    assert jobs_of(await take_all(transport, 1)) == [1]


async def test_the_order_of_sending_does_not_matter(transport: Transport) -> None:
    for number in (3, 1, 2):
        await transport.send([offer_of(number, due=NOW - timedelta(seconds=number))])
    assert sorted(jobs_of(await take_all(transport, 3))) == [1, 2, 3]


async def test_what_the_broker_lost_can_be_sent_again(carrier: Carrier, transport: Transport, cluster: str) -> None:
    await transport.send([offer_of(number) for number in range(5)])
    held = await take_all(transport, 1)
    await carrier.empty(cluster)
    await opened_again(transport)
    await transport.finish(held)
    await transport.give_back(held)
    await take_nothing(transport)
    await asyncio.sleep(carrier.forgets_seconds)
    await transport.send([offer_of(number) for number in range(5)])
    assert set(jobs_of(await take_all(transport, 5))) == set(range(5))


async def test_an_offer_is_kept_until_it_is_due(transport: Transport) -> None:
    if not transport.delays:
        pytest.skip(f"the sender keeps offers of {transport.name} until they are due")
    await transport.send([offer_of(1, due=NOW + timedelta(seconds=60)), offer_of(2)])
    assert jobs_of(await take_all(transport, 1)) == [2]
    await take_nothing(transport)
    await take_nothing(transport, now=NOW + timedelta(seconds=59))
    assert jobs_of(await take_all(transport, 1, now=NOW + timedelta(seconds=60))) == [1]


async def test_an_offer_becomes_due_while_a_worker_waits(transport: Transport) -> None:
    if not transport.delays:
        pytest.skip(f"the sender keeps offers of {transport.name} until they are due")
    await transport.send([offer_of(1, due=NOW + timedelta(seconds=0.4))])
    assert jobs_of(await transport.take([QUEUE], 1, NOW, PATIENCE)) == [1]


async def test_higher_priorities_come_first(carrier: Carrier, transport: Transport) -> None:
    if not carrier.by_priority:
        pytest.skip(f"{transport.name} has no priorities")
    await transport.send([offer_of(number, priority=(4, 5, 6)[number % 3]) for number in range(9)])
    priorities = []
    for _ in range(9):
        (taken,) = await take_all(transport, 1)
        priorities.append(taken.offer.priority)
    assert priorities == [6, 6, 6, 5, 5, 5, 4, 4, 4]


async def test_a_worker_takes_no_more_than_it_asked_for(
    carrier: Carrier, transport: Transport, connect: Connect
) -> None:
    await transport.send([offer_of(number) for number in range(7)])
    first = await take_all(transport, 2)
    again = await transport.take([QUEUE], 1, NOW, PATIENCE)
    assert (len(first), len(again)) == (2, 1)
    other = await connect()
    found = {*jobs_of(first), *jobs_of(again), *jobs_of(await take_all(other, 4))}
    while carrier.may_double and len(found) < 7:
        found |= set(jobs_of(await take_all(other, 1)))
    assert found == set(range(7))


async def test_a_worker_takes_only_from_its_queues(transport: Transport, connect: Connect) -> None:
    await transport.send([offer_of(1), offer_of(2, queue=OTHER_QUEUE), offer_of(3, queue=9)])
    other = await connect()
    assert jobs_of(await take_all(other, 1, [OTHER_QUEUE])) == [2]
    await take_nothing(other, [OTHER_QUEUE])
    assert sorted(jobs_of(await take_all(transport, 2, [QUEUE, OTHER_QUEUE, 9]))) == [1, 3]


async def test_a_worker_that_waits_is_woken(transport: Transport, connect: Connect) -> None:
    other = await connect()
    async with asyncio.timeout(PATIENCE):
        waiting = asyncio.create_task(other.take([OTHER_QUEUE, QUEUE], 5, NOW, 60.0))
        await take_nothing(transport)
        await transport.send([offer_of(1)])
        assert jobs_of(await waiting) == [1]


async def test_a_worker_that_waits_in_vain_returns_in_time(transport: Transport) -> None:
    begun = asyncio.get_running_loop().time()
    assert await transport.take([QUEUE], 5, NOW, 0.5) == []
    assert 0.4 < asyncio.get_running_loop().time() - begun < PATIENCE


async def test_what_is_given_back_returns_at_once(carrier: Carrier, connect: Connect) -> None:
    if carrier.may_double:
        pytest.skip(f"{carrier.broker_name} returns more when the second worker comes")
    transport, other = await connect(), await connect()
    await transport.send([offer_of(1), offer_of(2)])
    taken = await take_all(transport, 2)
    await transport.give_back([one for one in taken if jobs_of([one]) == [2]])
    assert jobs_of(await take_all(other, 1)) == [2]
    await take_nothing(other)


async def test_what_is_extended_stays(carrier: Carrier, connect: Connect) -> None:
    if carrier.may_double:
        pytest.skip(f"{carrier.broker_name} returns it when the second worker comes")
    hold = carrier.hold_seconds * 2
    transport, other = await connect(hold_seconds=hold), await connect(hold_seconds=hold)
    await transport.send([offer_of(1)])
    taken = await take_all(transport, 1)
    for _ in range(3):
        assert await other.take([QUEUE], 1, NOW, hold * 0.4) == []
        await transport.extend(taken)
    await transport.give_back(taken)
    assert jobs_of(await take_all(other, 1)) == [1]


async def test_a_closed_transport_returns_what_it_had(carrier: Carrier, connect: Connect) -> None:
    if not carrier.returns_at_close:
        pytest.skip(f"{carrier.broker_name} returns it when the hold is over")
    transport, other = await connect(), await connect()
    await transport.send([offer_of(1), offer_of(2), offer_of(3)])
    taken = await take_all(transport, 3)
    await transport.finish([one for one in taken if jobs_of([one]) == [3]])
    await transport.close()
    await transport.close()
    assert sorted(jobs_of(await take_all(other, 2))) == [1, 2]
    await take_nothing(other)


async def test_a_closed_transport_can_be_opened_again(connect: Connect) -> None:
    transport = await connect()
    await transport.close()
    await transport.open()
    await transport.send([offer_of(1)])
    assert jobs_of(await take_all(transport, 1)) == [1]


async def test_depth_counts_the_offers_of_a_queue(carrier: Carrier, transport: Transport) -> None:
    await transport.send([offer_of(number, priority=number) for number in range(3)])
    await transport.send([offer_of(3, queue=OTHER_QUEUE)])

    async def counts(*expected: int) -> bool:
        depths = await transport.depth([QUEUE, OTHER_QUEUE, 9])
        return tuple(depths[queue].offers for queue in (QUEUE, OTHER_QUEUE, 9)) == expected

    if carrier.counts:
        assert await counts(3, 1, 0)
    else:
        await until(lambda: counts(3, 1, 0), what="the broker to count its offers")
    first = (await transport.depth([QUEUE]))[QUEUE].oldest_seconds
    assert first is None or first >= 0
    await transport.finish(await take_all(transport, 4, [QUEUE, OTHER_QUEUE]))
    await until(lambda: counts(0, 0, 0), what="finished offers to be uncounted")


async def test_clusters_on_one_broker_do_not_mix(transport: Transport, connect: Connect) -> None:
    other = await connect(of_cluster="0f0f0f0f-0000-4000-8000-000000000000")
    await other.take([QUEUE], 1000, NOW, 0.1)
    await transport.send([offer_of(1)])
    await take_nothing(other)
    assert (await other.depth([QUEUE]))[QUEUE].offers == 0
    assert jobs_of(await take_all(transport, 1)) == [1]
