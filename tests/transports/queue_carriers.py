"""RabbitMQ, SQS and Kafka in the contract suite of transports."""

from __future__ import annotations

import asyncio
import atexit
from functools import cache
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

from detent.transports import kafka_settings, rabbitmq
from detent.transports.kafka_member import PAUSE_SECONDS
from tests.topics.brokers import Broker
from tests.transports.carriers import Carrier
from tests.transports.kafka_mock import TransportKafka
from tests.transports.sqs_server import TransportSqs


class RabbitCarrier(Carrier):
    broker_name = "rabbitmq"
    module = "rabbitmq"
    long_tests = ("is_killed", "is_finished", "is_extended")  # it takes ten seconds to start
    deduplicates = False
    settle_seconds = 6.0  # RabbitMQ 3.10: killed after one second, it took offers and delivered none for a minute

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        rabbitmq.RENEW_SECONDS = 2.0  # of consumers whose queue was deleted: the suite does so often

    async def empty(self, cluster: str) -> None:
        import aiormq

        broker: Any = self.broker
        async with aiormq.connect(broker.server.url) as connection:
            channel = await connection.channel()
            for queue in range(10):
                for band in ("high", "normal", "low"):
                    await channel.queue_delete(f"detent.{cluster}.{queue}.{band}")


class SqsCarrier(Carrier):
    broker_name = "sqs"
    module = "sqs"
    # Reading from moto takes a time that grows with the length of the queue.
    slow = 100
    long_tests = ("is_killed", "is_finished", "is_extended")
    hold_seconds = 1.0  # it has whole seconds
    by_priority = False
    deduplicates = False
    can_secure = can_encrypt = False  # moto takes every key, and its server has no TLS

    def __init__(self, broker: Broker) -> None:
        super().__init__(restartable_sqs())
        self.broker.ensure()

    def address(self, user: str = "AKIATEST", password: str = "secret", port: int | None = None) -> str:
        return f"sqs://{user}:{password}@127.0.0.1:{port or self.broker.port}/?region=eu-central-1"

    async def empty(self, cluster: str) -> None:
        broker: Any = self.broker
        await asyncio.to_thread(_delete_queues, broker.server.client, f"detent-{cluster}-")


@cache
def restartable_sqs() -> TransportSqs:
    """One for the test process, with which it ends."""
    started = TransportSqs(Path(mkdtemp(prefix="detent-test-")))
    started.start()
    atexit.register(rmtree, started.folder, ignore_errors=True)
    return started


def _delete_queues(client: Any, prefix: str) -> None:
    for url in client.list_queues(QueueNamePrefix=prefix).get("QueueUrls", []):
        client.delete_queue(QueueUrl=url)


class KafkaCarrier(Carrier):
    """The mock brokers of the client, or the cluster of KAFKA_BOOTSTRAP."""

    broker_name = "kafka"
    module = "kafka"
    # While workers come and go, the mock brokers wait for seconds.
    long_tests = (
        "is_killed",
        "is_not_there",
        "is_woken",
        "no_more_than",
        "is_cancelled",
        "is_finished",
        "its_queues",
        "lost_worker",
    )
    by_priority = False
    deduplicates = False
    may_double = True
    counts = False
    relayed = False
    can_secure = can_encrypt = False

    def __init__(self, broker: Broker) -> None:
        kafka = TransportKafka(broker.folder)
        kafka.start()
        super().__init__(kafka)
        if kafka.mock is not None:
            # When workers come and go, the mock brokers wait for a second less than this; Kafka itself does not.
            kafka_settings.SESSION_SECONDS = 2

    async def empty(self, cluster: str) -> None:
        broker: Any = self.broker
        await asyncio.to_thread(_empty_topics, broker, f"detent.{cluster}.")
        await asyncio.sleep(PAUSE_SECONDS * 2)  # a client that pauses drops what it has fetched ahead


def _empty_topics(broker: TransportKafka, prefix: str) -> None:
    """A cluster deletes the topics; the mock brokers can only delete the records."""
    from confluent_kafka import Consumer, TopicPartition
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": broker.server.bootstrap})
    topics = {name: len(topic.partitions) for name, topic in admin.list_topics(timeout=10).topics.items()}
    ours = {name: partitions for name, partitions in topics.items() if name.startswith(prefix)}
    if broker.mock is None:
        for deleted in admin.delete_topics(list(ours)).values():
            deleted.result(20)
        return
    consumer = Consumer({"bootstrap.servers": broker.server.bootstrap, "group.id": "test"})
    for name, partitions in ours.items():
        for partition in range(partitions):
            _, high = consumer.get_watermark_offsets(TopicPartition(name, partition), timeout=10)
            broker.mock.delete_records(name, partition, high)
    consumer.close()


QUEUE_CARRIERS: dict[str, type[Carrier]] = {"rabbitmq": RabbitCarrier, "sqs": SqsCarrier, "kafka": KafkaCarrier}
