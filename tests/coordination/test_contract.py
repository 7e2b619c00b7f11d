"""What every coordinator must do, together with the statement that takes a partition. All of them are real."""

from __future__ import annotations

import asyncio
import time
from itertools import combinations
from uuid import uuid4

import pytest

from detent.cluster.coordinators.choose import choose
from detent.cluster.coordinators.services import Candidate
from detent.errors import Unavailable
from tests.coordination.candidates import TTL, Contender, Field
from tests.support.servers import Server
from tests.support.waiting import until

PARTITIONS = set(range(8))
# Far beyond any limit of a coordinator's own: only one that waits for ever runs into it.
FOR_EVER = 15.0


@pytest.fixture
def database_url(kept_database: str) -> str:
    return kept_database


async def gains(contender: Contender, wanted: set[int]) -> None:
    """Wait until it leads these partitions: some passes on a busy machine, and the time to live if a node is silent."""

    async def leads_all() -> bool:
        return await contender.stand(wanted) == wanted

    await until(leads_all, 5 * TTL, "all partitions to be led")


async def test_each_partition_has_one_winner(field: Field) -> None:
    contenders = [await field.enter() for _ in range(3)]
    led = await asyncio.gather(*(contender.stand(range(64)) for contender in contenders))
    assert set.union(*led) == set(range(64))
    assert not any(one & other for one, other in combinations(led, 2))


async def test_who_renews_keeps_everything_for_longer_than_a_time_to_live(field: Field) -> None:
    holder, rival = await field.enter(), await field.enter()
    await gains(holder, PARTITIONS)
    before = dict(holder.nominations)
    end = time.monotonic() + 1.2 * TTL

    async def outlasted() -> bool:
        assert await holder.stand(PARTITIONS) == PARTITIONS
        assert await rival.stand(PARTITIONS) == set()
        return time.monotonic() > end

    await until(outlasted, 5 * TTL)
    assert holder.nominations == before


async def test_who_falls_silent_loses_to_others_and_is_reported(field: Field) -> None:
    silent, rival = await field.enter(), await field.enter()
    await gains(silent, PARTITIONS)
    await gains(rival, PARTITIONS)
    assert await silent.stand(PARTITIONS) == set()


async def test_a_resigning_node_hands_over_immediately(field: Field) -> None:
    holder, rival = await field.enter(), await field.enter()
    await gains(holder, PARTITIONS)
    await holder.give_up({3, 4})
    assert await rival.stand(PARTITIONS) == {3, 4}
    assert await holder.stand(PARTITIONS) == PARTITIONS - {3, 4}


async def test_a_leaving_node_hands_over_immediately(field: Field) -> None:
    holder, rival = await field.enter(), await field.enter()
    await gains(holder, PARTITIONS)
    await holder.leave()
    assert await rival.stand(PARTITIONS) == PARTITIONS


async def test_what_is_no_longer_wanted_goes_to_others_at_once(field: Field) -> None:
    holder, rival = await field.enter(), await field.enter()
    await gains(holder, PARTITIONS)
    assert await holder.stand({0}) == {0}
    assert await rival.stand(PARTITIONS) == PARTITIONS - {0}


async def test_a_nomination_that_comes_late_is_refused_by_the_database(field: Field) -> None:
    late, leader = await field.enter(), await field.enter()
    nominated = await late.coordinator.campaign(PARTITIONS)
    assert nominated.keys() == PARTITIONS
    await late.coordinator.resign(PARTITIONS)
    await gains(leader, PARTITIONS)
    await late.beat()
    assert await late.take(nominated) == {}
    assert await leader.stand(PARTITIONS) == PARTITIONS


# --- where a service outside of the database nominates ---


async def test_numbers_grow_with_every_nomination(served: Field) -> None:
    one, other = await served.enter(), await served.enter()
    last = 0
    for _ in range(2):
        for contender in (one, other):
            numbers = await contender.coordinator.campaign(PARTITIONS)
            await contender.coordinator.resign(PARTITIONS)
            assert numbers.keys() == PARTITIONS
            assert all(number is not None and number > last for number in numbers.values())
            last = max(number or 0 for number in numbers.values())


async def test_a_newer_nomination_takes_a_partition_from_a_node_that_is_alive(served: Field) -> None:
    stalled, rival = await served.enter(), await served.enter()
    await gains(stalled, PARTITIONS)

    async def leads_all() -> bool:
        assert await stalled.beat()  # it sends heartbeats, but does not campaign
        return await rival.stand(PARTITIONS) == PARTITIONS

    await until(leads_all, 5 * TTL)
    assert await stalled.stand(PARTITIONS) == set()


async def test_a_service_that_was_killed_is_missed_in_time_and_found_again(served: Field, server: Server) -> None:
    contender = await served.enter()
    await gains(contender, PARTITIONS)
    before = dict(contender.nominations)
    server.kill()
    for _ in range(2):
        async with asyncio.timeout(FOR_EVER):
            with pytest.raises(Unavailable):
                await contender.coordinator.campaign(PARTITIONS)
            with pytest.raises(Unavailable):
                await contender.coordinator.resign({0})
    server.start()
    after = await until(lambda: nominated_again(contender), 5 * TTL)
    assert all(after[partition] >= before[partition] for partition in PARTITIONS)
    await contender.leave()
    other = await served.enter()
    assert await other.stand(PARTITIONS) == PARTITIONS


async def nominated_again(contender: Contender) -> dict[int, int | None] | None:
    try:
        nominated = await contender.coordinator.campaign(PARTITIONS)
    except Unavailable:
        return None
    return nominated if nominated.keys() == PARTITIONS else None


async def test_a_service_that_is_away_at_the_start_is_found_later(served: Field, server: Server) -> None:
    cluster = await served.store.upkeep.cluster()
    server.kill()
    coordinator = choose(server.url, Candidate(1, cluster.id, TTL), served.store.database)
    async with asyncio.timeout(FOR_EVER):
        with pytest.raises(Unavailable):
            await coordinator.open()
    server.start()
    contender = Contender(served.store, server.url, Candidate(1, cluster.id, TTL))
    contender.coordinator = coordinator
    served.entered.append(contender)
    await until(lambda: nominated_again(contender), 5 * TTL)


async def test_who_leaves_without_the_service_is_not_held_up(served: Field, server: Server) -> None:
    contender = await served.enter()
    await gains(contender, PARTITIONS)
    server.kill()
    async with asyncio.timeout(FOR_EVER):
        await contender.leave()


async def test_two_clusters_share_a_service(served: Field, server: Server) -> None:
    contender = await served.enter()
    await gains(contender, PARTITIONS)
    stranger = choose(server.url, Candidate(1, uuid4(), TTL), served.store.database)
    await stranger.open()
    try:
        assert (await stranger.campaign(PARTITIONS)).keys() == PARTITIONS
    finally:
        await stranger.close()
