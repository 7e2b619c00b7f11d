"""What is special about offers in RabbitMQ."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiormq
import pytest

from detent.domain.offer import encode_offer
from detent.transports import rabbitmq
from detent.transports.rabbitmq import open_transport
from detent.transports.transport import Transport, TransportAwayError
from tests.support.brokers import RabbitMQ
from tests.support.waiting import until
from tests.topics.conftest import rabbitmq_server as rabbitmq_server
from tests.transports.offers import LONG_HOLD, NOW, OTHER_QUEUE, QUEUE, jobs_of, offer_of, take_all


@asynccontextmanager
async def opened(server: RabbitMQ, cluster: str, hold_seconds: float = LONG_HOLD) -> AsyncIterator[Transport]:
    transport = open_transport(server.url, cluster, hold_seconds=hold_seconds)
    await transport.open()
    try:
        yield transport
    finally:
        await transport.close()


async def test_the_queues_are_quorum_queues_whose_offers_end(rabbitmq_server: RabbitMQ, cluster: str) -> None:
    async with opened(rabbitmq_server, cluster) as transport, aiormq.connect(rabbitmq_server.url) as connection:
        await transport.send([offer_of(1, priority=6), offer_of(2), offer_of(3, priority=4)])
        for band, job in (("high", 1), ("normal", 2), ("low", 3)):
            name = f"detent.{cluster}.{QUEUE}.{band}"
            channel = await connection.channel()
            await channel.queue_declare(name, durable=True, arguments={"x-queue-type": "quorum"})
            found = await channel.basic_get(name, no_ack=True)
            assert f'"job":{job},' in found.body.decode()
            assert found.header.properties.expiration == "120000"
            assert found.header.properties.delivery_mode == 2


async def test_what_a_worker_does_not_take_goes_to_others(rabbitmq_server: RabbitMQ, cluster: str) -> None:
    async with opened(rabbitmq_server, cluster) as transport, opened(rabbitmq_server, cluster) as other:
        await transport.send([offer_of(number, priority=number % 3 + 4) for number in range(30)])
        first = await take_all(transport, 10)
        assert not set(jobs_of(await take_all(other, 20))) & set(jobs_of(first))


async def test_a_message_that_is_no_offer_of_its_queue_is_dropped(rabbitmq_server: RabbitMQ, cluster: str) -> None:
    async with opened(rabbitmq_server, cluster) as transport, aiormq.connect(rabbitmq_server.url) as connection:
        await transport.send([offer_of(1)])
        channel = await connection.channel()
        for body in (b"hello", encode_offer(offer_of(2, queue=OTHER_QUEUE))):
            await channel.basic_publish(body, routing_key=f"detent.{cluster}.{QUEUE}.normal")
        held = await take_all(transport, 1)
        assert jobs_of(held) == [1]
        assert await transport.take([QUEUE, OTHER_QUEUE], 1, NOW, 0.5) == []
        await transport.finish(held)


@pytest.mark.parametrize("created_by_others", [False, True])
async def test_a_queue_that_is_deleted_under_a_waiting_worker_is_used_again(
    rabbitmq_server: RabbitMQ, cluster: str, monkeypatch: pytest.MonkeyPatch, created_by_others: bool
) -> None:
    """Where another client creates it first, RabbitMQ does not report the deletion to the consumer."""
    monkeypatch.setattr(rabbitmq, "RENEW_SECONDS", 0.5)
    quorum: dict[str, Any] = {"durable": True, "arguments": {"x-queue-type": "quorum"}}
    async with opened(rabbitmq_server, cluster) as transport, aiormq.connect(rabbitmq_server.url) as connection:
        channel = await connection.channel()
        name = f"detent.{cluster}.{QUEUE}.normal"
        waiting = asyncio.create_task(transport.take([QUEUE], 1, NOW, 20.0))

        async def consumed() -> bool:
            return (await channel.queue_declare(name, **quorum)).consumer_count == 1

        await until(consumed, what="the worker to consume")
        await channel.queue_delete(name)
        if created_by_others:
            await channel.queue_declare(name, **quorum)
        await transport.send([offer_of(1)])
        assert jobs_of(await waiting) == [1]


async def test_offers_to_a_queue_that_was_deleted_create_it_again(rabbitmq_server: RabbitMQ, cluster: str) -> None:
    async with opened(rabbitmq_server, cluster) as transport, aiormq.connect(rabbitmq_server.url) as connection:
        await transport.send([offer_of(1)])
        channel = await connection.channel()
        await channel.queue_delete(f"detent.{cluster}.{QUEUE}.normal")
        await transport.send([offer_of(number) for number in range(500)])
        assert set(jobs_of(await take_all(transport, 500))) == set(range(500))


async def test_a_queue_of_another_kind_is_refused_in_the_words_of_the_broker(
    rabbitmq_server: RabbitMQ, cluster: str
) -> None:
    async with opened(rabbitmq_server, cluster) as transport, aiormq.connect(rabbitmq_server.url) as connection:
        name = f"detent.{cluster}.{QUEUE}.normal"
        await (await connection.channel()).queue_declare(name, durable=True)
        for call in (transport.send([offer_of(1)]), transport.take([QUEUE], 1, NOW, 5.0), transport.depth([QUEUE])):
            with pytest.raises(TransportAwayError, match=r"PRECONDITION_FAILED - inequivalent arg 'x-queue-type'"):
                await call
        await transport.send([offer_of(1, queue=OTHER_QUEUE)])


async def test_an_answer_to_a_question_that_was_cancelled_is_not_taken_for_another_one(
    rabbitmq_server: RabbitMQ, cluster: str
) -> None:
    async with opened(rabbitmq_server, cluster) as transport:
        await transport.send([offer_of(number) for number in range(3)])
        for _ in range(10):
            asking = asyncio.create_task(transport.depth([QUEUE]))
            await asyncio.sleep(0)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            assert (await transport.depth([OTHER_QUEUE]))[OTHER_QUEUE].offers == 0


async def test_offers_with_which_a_worker_does_nothing_return_though_it_lives(
    rabbitmq_server: RabbitMQ, cluster: str
) -> None:
    async with opened(rabbitmq_server, cluster, 0.3) as transport:
        await transport.send([offer_of(1)])
        (forgotten,) = await take_all(transport, 1)
        (again,) = await take_all(transport, 1)
        await transport.finish([forgotten])  # too late: it is another delivery now
        await transport.give_back([again])
        (once_more,) = await take_all(transport, 1)
        await transport.finish([once_more])
        assert (await transport.depth([QUEUE]))[QUEUE].offers == 0
