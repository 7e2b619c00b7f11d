"""The clients that people use for a broker, without detent: the yardstick of `detent bench topics`.

Each sends messages the fastest way that its manual offers and waits until the broker has acknowledged all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from yarl import URL

from detent.errors import Unavailable
from detent.targets.topics.publisher import TopicMessage

SendMany = Callable[[Sequence[TopicMessage]], Awaitable[None]]

# moto does not check them.
AWS = {"region_name": "eu-central-1", "aws_access_key_id": "AKIATEST", "aws_secret_access_key": "secret"}


@asynccontextmanager
async def redis(url: URL, topic: str) -> AsyncIterator[SendMany]:
    from redis.asyncio import Redis

    async with Redis(host=url.host or "", port=url.port or 6379) as client:

        async def send(messages: Sequence[TopicMessage]) -> None:
            pipeline = client.pipeline(transaction=False)
            for message in messages:
                fields: dict[Any, Any] = {**message.headers, "body": message.body}
                pipeline.xadd(topic, fields)
            await pipeline.execute()

        yield send


@asynccontextmanager
async def nats(url: URL, topic: str) -> AsyncIterator[SendMany]:
    import nats as client_library

    client = await client_library.connect(str(url))
    jetstream = client.jetstream()
    await jetstream.add_stream(name=topic, subjects=[topic])

    async def send(messages: Sequence[TopicMessage]) -> None:
        sent = [
            await jetstream.publish_async(
                topic, message.body, headers={**message.headers, "Nats-Msg-Id": message.deduplication_id}
            )
            for message in messages
        ]
        await asyncio.gather(*sent)

    try:
        yield send
    finally:
        await client.close()


@asynccontextmanager
async def amqp(url: URL, topic: str) -> AsyncIterator[SendMany]:
    import aiormq

    async with aiormq.connect(str(url)) as connection:
        channel = await connection.channel()
        await channel.queue_declare(topic, durable=True)

        async def one(message: TopicMessage) -> None:
            properties = aiormq.spec.Basic.Properties(
                headers=dict(message.headers), delivery_mode=2, message_id=message.deduplication_id
            )
            await channel.basic_publish(message.body, routing_key=topic, properties=properties, mandatory=True)

        async def send(messages: Sequence[TopicMessage]) -> None:
            await asyncio.gather(*(one(message) for message in messages))

        yield send


@asynccontextmanager
async def mqtt(url: URL, topic: str) -> AsyncIterator[SendMany]:
    import aiomqtt
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.properties import Properties

    client = aiomqtt.Client(url.host or "", url.port or 1883, protocol=aiomqtt.ProtocolVersion.V5)
    client.pending_calls_threshold = 1_000_000  # it warns about more calls at once than this
    async with client:

        async def one(message: TopicMessage) -> None:
            properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]  # it has no types
            properties.UserProperty = list(message.headers.items())
            await client.publish(topic, message.body, qos=1, properties=properties)

        async def send(messages: Sequence[TopicMessage]) -> None:
            await asyncio.gather(*(one(message) for message in messages))

        yield send


@asynccontextmanager
async def sqs(url: URL, topic: str) -> AsyncIterator[SendMany]:
    from aiobotocore.session import get_session  # type: ignore[import-untyped]  # it has no types

    endpoint = f"http://{url.host}:{url.port}"
    async with get_session().create_client("sqs", endpoint_url=endpoint, **AWS) as client:
        queue = (await client.create_queue(QueueName=topic))["QueueUrl"]

        async def ten(messages: Sequence[TopicMessage]) -> None:
            entries = [
                {"Id": str(number), "MessageBody": message.body.decode(), "MessageAttributes": _attributes(message)}
                for number, message in enumerate(messages)
            ]
            answer = await client.send_message_batch(QueueUrl=queue, Entries=entries)
            if answer.get("Failed"):
                raise Unavailable(f"The server of the measurement refused messages: {answer['Failed']}")

        async def send(messages: Sequence[TopicMessage]) -> None:
            await asyncio.gather(*(ten(messages[first : first + 10]) for first in range(0, len(messages), 10)))

        yield send


def _attributes(message: TopicMessage) -> dict[str, Any]:
    return {name: {"DataType": "String", "StringValue": value} for name, value in list(message.headers.items())[:10]}


@asynccontextmanager
async def kafka(url: URL, topic: str) -> AsyncIterator[SendMany]:
    from confluent_kafka import Producer

    settings = {"bootstrap.servers": f"{url.host}:{url.port}", "enable.idempotence": True, "linger.ms": 1}
    producer = Producer({**settings, "log_level": 0})

    def produce(messages: Sequence[TopicMessage]) -> None:
        refused: list[Any] = []

        def report(error: Any, _: Any) -> None:
            if error is not None:
                refused.append(error)

        for message in messages:
            headers: list[tuple[str, Any]] = [(name, value.encode()) for name, value in message.headers.items()]
            producer.produce(topic, message.body, message.key.encode(), headers=headers, on_delivery=report)
        if producer.flush(60) or refused:
            raise Unavailable("The server of the measurement did not acknowledge all messages.")

    async def send(messages: Sequence[TopicMessage]) -> None:
        await asyncio.to_thread(produce, messages)

    yield send


BARE = {"redis": redis, "nats": nats, "amqp": amqp, "mqtt": mqtt, "sqs": sqs, "kafka": kafka}
