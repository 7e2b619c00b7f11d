"""What RabbitMQ answers, and what becomes of the message."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import aiormq
import pytest
from aiormq.abc import DeliveredMessage
from yarl import URL

from detent.domain.run import Failed
from detent.targets.breaker import Unanswered
from detent.targets.topics.amqp import open_publisher
from detent.targets.topics.publisher import Answer, BrokerAddress, BrokerRefusedError, Publisher, Receipt, TopicMessage
from tests.support.brokers import MAX_MESSAGE_BYTES, PASSWORD, READER, USER, RabbitMQ
from tests.support.refusing_amqp import RefusingBroker
from tests.support.relay import dial, greeting_with, relay_to, tls_of
from tests.support.waiting import until


def message(topic: str = "orders", body: bytes = b'{"order":1}', number: int = 1) -> TopicMessage:
    headers = {"Detent-Job": "nightly", "Detent-Attempt": str(number)}
    return TopicMessage(topic, body, headers, "key", f"nightly:{number}")


@asynccontextmanager
async def publishing(
    url: str, username: str | None = None, password: str | None = None, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Publisher]:
    publisher = open_publisher(BrokerAddress(URL(url), username, password, tls), dial)
    try:
        yield publisher
    finally:
        await publisher.close()


@asynccontextmanager
async def reading(server: RabbitMQ, vhost: str = "") -> AsyncIterator[aiormq.abc.AbstractChannel]:
    """A client of its own, and queues that are empty."""
    async with aiormq.connect(f"{server.url}{vhost}") as connection:
        channel = await connection.channel()
        for queue in ("orders",) if vhost else ("orders", "audit", "one"):
            await channel.queue_purge(queue)
        yield channel


async def taken(channel: aiormq.abc.AbstractChannel, queue: str = "orders") -> DeliveredMessage | None:
    found = await channel.basic_get(queue, no_ack=True)
    return found if isinstance(found.delivery, aiormq.spec.Basic.GetOk) else None


async def all_taken(channel: aiormq.abc.AbstractChannel, queue: str = "orders") -> list[DeliveredMessage]:
    found: list[DeliveredMessage] = []
    while (each := await taken(channel, queue)) is not None:
        found.append(each)
    return found


async def test_a_message_to_a_queue_has_its_facts_and_survives_a_restart_of_the_broker(
    rabbitmq_server: RabbitMQ,
) -> None:
    async with reading(rabbitmq_server) as channel, publishing(rabbitmq_server.url) as publisher:
        answers = await publisher.publish([message()])
        found = await taken(channel)
    assert answers == [Receipt({"exchange": "", "routing_key": "orders"})]
    assert found is not None
    assert found.body == b'{"order":1}'
    properties = found.header.properties
    assert properties.headers == {"Detent-Job": "nightly", "Detent-Attempt": "1"}
    assert properties.message_id == "nightly:1"
    assert properties.content_type == "application/json"
    assert properties.delivery_mode == 2


async def test_a_topic_with_a_slash_names_an_exchange_and_a_routing_key(rabbitmq_server: RabbitMQ) -> None:
    async with reading(rabbitmq_server) as channel, publishing(rabbitmq_server.url) as publisher:
        assert isinstance((await publisher.publish([message("events/order.new")]))[0], Receipt)
        found = await taken(channel)
    assert found is not None
    assert (found.exchange, found.routing_key) == ("events", "order.new")


async def test_a_batch_keeps_its_order_and_every_message_is_confirmed(rabbitmq_server: RabbitMQ) -> None:
    async with reading(rabbitmq_server) as channel, publishing(rabbitmq_server.url) as publisher:
        answers = await publisher.publish([message(body=b"%d" % number, number=number) for number in range(500)])
        found = await all_taken(channel)
    assert all(isinstance(answer, Receipt) for answer in answers)
    assert [each.body for each in found] == [b"%d" % number for number in range(500)]


async def test_an_unroutable_message_fails_in_words_and_others_of_the_batch_do_not(rabbitmq_server: RabbitMQ) -> None:
    async with reading(rabbitmq_server) as channel, publishing(rabbitmq_server.url) as publisher:
        batch = [message("orders"), message("nowhere", number=2), message("events/other.key", number=3)]
        good, nowhere, unbound = await publisher.publish(batch)
        assert len(await all_taken(channel)) == 1
    assert isinstance(good, Receipt)
    assert isinstance(nowhere, Failed) and nowhere.retryable
    assert nowhere.error == (
        f"127.0.0.1:{rabbitmq_server.port} returned the message (NO_ROUTE): there is no queue 'nowhere'. "
        "Declare or bind the queue."
    )
    assert isinstance(unbound, Failed)
    assert "the exchange 'events' has no queue for the routing key 'other.key'" in unbound.error


async def test_a_missing_exchange_fails_only_the_messages_to_it(rabbitmq_server: RabbitMQ) -> None:
    async with reading(rabbitmq_server) as channel, publishing(rabbitmq_server.url) as publisher:
        batch = [message(("missing/key", "orders")[number % 2], number=number) for number in range(20)]
        answers = await publisher.publish(batch)
        assert len(await all_taken(channel)) == 10
        assert isinstance((await publisher.publish([message()]))[0], Receipt)
    assert all(isinstance(answer, Receipt) for answer in answers[1::2])
    for answer in answers[::2]:
        assert isinstance(answer, Failed) and answer.retryable
        assert answer.error == (
            f"127.0.0.1:{rabbitmq_server.port} refused the message: NOT_FOUND - no exchange 'missing' in vhost '/'"
        )


async def test_a_message_that_is_too_large_is_not_retried_and_others_arrive(rabbitmq_server: RabbitMQ) -> None:
    async with reading(rabbitmq_server) as channel, publishing(rabbitmq_server.url) as publisher:
        batch = [message(number=number) for number in range(9)]
        batch[4] = message(body=b"x" * (MAX_MESSAGE_BYTES + 1), number=4)
        answers = await publisher.publish(batch)
        found = await all_taken(channel)
    refused = answers[4]
    assert isinstance(refused, Failed) and not refused.retryable
    assert "PRECONDITION_FAILED - message size 200001 is larger than configured max size 200000" in refused.error
    assert all(isinstance(answer, Receipt) for number, answer in enumerate(answers) if number != 4)
    assert {each.header.properties.message_id for each in found} == {f"nightly:{n}" for n in range(9) if n != 4}


async def test_a_queue_that_is_full_refuses_and_a_retry_may_help(rabbitmq_server: RabbitMQ) -> None:
    async with reading(rabbitmq_server) as channel, publishing(rabbitmq_server.url) as publisher:
        first = await publisher.publish([message("one")])
        second = await publisher.publish([message("one", number=2)])
        await channel.queue_purge("one")
    assert isinstance(first[0], Receipt)
    assert isinstance(second[0], Failed) and second[0].retryable
    assert "basic.nack" in second[0].error


async def test_a_wrong_password_is_refused_in_the_words_of_the_broker(rabbitmq_server: RabbitMQ) -> None:
    async with publishing(rabbitmq_server.url, USER, "wrong") as publisher:
        with pytest.raises(BrokerRefusedError, match="ACCESS_REFUSED - Login was refused"):
            await publisher.publish([message()])
    async with publishing(rabbitmq_server.url, USER, PASSWORD) as publisher:
        assert isinstance((await publisher.publish([message()]))[0], Receipt)


async def test_a_virtual_host_that_does_not_exist_is_refused_by_name(rabbitmq_server: RabbitMQ) -> None:
    async with publishing(f"{rabbitmq_server.url}nowhere") as publisher:
        with pytest.raises(BrokerRefusedError, match="NOT_ALLOWED - vhost nowhere not found"):
            await publisher.publish([message()])


async def test_a_virtual_host_may_have_a_slash_in_its_name(rabbitmq_server: RabbitMQ) -> None:
    vhost = "tenants%2Fone"
    async with reading(rabbitmq_server, vhost) as channel, publishing(f"{rabbitmq_server.url}{vhost}") as publisher:
        assert isinstance((await publisher.publish([message()]))[0], Receipt)
        assert await taken(channel) is not None


async def test_without_the_permission_to_publish_a_retry_does_not_help(rabbitmq_server: RabbitMQ) -> None:
    async with publishing(rabbitmq_server.url, READER, PASSWORD) as publisher:
        answer = (await publisher.publish([message("events/order.new")]))[0]
    assert isinstance(answer, Failed) and not answer.retryable
    assert "ACCESS_REFUSED" in answer.error and READER in answer.error


async def test_a_key_that_is_too_long_for_a_message_id_is_hashed(rabbitmq_server: RabbitMQ) -> None:
    long = message()._replace(deduplication_id="ü" * 200)
    async with reading(rabbitmq_server) as channel, publishing(rabbitmq_server.url) as publisher:
        assert isinstance((await publisher.publish([long]))[0], Receipt)
        found = await taken(channel)
    assert found is not None and len(found.header.properties.message_id or "") == 64


async def test_a_header_that_amqp_cannot_express_fails_its_message_only(rabbitmq_server: RabbitMQ) -> None:
    bad = message(number=2)._replace(headers={"x" * 300: "value"})
    async with reading(rabbitmq_server), publishing(rabbitmq_server.url) as publisher:
        good, failed = await publisher.publish([message(), bad])
    assert isinstance(good, Receipt)
    assert isinstance(failed, Failed) and not failed.retryable


async def test_a_server_that_is_away_is_an_error_of_the_connection(rabbitmq_server: RabbitMQ) -> None:
    async with relay_to(rabbitmq_server.port) as relay:
        port = relay.port
    async with publishing(f"amqp://127.0.0.1:{port}/") as publisher:
        with pytest.raises(OSError):
            await publisher.publish([message()])


async def test_a_connection_that_breaks_before_the_confirmation_fails_retryably_and_is_made_again(
    rabbitmq_server: RabbitMQ,
) -> None:
    async with (
        reading(rabbitmq_server) as channel,
        relay_to(rabbitmq_server.port) as relay,
        publishing(f"amqp://127.0.0.1:{relay.port}/") as publisher,
    ):
        assert isinstance((await publisher.publish([message()]))[0], Receipt)
        relay.answers = False
        under_way = asyncio.create_task(_published(publisher, [message(number=2), message(number=3)]))
        arrived = await until(lambda: taken(channel), what="the message to arrive without its confirmation")
        assert arrived is not None
        relay.cut()
        answers = await under_way
        relay.answers = True
        for answer in answers:
            assert isinstance(answer, Unanswered) and answer.sent and answer.failed.retryable
            assert answer.failed.error.startswith(
                f"The connection to 127.0.0.1:{relay.port} broke before the message was acknowledged: "
            )
        assert isinstance((await publisher.publish([message(number=4)]))[0], Receipt)


async def _published(publisher: Publisher, messages: Sequence[TopicMessage]) -> Sequence[Answer]:
    return await publisher.publish(messages)


async def test_with_tls_the_certificate_is_checked_against_the_name(rabbitmq_server: RabbitMQ, tmp_path: Path) -> None:
    server_tls, client_tls = tls_of(tmp_path)
    async with relay_to(rabbitmq_server.port, server_tls) as relay:
        url = f"amqps://127.0.0.1:{relay.port}/"
        async with reading(rabbitmq_server), publishing(url, tls=client_tls) as publisher:
            assert isinstance((await publisher.publish([message()]))[0], Receipt)
        async with publishing(url, tls=ssl.create_default_context()) as publisher:
            with pytest.raises(OSError, match="certificate verify failed"):
                await publisher.publish([message()])


@pytest.mark.parametrize("greeting", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"AMQP\x03\x01\x00\x00", b"\x01" * 4096])
async def test_a_server_that_speaks_something_else_is_an_error_of_the_connection(greeting: bytes) -> None:
    async with greeting_with(greeting) as port, publishing(f"amqp://127.0.0.1:{port}/") as publisher:
        with pytest.raises(OSError, match="does not answer as a broker of AMQP 0-9-1"):
            await publisher.publish([message()])


@pytest.mark.parametrize(
    ("code", "words", "kind"),
    [
        (320, "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'", OSError),
        (530, "NOT_ALLOWED - access to vhost '/' refused for user 'ada': connection limit (2) is reached", OSError),
        (530, "NOT_ALLOWED - vhost nowhere not found", BrokerRefusedError),
    ],
)
async def test_only_a_refusal_that_stays_is_not_retried(code: int, words: str, kind: type[Exception]) -> None:
    broker = RefusingBroker(code, words)
    async with broker.listening(), publishing(broker.url) as publisher:
        with pytest.raises(kind, match="refused the connection"):
            await publisher.publish([message()])
