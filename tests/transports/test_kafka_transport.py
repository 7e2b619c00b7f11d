"""What is special about offers in Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from pathlib import Path

import pytest

from detent.transports import kafka
from detent.transports.kafka import KafkaTransport, open_transport
from detent.transports.kafka_settings import common_settings, read_kafka_address
from detent.transports.kafka_topics import OutgoingRecord
from detent.transports.transport import TakenOffer, Transport, TransportAwayError
from tests.support.waiting import until
from tests.topics.cloud_servers import KafkaServer
from tests.transports.conftest import Connect
from tests.transports.kafka_mock import TransportKafka
from tests.transports.offers import NOW, OTHER_QUEUE, QUEUE, jobs_of, offer_of, take_all
from tests.transports.queue_carriers import KafkaCarrier


@pytest.fixture
def carrier(tmp_path: Path) -> KafkaCarrier:
    return KafkaCarrier(TransportKafka(tmp_path))


@pytest.fixture
def server(carrier: KafkaCarrier) -> KafkaServer:
    assert isinstance(carrier.broker, TransportKafka)
    return carrier.broker.server


async def committed(server: KafkaServer, cluster: str) -> int:
    """The sum of the group's positions in the topic."""

    def ask() -> int:
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": f"detent.{cluster}"})
        topic = f"detent.{cluster}.{QUEUE}"
        places = [
            TopicPartition(topic, each) for each in consumer.list_topics(topic, timeout=10).topics[topic].partitions
        ]
        found = sum(max(0, place.offset) for place in consumer.committed(places, timeout=10))
        consumer.close()
        return found

    return await asyncio.to_thread(ask)


async def joined(*workers: Transport) -> list[asyncio.Task[list[TakenOffer]]]:
    """Workers that wait, each with partitions of its own."""
    waiting = [asyncio.create_task(worker.take([QUEUE], 10, NOW, 60.0)) for worker in workers]

    def share() -> bool:
        return all(isinstance(worker, KafkaTransport) and 0 < len(worker._positions) < 4 for worker in workers)

    await until(share, 20.0, "the workers to share the partitions")
    return waiting


async def test_offers_of_one_job_are_in_one_partition(server: KafkaServer, connect: Connect, cluster: str) -> None:
    transport = await connect()
    await transport.send([offer_of(job, token=token) for job in range(20) for token in range(3)])
    records = await asyncio.to_thread(server.records, f"detent.{cluster}.{QUEUE}", 60)
    assert {record.key for record in records} == {str(job) for job in range(20)}
    assert len({(record.key, record.partition) for record in records}) == 20
    assert len({record.partition for record in records}) > 1


async def test_the_position_stays_at_the_first_offer_that_is_not_finished(
    server: KafkaServer, connect: Connect, cluster: str
) -> None:
    transport = await connect()
    await transport.send([offer_of(1, token=token) for token in range(6)])
    taken = sorted(await take_all(transport, 6), key=lambda each: each.receipt.offset)
    await transport.finish(taken[3:])
    await transport.finish(taken[:2])
    await until(lambda: _is(committed(server, cluster), 2), what="the first two to be committed")
    await transport.take([QUEUE], 1, NOW, 0.5)
    assert await committed(server, cluster) == 2
    await transport.finish(taken[2:3])
    await until(lambda: _is(committed(server, cluster), 6), what="all to be committed")


async def _is(asked: Awaitable[int], expected: int) -> bool:
    return await asked == expected


async def test_what_is_given_back_goes_to_another_worker(connect: Connect) -> None:
    transport, other = await connect(), await connect()
    first, second = await joined(transport, other)
    await transport.send([offer_of(number) for number in range(40)])
    taken = await first
    await transport.give_back(taken)
    returned = set(jobs_of(taken))
    found = set(jobs_of(await second))
    while not returned <= found:
        found |= set(jobs_of(await take_all(other, 1)))
    assert not returned & set(jobs_of(await transport.take([QUEUE], 50, NOW, 0.5)))


@pytest.mark.long
async def test_a_worker_that_does_not_take_leaves_its_partitions_to_others(connect: Connect) -> None:
    transport, other = await connect(), await connect()
    first, second = await joined(transport, other)
    first.cancel()
    await transport.send([offer_of(number) for number in range(40)])
    found = set(jobs_of(await second))
    while len(found) < 40:
        found |= set(jobs_of(await take_all(other, 1)))
    assert found == set(range(40))


async def test_what_is_extended_is_not_sent_again(connect: Connect) -> None:
    transport = await connect(hold_seconds=0.6)
    await transport.send([offer_of(1)])
    taken = await take_all(transport, 1)
    for _ in range(4):
        assert await transport.take([QUEUE], 1, NOW, 0.3) == []
        await transport.extend(taken)
    assert jobs_of(await take_all(transport, 1)) == [1]


