"""Servers of the cloud protocols for tests: the mock brokers inside librdkafka, moto's SQS, and the documented part of
Pub/Sub's REST API that publishers use."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any, NamedTuple

from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

ACCOUNT = "detent@project.iam.gserviceaccount.com"


async def direct_dial(host: str, port: int) -> socket.socket:
    """Without rules, for tests of a publisher by itself."""
    loop = asyncio.get_running_loop()
    (family, kind, protocol, _, address), *_ = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    opened = socket.socket(family, kind, protocol)
    opened.setblocking(False)
    try:
        await loop.sock_connect(opened, address)
    except BaseException:
        opened.close()
        raise
    return opened


class KafkaRecord(NamedTuple):
    key: str
    body: bytes
    headers: dict[str, str]
    partition: int


class KafkaServer:
    """A cluster, and a consumer of it. `mocked`: the brokers of the client library."""

    def __init__(self, bootstrap: str, *, mocked: bool) -> None:
        self.bootstrap = bootstrap
        self._mocked = mocked

    def create(self, topic: str) -> None:
        """The mock brokers create a topic when a producer asks for it, and cannot do it otherwise."""
        if self._mocked:
            return
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_topics([NewTopic(topic, 3, 1)])[topic].result(20)

    def records(self, topic: str, count: int | None = None, seconds: float = 20.0) -> list[KafkaRecord]:
        """The first so many messages of a topic, or all, from all its partitions."""
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "test", "enable.auto.commit": False})
        try:
            partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
            consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
            if count is None:
                ends = [consumer.get_watermark_offsets(TopicPartition(topic, number)) for number in partitions]
                count = sum(high for _, high in ends)
            found: list[KafkaRecord] = []
            while len(found) < count:
                batch = consumer.consume(count - len(found), timeout=seconds)
                assert batch, f"only {len(found)} of {count} messages are in {topic}"
                found += [_record(message) for message in batch]
            return found
        finally:
            consumer.close()


def _record(message: Any) -> KafkaRecord:
    assert message.error() is None, message.error()
    headers = {name: value.decode() for name, value in message.headers() or ()}
    return KafkaRecord(message.key().decode(), message.value(), headers, message.partition())


@contextmanager
def running_kafka() -> Iterator[KafkaServer]:
    """The cluster of KAFKA_BOOTSTRAP where it is given, otherwise the mock brokers of the client library."""
    given = os.environ.get("KAFKA_BOOTSTRAP")
    if given:
        yield KafkaServer(given, mocked=False)
        return
    from confluent_kafka import Producer

    host = Producer({"test.mock.num.brokers": 3, "bootstrap.servers": "unused", "log_level": 0})
    brokers = host.list_topics(timeout=10).brokers.values()
    yield KafkaServer(",".join(f"{broker.host}:{broker.port}" for broker in brokers), mocked=True)
    host.flush(1)


class SqsServer:
    def __init__(self, port: int) -> None:
        import boto3

        self.port = port
        self.url = f"sqs://127.0.0.1:{port}/?region=eu-central-1"
        self.client = boto3.client(
            "sqs", endpoint_url=f"http://127.0.0.1:{port}", region_name="eu-central-1",
            aws_access_key_id="AKIATEST", aws_secret_access_key="secret",
        )  # fmt: skip

    def create(self, name: str) -> str:
        attributes = {"FifoQueue": "true"} if name.endswith(".fifo") else {}
        return str(self.client.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"])

    def receive(self, queue: str, count: int) -> list[dict[str, Any]]:
        """So many messages of a queue, which are deleted."""
        found: list[dict[str, Any]] = []
        while len(found) < count:
            answer = self.client.receive_message(
                QueueUrl=queue, MaxNumberOfMessages=10, MessageAttributeNames=["All"], AttributeNames=["All"]
            )
            messages = answer.get("Messages", [])
            assert messages, f"only {len(found)} of {count} messages are in the queue"
            handles = [
                {"Id": str(number), "ReceiptHandle": message["ReceiptHandle"]}
                for number, message in enumerate(messages)
            ]
            self.client.delete_message_batch(QueueUrl=queue, Entries=handles)
            found += messages
        return found

    def count(self, queue: str) -> int:
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesDelayed"]
        found = self.client.get_queue_attributes(QueueUrl=queue, AttributeNames=names)["Attributes"]
        return sum(int(found[name]) for name in names)


@contextmanager
def running_sqs() -> Iterator[SqsServer]:
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        yield SqsServer(server.get_host_and_port()[1])
    finally:
        server.stop()


class ServiceKey:
    """A key of a service account, as Google issues it."""

    def __init__(self) -> None:
        self._key = rsa.generate_private_key(65537, 2048)

    def document(self) -> str:
        private = self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        fields = {"type": "service_account", "client_email": ACCOUNT, "private_key": private, "private_key_id": "key-1"}
        return json.dumps(fields)

    def public(self) -> str:
        return self._key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


class PubsubServer:
    """What Pub/Sub documents about `projects.topics.publish`: the path, the form of messages, ids in their order, and
    the forms of refusals. With a key, each request needs a token that this account has signed."""

    def __init__(self, key: ServiceKey | None, topics: Sequence[str]) -> None:
        self._key = key
        self.topics: dict[str, list[dict[str, Any]]] = {name: [] for name in topics}
        self.refuse_next: tuple[int, dict[str, str]] | None = None
        self.requests = 0
        self.port = 0

    async def publish(self, request: web.Request) -> web.Response:
        self.requests += 1
        if self.refuse_next is not None:
            status, headers = self.refuse_next
            self.refuse_next = None
            return _google_error(status, "Quota exceeded for quota metric 'Publisher throughput'.", headers)
        fault = self._token_fault(request.headers.get("Authorization", ""))
        if fault is not None:
            return _google_error(401, fault)
        path, _, verb = request.match_info["tail"].rpartition(":")
        if verb != "publish" or path not in self.topics:
            return _google_error(404, f"Resource not found (resource={path.rpartition('/')[2]}).")
        messages = (await request.json())["messages"]
        for message in messages:
            assert set(message) <= {"data", "attributes", "orderingKey"}
            assert all(isinstance(value, str) for value in message["attributes"].values())
            base64.b64decode(message["data"], validate=True)
        first = len(self.topics[path])
        self.topics[path] += messages
        return web.json_response({"messageIds": [str(first + number) for number in range(len(messages))]})

    def _token_fault(self, authorization: str) -> str | None:
        if self._key is None:
            return "An emulator gets no token." if authorization else None
        from joserfc import jwt
        from joserfc.errors import JoseError
        from joserfc.jwk import RSAKey

        try:
            token = jwt.decode(authorization.removeprefix("Bearer "), RSAKey.import_key(self._key.public()))
            jwt.JWTClaimsRegistry(
                iss={"essential": True, "value": ACCOUNT},
                sub={"essential": True, "value": ACCOUNT},
                aud={"essential": True, "value": "https://pubsub.googleapis.com/"},
                exp={"essential": True},
            ).validate(token.claims)
        except (JoseError, ValueError):
            return "Request had invalid authentication credentials."
        return None


def _google_error(status: int, message: str, headers: dict[str, str] | None = None) -> web.Response:
    names = {401: "UNAUTHENTICATED", 404: "NOT_FOUND", 429: "RESOURCE_EXHAUSTED", 503: "UNAVAILABLE"}
    error = {"code": status, "message": message, "status": names[status]}
    return web.json_response({"error": error}, status=status, headers=headers)


class ThreadedPubsub:
    """The server in a thread of its own, for tests that use it from several loops."""

    def __init__(self, key: ServiceKey | None, tls: ssl.SSLContext | None) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._stack = AsyncExitStack()
        opening = self._stack.enter_async_context(running_pubsub(key=key, tls=tls))
        self.server = asyncio.run_coroutine_threadsafe(opening, self._loop).result(10)

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._stack.aclose(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


@asynccontextmanager
async def running_pubsub(
    *topics: str, key: ServiceKey | None = None, tls: ssl.SSLContext | None = None
) -> AsyncIterator[PubsubServer]:
    server = PubsubServer(key, topics)
    app = web.Application(client_max_size=16 << 20)
    app.router.add_post("/v1/{tail:.+}", server.publish)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    server.port = runner.addresses[0][1]
    try:
        yield server
    finally:
        await runner.cleanup()
