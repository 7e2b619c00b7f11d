"""Kafka, SQS and Pub/Sub in the contract suite. They run in the process of the test: no server of them can be had as a
program here. With KAFKA_BOOTSTRAP, the suite uses that cluster."""

from __future__ import annotations

import asyncio
import base64
import ssl
from contextlib import ExitStack
from typing import Any

import msgspec

from detent.domain.job import TargetCredentials, TopicTarget
from tests.topics.brokers import Broker, Received
from tests.topics.cloud_servers import KafkaServer, ServiceKey, SqsServer, ThreadedPubsub, running_kafka, running_sqs

PROJECT = "my-project"


class InProcessBroker(Broker):
    question = answer = b""
    can_secure = False
    can_encrypt = False
    can_restart = False
    durable = False

    def command(self) -> list[str]:
        raise NotImplementedError(f"{self.name} is no program")

    def start(self) -> None:
        self._stack = ExitStack()
        self.port = self.begin(self._stack)

    def begin(self, stack: ExitStack) -> int:
        raise NotImplementedError

    def ensure(self) -> None:
        pass

    def kill(self) -> None:
        self._stack.close()


class KafkaBroker(InProcessBroker):
    name = "kafka"
    protocol = "kafka"
    cloudevent_prefix = "ce_"
    too_large = 1_100_000
    illegal_topics = ("two words", ".", "..", "a/b", "x" * 250)

    def begin(self, stack: ExitStack) -> int:
        self.server: KafkaServer = stack.enter_context(running_kafka())
        host, _, port = self.server.bootstrap.partition(",")[0].rpartition(":")
        self.host = host
        return int(port)

    @property
    def url(self) -> str:
        return f"kafka://{self.host}:{self.port}"

    async def create(self, topic: str) -> None:
        await asyncio.to_thread(self.server.create, topic)

    async def read(self, topic: str) -> list[Received]:
        found = await asyncio.to_thread(self.server.records, topic)
        return [Received(record.body, record.headers) for record in found]


class SqsBroker(InProcessBroker):
    """moto's server, whose reads take a time that grows with the length of the queue."""

    name = "sqs"
    slow = 40
    protocol = "sqs"
    ordered = False
    too_large = 1_100_000
    illegal_topics = ("two words", "a/b", "https://example.com/queue", "x" * 81, ".fifo")
    suffix = ""

    def begin(self, stack: ExitStack) -> int:
        self.server: SqsServer = stack.enter_context(running_sqs())
        self._kept: dict[str, list[Received]] = {}
        return self.server.port

    @property
    def url(self) -> str:
        return self.server.url

    def target(self, topic: str, **fields: Any) -> TopicTarget:
        fields.setdefault("credentials", TargetCredentials("AKIATEST", "secret"))
        return super().target(f"{topic}{self.suffix}", **fields)

    async def create(self, topic: str) -> None:
        await asyncio.to_thread(self.server.create, f"{topic}{self.suffix}")

    async def read(self, topic: str) -> list[Received]:
        found = await asyncio.to_thread(self._read, f"{topic}{self.suffix}")
        kept = self._kept.setdefault(topic, [])
        kept += found
        return list(kept)

    def _read(self, name: str) -> list[Received]:
        queue = self.server.client.get_queue_url(QueueName=name)["QueueUrl"]
        return [_received(each) for each in self.server.receive(queue, self.server.count(queue))]


class SqsFifoBroker(SqsBroker):
    name = "sqs-fifo"
    deduplicates = True
    names_duplicates = False
    ordered = True
    suffix = ".fifo"


def _received(message: dict[str, Any]) -> Received:
    attributes = {name: value["StringValue"] for name, value in message.get("MessageAttributes", {}).items()}
    others = msgspec.json.decode(attributes.pop("Detent-Headers", "{}"))
    return Received(message["Body"].encode(), {**attributes, **others})


class PubsubBroker(InProcessBroker):
    name = "pubsub"
    protocol = "pubsub"
    cloudevent_prefix = "ce-"
    can_encrypt = True
    illegal_topics = ("ab", "two words", "1st-topic", "google-topic", "projects/p/topics/a/b")

    def begin(self, stack: ExitStack) -> int:
        self.key = ServiceKey() if self.authority is not None else None
        threaded = ThreadedPubsub(self.key, self._server_context())
        stack.callback(threaded.stop)
        self.server = threaded.server
        return self.server.port

    def _server_context(self) -> ssl.SSLContext | None:
        if self.authority is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.folder / "server.crt", self.folder / "server.key")
        return context

    @property
    def url(self) -> str:
        return f"pubsub://127.0.0.1:{self.port}/{PROJECT}{'?scheme=https' if self.key is not None else ''}"

    def target(self, topic: str, **fields: Any) -> TopicTarget:
        if self.key is not None:
            fields.setdefault("credentials", TargetCredentials(password=self.key.document()))
        return super().target(topic, **fields)

    async def create(self, topic: str) -> None:
        self.server.topics[_path(topic)] = []

    async def read(self, topic: str) -> list[Received]:
        found = list(self.server.topics[_path(topic)])
        return [Received(base64.b64decode(each["data"]), each["attributes"]) for each in found]


def _path(topic: str) -> str:
    return f"projects/{PROJECT}/topics/{topic}"