async def test_a_record_that_is_no_offer_is_passed_over(server: KafkaServer, connect: Connect, cluster: str) -> None:
    transport = await connect()
    await transport.send([offer_of(1)])

    def write() -> None:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": server.bootstrap})
        producer.produce(f"detent.{cluster}.{QUEUE}", b"hello", b"1")
        producer.flush(10)

    await asyncio.to_thread(write)
    await transport.finish(await take_all(transport, 1))
    assert await transport.take([QUEUE], 1, NOW, 0.5) == []
    await until(lambda: _is(committed(server, cluster), 2), what="both to be committed")


async def test_the_topic_of_a_queue_that_is_served_no_more_is_left_to_others(
    connect: Connect, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka, "IDLE_SECONDS", 0.5)
    transport = await connect()
    assert isinstance(transport, KafkaTransport)
    await transport.send([offer_of(1), offer_of(2, queue=OTHER_QUEUE)])
    await transport.finish(await take_all(transport, 2, [QUEUE, OTHER_QUEUE]))
    await transport.send([offer_of(number, queue=OTHER_QUEUE) for number in range(20)])

    async def reads_one_topic() -> bool:
        await transport.take([QUEUE], 1, NOW, 0.2)
        return {place.topic for place in transport._positions} == {f"detent.{cluster}.{QUEUE}"}

    await until(reads_one_topic, 20.0, "the other topic to be left")
    await transport.send([offer_of(3)])
    assert jobs_of(await take_all(transport, 1)) == [3]


async def test_an_offer_that_could_not_be_sent_again_is_tried_again(
    server: KafkaServer, connect: Connect, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport = await connect(hold_seconds=0.5)
    assert isinstance(transport, KafkaTransport)
    await transport.send([offer_of(1)])
    (taken,) = await take_all(transport, 1)
    topics, failures = transport._topics, 0
    assert topics is not None
    usual = topics.produce

    async def produce(records: Sequence[OutgoingRecord]) -> None:
        nonlocal failures
        if not failures:
            failures += 1
            raise TransportAwayError("Not now.")
        await usual(records)

    monkeypatch.setattr(topics, "produce", produce)
    transport._held.clear()
    transport._arrivals.add([taken])  # as if no take had asked for it
    await until(lambda: failures)
    await until(lambda: _is(committed(server, cluster), 1), what="its position to be passed over")
    assert jobs_of(await take_all(transport, 1)) == [1]


@pytest.mark.parametrize(
    ("request_number", "error", "name"), [(1, 29, "TOPIC_AUTHORIZATION_FAILED"), (11, 30, "GROUP_AUTHORIZATION_FAILED")]
)
async def test_a_user_without_the_right_to_read_is_told_so(
    carrier: KafkaCarrier, connect: Connect, request_number: int, error: int, name: str
) -> None:
    assert isinstance(carrier.broker, TransportKafka)
    if carrier.broker.mock is None:
        pytest.skip("the mock brokers refuse")
    transport = await connect()
    await transport.send([offer_of(1)])
    carrier.broker.mock.refuse(request_number, error)
    try:
        with pytest.raises(TransportAwayError, match=name):
            await take_all(transport, 1)
    finally:
        carrier.broker.mock.refuse(request_number, error, times=0)


async def test_a_close_that_is_cut_off_ends_the_client_all_the_same(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport = await connect()
    assert isinstance(transport, KafkaTransport)
    await transport.send([offer_of(1)])
    await take_all(transport, 1)
    topics, member = transport._topics, transport._member
    assert topics is not None and member is not None

    async def produce(_: Sequence[OutgoingRecord]) -> None:
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(topics, "produce", produce)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await transport.close()
    await until(lambda: not topics._thread.is_alive() and not member._thread.is_alive(), what="the threads to end")


async def test_settings_that_the_client_refuses_are_a_broker_that_is_away() -> None:
    transport = open_transport("kafka://user:secret@127.0.0.1:1/?sasl=NONSENSE", "cluster")
    for _ in range(2):
        with pytest.raises(TransportAwayError, match="NONSENSE"):
            await transport.open()
    await transport.close()


def test_an_address_names_servers_credentials_and_topics(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    trusted = tmp_path / "ca.pem"
    trusted.write_text("")
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    address = read_kafka_address("kafkas://user:pass%40word@one:9000,two,[::1]/?sasl=SCRAM-SHA-512&partitions=24")
    assert (address.servers, address.partitions, address.replication) == ("one:9000,two:9093,[::1]:9093", 24, -1)
    assert "pass" not in repr(address)
    settings = common_settings(address, print)
    assert settings["security.protocol"] == "SASL_SSL"
    assert (settings["sasl.mechanism"], settings["sasl.password"]) == ("SCRAM-SHA-512", "pass@word")
    assert settings["ssl.ca.location"] == str(trusted)
    plain = read_kafka_address("kafka://localhost")
    assert (plain.servers, plain.username, plain.partitions) == ("localhost:9092", None, 12)
    assert common_settings(plain, print)["security.protocol"] == "PLAINTEXT"
