"""What only NATS does: streams and consumers that are gone, pull requests that are left over, how it connects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from detent.transports.nats import NatsTransport, open_transport
from detent.transports.nats_connection import NatsAddress
from detent.transports.transport import TransportAwayError
from tests.support.relay import relay_to
from tests.support.servers import free_port
from tests.topics.brokers import NatsBroker, running_broker
from tests.topics.conftest import Start
from tests.transports.offers import NOW, OTHER_QUEUE, PATIENCE, QUEUE, jobs_of, offer_of, take_all, take_nothing


@pytest.fixture
def broker(start_broker: Start) -> NatsBroker:
    found = start_broker("nats")
    assert isinstance(found, NatsBroker)
    return found


@pytest.fixture
async def manager(broker: NatsBroker) -> AsyncIterator[Any]:
    client = await broker.client()
    yield client.jsm()
    await client.close()


@pytest.fixture
async def transport(broker: NatsBroker, cluster: str) -> AsyncIterator[NatsTransport]:
    made = open_transport(broker.url, cluster)
    await made.open()
    yield made
    await made.close()


async def test_a_worker_that_waits_gets_what_is_sent_after_the_stream_was_deleted(
    transport: NatsTransport, manager: Any, cluster: str
) -> None:
    async with asyncio.timeout(PATIENCE):
        waiting = asyncio.create_task(transport.take([QUEUE], 1, NOW, 60.0))
        await take_nothing(transport, [OTHER_QUEUE])
        await manager.delete_stream(f"detent-{cluster}")
        await transport.send([offer_of(1)])
        assert jobs_of(await waiting) == [1]


async def test_a_worker_that_waits_gets_what_is_sent_after_its_consumer_was_deleted(
    transport: NatsTransport, manager: Any, cluster: str
) -> None:
    async with asyncio.timeout(PATIENCE):
        waiting = asyncio.create_task(transport.take([QUEUE], 1, NOW, 60.0))
        await take_nothing(transport, [OTHER_QUEUE])
        await manager.delete_consumer(f"detent-{cluster}", f"q{QUEUE}-normal")
        await transport.send([offer_of(1)])
        assert jobs_of(await waiting) == [1]


async def test_an_offer_that_answers_a_worker_which_waits_no_longer_goes_to_others_at_once(
    transport: NatsTransport, broker: NatsBroker, cluster: str
) -> None:
    await take_nothing(transport)  # its pull requests wait on
    await transport.send([offer_of(number) for number in range(5)])
    other = open_transport(broker.url, cluster)
    assert sorted(jobs_of(await take_all(other, 5))) == list(range(5))
    await other.close()


async def test_a_worker_that_has_little_room_gives_back_what_arrives_for_it_from_several_queues(
    transport: NatsTransport, broker: NatsBroker, cluster: str
) -> None:
    queues = range(6)
    other = open_transport(broker.url, cluster)
    async with asyncio.timeout(PATIENCE):
        waiting = asyncio.create_task(transport.take(queues, 1, NOW, 60.0))
        await take_nothing(other, [99])
        await other.send([offer_of(queue, queue=queue) for queue in queues])
        first = await waiting
    assert len(first) == 1
    rest = await take_all(other, 5, queues)
    assert sorted(jobs_of([*first, *rest])) == list(queues)
    await other.close()


async def test_two_calls_of_take_share_what_arrives(transport: NatsTransport, broker: NatsBroker, cluster: str) -> None:
    sender = open_transport(broker.url, cluster)
    async with asyncio.timeout(PATIENCE):
        both = asyncio.gather(*(transport.take([QUEUE], 1, NOW, 60.0) for _ in range(2)))
        await take_nothing(sender, [OTHER_QUEUE])
        await sender.send([offer_of(1), offer_of(2)])
        taken = [job for each in await both for job in jobs_of(each)]
    assert sorted(taken) == [1, 2]
    await sender.close()


async def test_what_is_no_offer_is_dropped(transport: NatsTransport, broker: NatsBroker, cluster: str) -> None:
    client = await broker.client()
    await client.jetstream().publish(f"detent.{cluster}.{QUEUE}.normal", b"of a later version")
    await client.close()
    await transport.send([offer_of(1)])
    await transport.finish(await take_all(transport, 1))
    assert (await transport.depth([QUEUE]))[QUEUE].offers == 0


async def test_the_stream_of_an_operator_stays_as_it_is(broker: NatsBroker, manager: Any, cluster: str) -> None:
    from nats.js.api import RetentionPolicy, StorageType

    await manager.add_stream(
        name=f"detent-{cluster}",
        subjects=[f"detent.{cluster}.*.*"],
        retention=RetentionPolicy.WORK_QUEUE,
        storage=StorageType.FILE,
        max_msgs=1000,
    )
    transport = open_transport(broker.url, cluster)
    await transport.open()
    await transport.send([offer_of(1)])
    assert jobs_of(await take_all(transport, 1)) == [1]
    await transport.close()
    settings = (await manager.stream_info(f"detent-{cluster}")).config
    assert (settings.storage, settings.max_msgs) == ("file", 1000)


async def test_a_stream_that_is_full_refuses_in_its_own_words(broker: NatsBroker, manager: Any, cluster: str) -> None:
    from nats.js.api import DiscardPolicy, RetentionPolicy

    await manager.add_stream(
        name=f"detent-{cluster}",
        subjects=[f"detent.{cluster}.*.*"],
        retention=RetentionPolicy.WORK_QUEUE,
        discard=DiscardPolicy.NEW,
        max_msgs=2,
    )
    transport = open_transport(broker.url, cluster)
    with pytest.raises(TransportAwayError, match="maximum messages exceeded"):
        await transport.send([offer_of(number) for number in range(3)])
    await transport.finish(await take_all(transport, 2))
    await transport.send([offer_of(3)])
    await transport.close()


class WithoutJetStream(NatsBroker):
    def command(self) -> list[str]:
        command = super().command()
        configuration = self.folder / "nats.conf"
        lines = configuration.read_text().splitlines()
        configuration.write_text("\n".join(line for line in lines if not line.startswith("jetstream")))
        return command


async def test_a_server_without_jetstream_is_named_and_how_to_start_it(cluster: str) -> None:
    with running_broker(WithoutJetStream) as broker:
        transport = open_transport(broker.url, cluster)
        with pytest.raises(TransportAwayError, match="start nats-server with -js"):
            await transport.open()
        await transport.close()


async def test_a_password_is_not_sent_to_a_server_without_tls(broker: NatsBroker, cluster: str) -> None:
    async with relay_to(broker.port) as relay:
        transport = open_transport(f"natss://me:secret@127.0.0.1:{relay.port}", cluster)
        with pytest.raises(TransportAwayError) as refused:
            await transport.open()
        assert "secret" not in str(refused.value)
        assert relay.forwarded == 0
        await transport.close()


async def test_the_servers_of_the_address_are_tried_until_one_answers(broker: NatsBroker, cluster: str) -> None:
    dead = f"127.0.0.1:{free_port()}"
    for _ in range(5):
        transport = open_transport(f"nats://{dead},127.0.0.1:{broker.port}", cluster)
        await transport.open()
        await transport.close()


def test_the_parts_of_an_address() -> None:
    assert NatsAddress.parse("nats://one:14222,two") == (("one:14222", "two:4222"), False, {})
    assert NatsAddress.parse("natss://a%40b:p%2F@[::1]:1/") == (
        ("[::1]:1",),
        True,
        {"user": "a@b", "password": "p/"},
    )
    assert NatsAddress.parse("nats://t0ken@host") == (("host:4222",), False, {"token": "t0ken"})
