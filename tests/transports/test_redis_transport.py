"""What only Redis and Valkey do: the order of offers, the keys, wake-ups."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from detent.domain.offer import encode_offer
from detent.transports.redis import RedisTransport, open_transport
from detent.transports.redis_scripts import MAX_OFFERS
from detent.transports.transport import TransportAwayError
from tests.support.ports import free_port
from tests.support.relay import relay_to
from tests.support.waiting import until
from tests.topics.brokers import RedisBroker, running_broker
from tests.topics.conftest import Start
from tests.transports.carriers import HOLD
from tests.transports.offers import NOW, OTHER_QUEUE, PATIENCE, QUEUE, jobs_of, offer_of, take_all, take_nothing

# As in docs/howto/transports-redis-nats.md.
RIGHTS = ["~detent:*", "+@connection", "+@sortedset", "+@list", "+@scripting", "+time", "+expire"]


@pytest.fixture(params=["redis", "valkey"])  # of Valkey, the contract suite is long
def broker(start_broker: Start, request: pytest.FixtureRequest) -> RedisBroker:
    found = start_broker(request.param)
    assert isinstance(found, RedisBroker)
    return found


@pytest.fixture
async def client(broker: RedisBroker) -> AsyncIterator[Any]:
    async with broker.client() as client:
        yield client


@pytest.fixture
async def transport(broker: RedisBroker, cluster: str) -> AsyncIterator[RedisTransport]:
    made = open_transport(broker.url, cluster)
    yield made
    await made.close()


async def test_offers_come_by_priority_and_then_by_due_time(transport: RedisTransport) -> None:
    places = [(priority, late) for priority in (-100, -1, 0, 5, 6, 100) for late in (1, 2)]
    await transport.send(
        [
            offer_of(number, priority=priority, due=NOW - timedelta(seconds=late))
            for number, (priority, late) in enumerate(places)
        ]
    )
    taken = await take_all(transport, len(places))
    in_order = sorted(places, key=lambda place: (-place[0], -place[1]))
    assert [places[job] for job in jobs_of(taken)] == in_order


async def test_queues_of_one_priority_are_taken_in_turn(transport: RedisTransport) -> None:
    await transport.send([offer_of(number, queue=queue) for queue in (QUEUE, OTHER_QUEUE) for number in range(10)])
    queues = {(await take_all(transport, 1, [QUEUE, OTHER_QUEUE]))[0].offer.queue for _ in range(4)}
    assert queues == {QUEUE, OTHER_QUEUE}


async def test_a_late_finish_leaves_the_delivery_that_another_worker_has(broker: RedisBroker, cluster: str) -> None:
    slow, other = (open_transport(broker.url, cluster, hold_seconds=HOLD) for _ in range(2))
    await slow.send([offer_of(1)])
    late = await take_all(slow, 1)
    await take_all(other, 1)
    await slow.finish(late)
    await slow.extend(late)
    await slow.give_back(late)
    assert jobs_of(await take_all(slow, 1)) == [1]
    await slow.close()
    await other.close()


async def test_every_key_expires_and_is_in_the_slot_of_the_cluster(
    transport: RedisTransport, client: Any, cluster: str
) -> None:
    await transport.send([offer_of(number, priority=number % 3) for number in range(9)])
    await take_all(transport, 2)
    keys = [key.decode() async for key in client.scan_iter(f"*{cluster}*")]
    assert {key.rpartition(":")[2] for key in keys} == {"0", "1", "2", "priorities", "taken", "wake"}
    for key in keys:
        assert f":{{{cluster}}}:" in key
        assert 0 < await client.ttl(key) <= 3600
    await transport.finish(await take_all(transport, 7))


async def test_nothing_but_wake_ups_is_left_of_offers_that_were_finished(
    transport: RedisTransport, client: Any, cluster: str
) -> None:
    await transport.send([offer_of(number, priority=number) for number in range(5)])
    await transport.finish(await take_all(transport, 5))
    keys = {key.decode().rpartition(":")[2] async for key in client.scan_iter(f"*{cluster}*")}
    assert keys <= {"wake"}


async def test_of_offers_that_nobody_takes_the_first_are_dropped(transport: RedisTransport) -> None:
    due = [NOW - timedelta(seconds=MAX_OFFERS + 100 - number) for number in range(MAX_OFFERS + 100)]
    await transport.send([offer_of(number, due=at) for number, at in enumerate(due)])
    await transport.send([offer_of(1, priority=4), offer_of(2, queue=OTHER_QUEUE)])
    depths = await transport.depth([QUEUE, OTHER_QUEUE])
    assert [depth.offers for depth in depths.values()] == [MAX_OFFERS + 1, 1]
    assert jobs_of(await take_all(transport, 10)) == list(range(100, 110))


async def test_an_offer_whose_wake_up_was_lost_is_found(transport: RedisTransport, client: Any, cluster: str) -> None:
    async with asyncio.timeout(PATIENCE):
        waiting = asyncio.create_task(transport.take([QUEUE], 1, NOW, 60.0))
        await take_nothing(transport, [OTHER_QUEUE])
        queue = f"detent:{{{cluster}}}:{QUEUE}"
        await client.zadd(f"{queue}:offers:5", {encode_offer(offer_of(1)): 0})
        await client.zadd(f"{queue}:priorities", {"5": 5})
        assert jobs_of(await waiting) == [1]


async def test_a_worker_that_leaves_offers_behind_wakes_the_next_one(
    transport: RedisTransport, client: Any, cluster: str
) -> None:
    wake_up = f"detent:{{{cluster}}}:{QUEUE}:wake"
    await transport.send([offer_of(1), offer_of(2)])
    await client.delete(wake_up)
    await take_all(transport, 1)
    assert await client.llen(wake_up) == 1
    await client.delete(wake_up)
    await take_all(transport, 1)
    assert await client.llen(wake_up) == 0


async def test_what_is_no_offer_is_dropped(transport: RedisTransport, client: Any, cluster: str) -> None:
    await transport.send([offer_of(1)])
    strange = (b"of a later version", b"\xff \x00\n", encode_offer(offer_of(2, queue=OTHER_QUEUE)))
    await client.zadd(f"detent:{{{cluster}}}:{QUEUE}:offers:5", dict.fromkeys(strange, 0))
    assert jobs_of(await take_all(transport, 1)) == [1]
    await take_nothing(transport)
    assert (await transport.depth([QUEUE]))[QUEUE].offers == 1


async def test_a_worker_that_waits_sends_few_commands(transport: RedisTransport, client: Any) -> None:
    async def calls() -> int:
        return int((await client.info("stats"))["total_commands_processed"])

    before = await calls()
    assert await transport.take([QUEUE, OTHER_QUEUE], 5, NOW, 1.3) == []
    assert await calls() - before < 40  # two looks, of some commands each


async def test_a_server_without_memory_refuses_in_its_own_words(transport: RedisTransport, client: Any) -> None:
    await client.config_set("maxmemory", 1)
    try:
        with pytest.raises(TransportAwayError, match="maxmemory"):
            await transport.send([offer_of(1)])
    finally:
        await client.config_set("maxmemory", 0)
    await transport.send([offer_of(1)])
    assert jobs_of(await take_all(transport, 1)) == [1]


async def test_a_server_that_became_a_replica_is_left_when_the_address_leads_to_another(
    start_broker: Start, cluster: str
) -> None:
    before, after = start_broker("redis"), start_broker("valkey")
    assert isinstance(before, RedisBroker)
    async with relay_to(before.port) as relay, before.client() as client:
        transport = open_transport(f"redis://127.0.0.1:{relay.port}", cluster)
        await transport.send([offer_of(1)])
        await client.replicaof("127.0.0.1", after.port)
        try:
            with pytest.raises(TransportAwayError, match="read only replica"):
                await transport.send([offer_of(2)])
            relay.server_port = after.port
            await transport.open()
            await transport.send([offer_of(3)])
        finally:
            await client.replicaof("NO", "ONE")
        await transport.close()


async def test_the_rights_that_the_manual_names_are_enough(broker: RedisBroker, client: Any, cluster: str) -> None:
    name = f"user-{cluster}"
    await client.execute_command("ACL", "SETUSER", name, "on", ">secret", *RIGHTS)
    transport = open_transport(f"redis://{name}:secret@127.0.0.1:{broker.port}/0", cluster)
    await client.script_flush()
    await transport.open()
    await transport.send([offer_of(1), offer_of(2)])
    taken = await take_all(transport, 2)
    await transport.extend(taken)
    await transport.give_back(taken)
    assert (await transport.depth([QUEUE]))[QUEUE].offers == 2
    await transport.finish(await take_all(transport, 2))
    await take_nothing(transport)
    await transport.close()
    await client.acl_deluser(name)


async def test_the_age_of_the_first_offer_is_told(transport: RedisTransport) -> None:
    due = datetime.now(UTC) - timedelta(seconds=90)
    await transport.send([offer_of(1, due=due), offer_of(2, due=due + timedelta(seconds=60), priority=9)])
    depths = await transport.depth([QUEUE, OTHER_QUEUE])
    assert depths[OTHER_QUEUE] == (0, None)
    assert depths[QUEUE].offers == 2
    assert 80 < (depths[QUEUE].oldest_seconds or 0) < 300


async def test_a_take_that_is_cancelled_returns_at_once_what_it_had(
    transport: RedisTransport, broker: RedisBroker, cluster: str
) -> None:
    other = open_transport(broker.url, cluster)
    await other.send([offer_of(number) for number in range(20)])
    for steps in range(20):
        taking = asyncio.create_task(transport.take([QUEUE], 1, NOW, 60.0))
        for _ in range(steps):
            await asyncio.sleep(0)
        taking.cancel()
        await asyncio.gather(taking, return_exceptions=True)
        if not taking.cancelled():
            await transport.finish(taking.result())
            await other.send([offer_of(jobs_of(taking.result())[0] + 100)])
    assert {job % 100 for job in jobs_of(await take_all(other, 20))} == set(range(20))
    await other.close()


@pytest.mark.long
async def test_a_worker_that_only_waits_notices_that_the_broker_hangs(broker: RedisBroker, cluster: str) -> None:
    async with relay_to(broker.port) as relay:
        transport = open_transport(f"redis://127.0.0.1:{relay.port}", cluster)
        await take_nothing(transport)
        waiting = asyncio.create_task(transport.take([QUEUE], 1, NOW, 60.0))
        await take_nothing(transport, [OTHER_QUEUE])
        relay.answers = False
        async with asyncio.timeout(12.0):
            with pytest.raises(TransportAwayError):
                await waiting
        await transport.close()


class ClusterMode(RedisBroker):
    """A server that has all slots of a Redis Cluster, and so refuses scripts whose keys are in several."""

    def command(self) -> list[str]:
        ports = ["--cluster-port", str(free_port())]
        return [*super().command(), "--cluster-enabled", "yes", *ports, "--appendonly", "no"]


async def test_scripts_run_in_cluster_mode(cluster: str) -> None:
    with running_broker(ClusterMode) as broker:
        assert isinstance(broker, ClusterMode)
        async with broker.client() as client:
            await client.execute_command("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
            await until(lambda: _serves(client), what="the cluster to serve")
        transport = open_transport(broker.url, cluster)
        await transport.send([offer_of(1), offer_of(2, queue=OTHER_QUEUE)])
        taken = await take_all(transport, 2, [QUEUE, OTHER_QUEUE])
        await transport.extend(taken)
        await transport.give_back(taken)
        again = await take_all(transport, 2, [QUEUE, OTHER_QUEUE])
        await transport.finish(again)
        depths = await transport.depth([QUEUE, OTHER_QUEUE])
        assert [depth.offers for depth in depths.values()] == [0, 0]
        await transport.close()


async def _serves(client: Any) -> bool:
    return b"cluster_state:ok" in bytes(await client.execute_command("CLUSTER", "INFO"))
