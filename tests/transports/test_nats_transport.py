"""What only NATS does: streams and consumers that are gone, pull requests that are left over, how it connects."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nats.errors
import pytest

from detent.domain.offer import encode_offer
from detent.transports.nats import NatsTransport, open_transport
from detent.transports.nats_connection import NatsAddress
from detent.transports.nats_stream import DESCRIPTION, MAX_OFFERS
from detent.transports.transport import TransportAwayError
from tests.support.brokers import PASSWORD, USER
from tests.support.ports import free_port
from tests.support.relay import relay_to
from tests.support.waiting import until
from tests.topics.brokers import NatsBroker, running_broker
from tests.topics.conftest import Start
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

# As in docs/howto/transports-redis-nats.md.
RIGHTS = (
    "detent.>",
    "$JS.API.STREAM.INFO.*",
    "$JS.API.STREAM.CREATE.*",
    "$JS.API.STREAM.UPDATE.*",
    "$JS.API.STREAM.MSG.GET.*",
    "$JS.API.CONSUMER.DURABLE.CREATE.*.*",
    "$JS.API.CONSUMER.MSG.NEXT.*.*",
    "$JS.ACK.>",
)


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


async def test_a_stream_that_detent_has_created_gets_the_limits_of_this_version(
    broker: NatsBroker, manager: Any, cluster: str
) -> None:
    from nats.js.api import RetentionPolicy, StorageType

    await manager.add_stream(
        name=f"detent-{cluster}",
        description=DESCRIPTION,
        subjects=[f"detent.{cluster}.*.*"],
        retention=RetentionPolicy.WORK_QUEUE,
        storage=StorageType.MEMORY,
        max_age=3600,
        duplicate_window=1,
    )
    transport = open_transport(broker.url, cluster)
    await transport.open()
    settings = (await manager.stream_info(f"detent-{cluster}")).config
    assert (settings.max_age, settings.max_msgs_per_subject, settings.discard) == (120, MAX_OFFERS, "old")
    assert settings.duplicate_window == 1
    await transport.send([offer_of(number) for number in range(MAX_OFFERS + 100)])
    assert (await transport.depth([QUEUE]))[QUEUE].offers == MAX_OFFERS
    assert jobs_of(await take_all(transport, 1)) == [100]
    await transport.close()


async def test_an_offer_of_another_queue_is_dropped(transport: NatsTransport, broker: NatsBroker, cluster: str) -> None:
    client = await broker.client()
    for body in (b"hello", encode_offer(offer_of(2, queue=OTHER_QUEUE))):
        await client.jetstream().publish(f"detent.{cluster}.{QUEUE}.normal", body)
    await client.close()
    await transport.send([offer_of(1)])
    assert jobs_of(await take_all(transport, 1)) == [1]
    await take_nothing(transport)
    assert (await transport.depth([QUEUE]))[QUEUE].offers == 1


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


async def test_a_take_that_is_cancelled_returns_at_once_what_it_had(
    transport: NatsTransport, broker: NatsBroker, cluster: str
) -> None:
    other = open_transport(broker.url, cluster)
    await other.send([offer_of(number, priority=(90, 5, -90)[number % 3]) for number in range(20)])
    for steps in range(40):
        taking = asyncio.create_task(transport.take([QUEUE], 30, NOW, 60.0))  # it fetches from each band in turn
        for _ in range(steps):
            await asyncio.sleep(0)
        taking.cancel()
        await asyncio.gather(taking, return_exceptions=True)
        if not taking.cancelled():
            await transport.give_back(taking.result())
    assert sorted(jobs_of(await take_all(other, 20))) == list(range(20))
    await other.close()


@pytest.mark.long
async def test_a_worker_that_only_waits_notices_that_the_broker_hangs(broker: NatsBroker, cluster: str) -> None:
    async with relay_to(broker.port) as relay:
        transport = open_transport(f"nats://127.0.0.1:{relay.port}", cluster)
        await take_nothing(transport)
        waiting = asyncio.create_task(transport.take([QUEUE], 1, NOW, 60.0))
        await take_nothing(transport, [OTHER_QUEUE])
        relay.answers = False
        async with asyncio.timeout(12.0):
            with pytest.raises(TransportAwayError):
                await waiting
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


class Restricted(NatsBroker):
    """The user of the transport may do what the manual says, and no more."""

    def command(self) -> list[str]:
        command = super().command()
        configuration = self.folder / "nats.conf"
        rights = f'{{ publish: {json.dumps(list(RIGHTS))}, subscribe: ["_INBOX.>"] }}'
        user = f'{{ user: "{USER}", password: "{PASSWORD}", permissions: {rights} }}'
        lines = [line for line in configuration.read_text().splitlines() if not line.startswith("authorization")]
        configuration.write_text("\n".join([*lines, f"authorization {{ users: [ {user} ] }}"]))
        return command


async def test_the_rights_that_the_manual_names_are_enough(cluster: str) -> None:
    with running_broker(Restricted, secured=True) as broker:
        transport = open_transport(f"nats://{USER}:{PASSWORD}@127.0.0.1:{broker.port}", cluster)
        await transport.open()
        await transport.send([offer_of(1), offer_of(2)])
        taken = await take_all(transport, 2)
        await transport.extend(taken)
        await transport.give_back(taken)
        assert (await transport.depth([QUEUE]))[QUEUE].offers == 2
        await transport.finish(await take_all(transport, 2))
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


class ClusterMember(NatsBroker):
    routes: tuple[int, ...]

    def command(self) -> list[str]:
        command = super().command()
        routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in self.routes)
        with (self.folder / "nats.conf").open("a") as configuration:
            configuration.write(
                f'\nserver_name: "s{self.port}"\n'
                f'cluster {{ name: "three", listen: "127.0.0.1:{self.routes[0]}", routes: [{routes}] }}\n'
            )
        return command


@pytest.fixture
def servers() -> Iterator[list[ClusterMember]]:
    ports = [free_port() for _ in range(3)]
    with ExitStack() as stack:
        members = []
        for first in range(3):
            folder = stack.enter_context(TemporaryDirectory(prefix="detent-test-", ignore_cleanup_errors=True))
            member = ClusterMember(Path(folder))
            member.routes = (*ports[first:], *ports[:first])
            stack.callback(member.kill)
            member.start()
            members.append(member)
        yield members


@pytest.mark.long
async def test_a_cluster_of_servers_keeps_the_offers_when_it_loses_any_one(
    servers: list[ClusterMember], cluster: str
) -> None:
    address = "nats://" + ",".join(f"127.0.0.1:{server.port}" for server in servers)
    transport = open_transport(address, cluster, hold_seconds=2.0)
    await opened_again(transport)  # the servers elect a leader first
    found: set[int] = set()

    async def take() -> None:
        taken = await transport.take([QUEUE], 50, NOW, 1.0)
        found.update(jobs_of(taken))
        await transport.finish(taken)

    for number, server in enumerate(servers):
        jobs = range(number * 100, number * 100 + 100)
        sent = False
        async with asyncio.timeout(90):
            while not found >= set(jobs):
                try:  # it fails while the servers elect another leader
                    if not sent:
                        await transport.send([offer_of(job) for job in jobs])
                        sent = True
                        server.kill()
                    await take()
                except TransportAwayError:
                    await opened_again(transport)
        await asyncio.to_thread(server.start)
        await until(lambda server=server: _all_current(server, cluster), 60.0, "the server to have caught up")
    await transport.close()


async def _all_current(server: NatsBroker, cluster: str) -> bool:
    """Of the stream and its consumers, every server has a copy."""
    client = await server.client()
    try:
        about = [await client.jsm().stream_info(f"detent-{cluster}")]
        about += await client.jsm().consumers_info(f"detent-{cluster}")
    except (TimeoutError, nats.errors.Error):
        return False
    finally:
        await client.close()
    replicas = [each.cluster.replicas or [] for each in about]
    return all(len(of_one) == 2 and all(replica.current for replica in of_one) for of_one in replicas)
