"""What a broker of MQTT 5 answers, and what its subscribers get; an independent client reads."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import aiomqtt
import pytest
from yarl import URL

from detent.domain.run import Failed, NotBegun
from detent.targets.breaker import Unanswered
from detent.targets.topics import mqtt, mqtt_packets
from detent.targets.topics.publisher import Answer, BrokerAddress, BrokerRefusedError, Publisher, Receipt, TopicMessage
from tests.support.brokers import MAX_MESSAGE_BYTES, PASSWORD, USER, Mosquitto
from tests.support.relay import Listener, dial, greeting_with, relay_to, tls_of
from tests.support.waiting import until


def message(topic: str = "orders/new", body: bytes = b'{"order":1}', number: int = 1) -> TopicMessage:
    headers = {"Detent-Job": "nightly", "Detent-Attempt": str(number), "text": "grün"}
    return TopicMessage(topic, body, headers, "key", f"nightly:{number}")


@asynccontextmanager
async def publishing(
    url: str, username: str | None = None, password: str | None = None, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Publisher]:
    publisher = mqtt.open_publisher(BrokerAddress(URL(url), username, password, tls), dial)
    try:
        yield publisher
    finally:
        await publisher.close()


@asynccontextmanager
async def subscribed(server: Mosquitto, topic: str = "orders/#") -> AsyncIterator[aiomqtt.Client]:
    async with aiomqtt.Client("127.0.0.1", server.port, protocol=aiomqtt.ProtocolVersion.V5) as client:
        await client.subscribe(topic, qos=1)
        yield client


async def received(client: aiomqtt.Client, count: int) -> list[aiomqtt.Message]:
    async with asyncio.timeout(20):
        return [await anext(client.messages) for _ in range(count)]


async def test_a_subscriber_gets_the_body_and_the_facts_as_properties(mosquitto_server: Mosquitto) -> None:
    async with subscribed(mosquitto_server) as client, publishing(mosquitto_server.url) as publisher:
        assert await publisher.publish([message()]) == [Receipt({"topic": "orders/new"})]
        (found,) = await received(client, 1)
    assert str(found.topic) == "orders/new"
    assert found.payload == b'{"order":1}'
    assert found.qos == 1
    assert found.properties is not None
    properties = found.properties.json()  # type: ignore[no-untyped-call]
    assert properties["UserProperty"] == [("Detent-Job", "nightly"), ("Detent-Attempt", "1"), ("text", "grün")]
    assert properties["ContentType"] == "application/json"
    assert bytes.fromhex(properties["CorrelationData"]) == b"nightly:1"


async def test_far_more_messages_than_the_broker_admits_under_way_are_all_acknowledged_in_order(
    mosquitto_server: Mosquitto,
) -> None:
    async with subscribed(mosquitto_server) as client, publishing(mosquitto_server.url) as publisher:
        answers = await publisher.publish([message(body=b"%d" % number, number=number) for number in range(500)])
        found = await received(client, 500)
    assert answers == [Receipt({"topic": "orders/new"})] * 500
    assert [each.payload for each in found] == [b"%d" % number for number in range(500)]


async def test_without_subscribers_the_run_succeeds_and_says_so(mosquitto_server: Mosquitto) -> None:
    async with publishing(mosquitto_server.url) as publisher:
        answers = await publisher.publish([message("nobody/listens")])
    assert answers == [Receipt({"topic": "nobody/listens", "reason": "No matching subscribers (0x10)"})]


async def test_a_message_that_is_too_large_is_not_sent_and_others_are(mosquitto_server: Mosquitto) -> None:
    async with subscribed(mosquitto_server) as client, publishing(mosquitto_server.url) as publisher:
        batch = [message(), message(body=b"x" * MAX_MESSAGE_BYTES, number=2), message(number=3)]
        first, large, last = await publisher.publish(batch)
        assert len(await received(client, 2)) == 2
    assert isinstance(first, Receipt) and isinstance(last, Receipt)
    assert isinstance(large, Failed) and not large.retryable
    assert f"takes at most {MAX_MESSAGE_BYTES}" in large.error


async def test_a_wrong_password_is_refused_in_the_words_of_the_broker(mosquitto_server: Mosquitto) -> None:
    for username, password in ((USER, "wrong"), (None, None)):
        async with publishing(mosquitto_server.guarded_url, username, password) as publisher:
            with pytest.raises(BrokerRefusedError, match=r"refused the connection: Not authorized \(0x87\)"):
                await publisher.publish([message()])
    async with publishing(mosquitto_server.guarded_url, USER, PASSWORD) as publisher:
        assert isinstance((await publisher.publish([message()]))[0], Receipt)


async def test_a_topic_without_permission_fails_and_a_retry_does_not_help(mosquitto_server: Mosquitto) -> None:
    async with publishing(mosquitto_server.guarded_url, USER, PASSWORD) as publisher:
        allowed, forbidden = await publisher.publish([message(), message("forbidden/topic", number=2)])
    assert isinstance(allowed, Receipt)
    assert forbidden == Failed(
        f"127.0.0.1:{mosquitto_server.guarded_port} refused the message: Not authorized (0x87)", retryable=False
    )


async def test_a_connection_that_breaks_before_the_acknowledgement_fails_retryably_and_is_made_again(
    mosquitto_server: Mosquitto,
) -> None:
    async with (
        subscribed(mosquitto_server) as client,
        relay_to(mosquitto_server.port) as relay,
        publishing(f"mqtt://127.0.0.1:{relay.port}") as publisher,
    ):
        assert isinstance((await publisher.publish([message()]))[0], Receipt)
        relay.answers = False
        under_way = asyncio.create_task(_published(publisher, [message(number=n) for n in range(2, 100)]))
        await received(client, 2)
        relay.cut()
        answers = await under_way
        relay.answers = True
        assert isinstance((await publisher.publish([message(number=100)]))[0], Receipt)
    # mosquitto admits twenty under way; the others were certainly not sent.
    assert [type(answer) for answer in answers] == [Unanswered] * 20 + [NotBegun] * 78
    lost = answers[0]
    assert isinstance(lost, Unanswered) and lost.sent and lost.failed.retryable
    assert lost.failed.error.startswith(
        f"The connection to 127.0.0.1:{relay.port} broke before the message was acknowledged: "
    )


async def _published(publisher: Publisher, messages: Sequence[TopicMessage]) -> Sequence[Answer]:
    return await publisher.publish(messages)


async def test_a_cancelled_batch_leaves_a_publisher_that_can_be_used(mosquitto_server: Mosquitto) -> None:
    async with (
        relay_to(mosquitto_server.port) as relay,
        publishing(f"mqtt://127.0.0.1:{relay.port}") as publisher,
    ):
        await publisher.publish([message()])
        relay.answers, before = False, relay.forwarded
        under_way = asyncio.create_task(_published(publisher, [message(number=n) for n in range(50)]))
        await until(lambda: relay.forwarded > before, what="messages under way")
        under_way.cancel()
        with pytest.raises(asyncio.CancelledError):
            await under_way
        relay.cut()
        relay.answers = True
        await until(lambda: _reconnects(publisher), what="another connection")


async def _reconnects(publisher: Publisher) -> bool:
    return isinstance((await publisher.publish([message(number=51)]))[0], Receipt)


async def test_a_broker_that_does_not_answer_pings_is_given_up(
    mosquitto_server: Mosquitto, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mqtt, "KEEP_ALIVE_SECONDS", 1)
    async with (
        relay_to(mosquitto_server.port) as relay,
        publishing(f"mqtt://127.0.0.1:{relay.port}") as publisher,
    ):
        await publisher.publish([message()])
        relay.answers = False
        answer = (await publisher.publish([message(number=2)]))[0]
    assert isinstance(answer, Unanswered) and answer.failed.retryable
    assert answer.failed.error.endswith("The broker did not answer for 1 s.")


async def test_a_server_that_is_away_is_an_error_of_the_connection(mosquitto_server: Mosquitto) -> None:
    async with relay_to(mosquitto_server.port) as relay:
        port = relay.port
    async with publishing(f"mqtt://127.0.0.1:{port}") as publisher:
        with pytest.raises(OSError):
            await publisher.publish([message()])


async def test_with_tls_the_certificate_is_checked_against_the_name(
    mosquitto_server: Mosquitto, tmp_path: Path
) -> None:
    server_tls, client_tls = tls_of(tmp_path)
    async with relay_to(mosquitto_server.port, server_tls) as relay:
        url = f"mqtts://127.0.0.1:{relay.port}"
        async with publishing(url, tls=client_tls) as publisher:
            assert isinstance((await publisher.publish([message()]))[0], Receipt)
        async with publishing(url, tls=ssl.create_default_context()) as publisher:
            with pytest.raises(OSError, match="certificate verify failed"):
                await publisher.publish([message()])


@pytest.mark.parametrize("greeting", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x20\xff\xff\xff\xff\xff", b"\x20\x00"])
async def test_a_server_that_speaks_something_else_is_an_error_of_the_connection(greeting: bytes) -> None:
    async with greeting_with(greeting) as port, publishing(f"mqtt://127.0.0.1:{port}") as publisher:
        with pytest.raises(OSError, match="does not answer as a broker of MQTT 5"):
            await publisher.publish([message()])


async def test_a_broker_of_an_older_mqtt_is_refused_in_words() -> None:
    async with greeting_with(b"\x20\x02\x00\x01") as port, publishing(f"mqtt://127.0.0.1:{port}") as publisher:
        with pytest.raises(BrokerRefusedError, match="does not accept MQTT 5"):
            await publisher.publish([message()])


@pytest.mark.parametrize("properties", [b"\x00", b"\x03\x21\x00\x00"], ids=["none", "receive maximum 0"])
async def test_a_broker_that_accepts_a_connection_and_closes_it_uses_up_an_attempt(properties: bytes) -> None:
    """Otherwise its runs would return to their queue for ever."""

    class ClosingBroker(Listener):
        async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1000)
            writer.write(bytes([mqtt_packets.CONNACK, 2 + len(properties), 0, 0]) + properties)

    broker = ClosingBroker()
    async with broker.listening(), publishing(f"mqtt://127.0.0.1:{broker.port}") as publisher:
        for number in range(20):
            try:
                (answer,) = await publisher.publish([message(number=number)])
            except OSError:
                continue
            assert isinstance(answer, Unanswered)
