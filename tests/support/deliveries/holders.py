"""The brokers that take part, each with a topic of its own and a way to read what it holds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Protocol
from uuid import uuid4

from tests.topics import debian_brokers  # noqa: F401 - it adds its brokers
from tests.topics.brokers import BROKERS, Broker, running_broker
from tests.topics.cloud_servers import KafkaServer, SqsServer, running_kafka, running_sqs

RUN_ID = "Detent-Run-Id"
# moto answers a few dozen requests per second.
SLOW_SHARE = 0.05


class Holder(Protocol):
    name: str
    deduplicates: bool
    share: float
    """Of the runs that the others get."""

    def target(self) -> dict[str, Any]: ...

    async def create(self) -> None: ...

    async def run_ids(self) -> list[str]:
        """The run of every message that the broker holds."""
        ...


class BrokerHolder:
    share = 1.0

    def __init__(self, broker: Broker) -> None:
        self.name = broker.name
        self.deduplicates = broker.deduplicates
        self._broker = broker
        self._topic = f"runs-{uuid4().hex[:8]}"

    def target(self) -> dict[str, Any]:
        return {"type": "topic", "url": self._broker.url, "topic": self._topic}

    async def create(self) -> None:
        await self._broker.create(self._topic)

    async def run_ids(self) -> list[str]:
        return [message.headers[RUN_ID] for message in await self._broker.read(self._topic)]


class FifoHolder:
    name = "sqs-fifo"
    deduplicates = True
    share = SLOW_SHARE

    def __init__(self, server: SqsServer) -> None:
        self._server = server
        self._queue = ""

    def target(self) -> dict[str, Any]:
        return {"type": "topic", "url": self._server.url, "topic": "runs.fifo"}

    async def create(self) -> None:
        self._queue = self._server.create("runs.fifo")

    async def run_ids(self) -> list[str]:
        """All of them: FIFO queues hide the messages of a group while one of them is out."""
        messages = self._server.receive(self._queue, self._server.count(self._queue))
        return [message["MessageAttributes"][RUN_ID]["StringValue"] for message in messages]


class KafkaHolder:
    name = "kafka"
    deduplicates = False
    share = 1.0

    def __init__(self, server: KafkaServer) -> None:
        self._server = server
        self._topic = f"runs-{uuid4().hex[:8]}"

    def target(self) -> dict[str, Any]:
        return {"type": "topic", "url": f"kafka://{self._server.bootstrap.split(',')[0]}", "topic": self._topic}

    async def create(self) -> None:
        await asyncio.to_thread(self._server.create, self._topic)

    async def run_ids(self) -> list[str]:
        return [record.headers[RUN_ID] for record in self._server.records(self._topic, self._count())]

    def _count(self) -> int:
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": self._server.bootstrap, "group.id": "count"})
        try:
            partitions = consumer.list_topics(self._topic, timeout=10).topics[self._topic].partitions
            ends = [consumer.get_watermark_offsets(TopicPartition(self._topic, number)) for number in partitions]
        finally:
            consumer.close()
        return sum(high - low for low, high in ends)


@asynccontextmanager
async def holding(names: Sequence[str]) -> AsyncIterator[list[Holder]]:
    async with AsyncExitStack() as stack:
        holders: list[Holder] = []
        for name in names:
            if name == "sqs-fifo":
                holders.append(FifoHolder(stack.enter_context(running_sqs())))
            elif name == "kafka":
                holders.append(KafkaHolder(stack.enter_context(running_kafka())))
            else:
                holders.append(BrokerHolder(stack.enter_context(running_broker(BROKERS[name]))))
        for holder in holders:
            await holder.create()
        yield holders
