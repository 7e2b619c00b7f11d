"""The publisher of Kafka against the mock brokers of its client; with KAFKA_BOOTSTRAP against a real cluster."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import KafkaError
from yarl import URL

from detent.domain.run import Failed
from detent.domain.target_access import TargetFault
from detent.targets.guard import AddressRefusedError
from detent.targets.topics import kafka
from detent.targets.topics.kafka import KafkaPublisher, open_publisher
from detent.targets.topics.kafka_settings import bootstrap_of, client_settings
from detent.targets.topics.publisher import BrokerAddress, BrokerRefusedError, Receipt, TopicMessage
from tests.support.relay import Listener, dial, greeting_with
from tests.topics.cloud_servers import KafkaServer, direct_dial, running_kafka


@pytest.fixture(scope="module")
def server() -> Iterator[KafkaServer]:
    with running_kafka() as running:
        yield running


@pytest.fixture
async def publisher(server: KafkaServer) -> AsyncIterator[KafkaPublisher]:
    opened = open_publisher(address_of(server), direct_dial)
    yield opened
    await opened.close()


def address_of(server: KafkaServer) -> BrokerAddress:
    first, _, others = server.bootstrap.partition(",")
    return BrokerAddress(URL(f"kafka://{first}/?bootstrap={others}" if others else f"kafka://{first}"))


@pytest.fixture
def topic(server: KafkaServer) -> str:
    name = f"detent-{uuid4().hex}"
    server.create(name)
    return name


def message_to(topic: str, number: int) -> TopicMessage:
    return TopicMessage(topic, f"{number}".encode(), {"Detent-Run-Id": str(number)}, f"job-{number % 5}", f"{number}")


async def test_messages_are_acknowledged_and_those_of_one_key_keep_their_order(
    server: KafkaServer, publisher: KafkaPublisher, topic: str
) -> None:
    answers = await publisher.publish([message_to(topic, number) for number in range(500)])
    places = {(answer.facts["partition"], answer.facts["offset"]) for answer in answers if isinstance(answer, Receipt)}
    assert len(places) == 500
    found = await asyncio.to_thread(server.records, topic, 500)
    for job in range(5):
        bodies = [int(record.body) for record in found if record.key == f"job-{job}"]
        assert bodies == list(range(job, 500, 5))
    assert found[0].headers == {"Content-Type": "application/json", "Detent-Run-Id": found[0].body.decode()}


async def test_batches_of_several_callers_are_answered_apart(publisher: KafkaPublisher, topic: str) -> None:
    batches = [[message_to(topic, number) for number in range(start, start + 40)] for start in range(0, 400, 40)]
    answers = await asyncio.gather(*(publisher.publish(batch) for batch in batches))
    assert all(len(each) == 40 for each in answers)
    assert all(isinstance(answer, Receipt) for each in answers for answer in each)


async def test_a_message_over_the_limit_is_refused_and_the_others_are_sent(
    publisher: KafkaPublisher, topic: str
) -> None:
    large, small = await publisher.publish([message_to(topic, 1)._replace(body=b"x" * 2_000_000), message_to(topic, 2)])
    assert isinstance(large, Failed)
    assert not large.retryable
    assert "MSG_SIZE_TOO_LARGE" in large.error
    assert isinstance(small, Receipt)


async def test_a_server_that_is_away_raises_so_that_nothing_counts_as_sent() -> None:
    publisher = open_publisher(BrokerAddress(URL("kafka://127.0.0.1:1")), direct_dial)
    with pytest.raises(OSError):
        await publisher.publish([message_to("any", 1)])
    await publisher.close()


async def test_a_server_that_is_down_stops_no_message_while_another_one_answers(
    server: KafkaServer, topic: str
) -> None:
    publisher = open_publisher(BrokerAddress(URL(f"kafka://127.0.0.1:1/?bootstrap={server.bootstrap}")), direct_dial)
    (answer,) = await publisher.publish([message_to(topic, 1)])
    await publisher.close()
    assert isinstance(answer, Receipt)


async def test_servers_that_do_not_answer_are_named_by_the_first_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async def silent(_host: str, _port: int) -> socket.socket:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(kafka, "BROKER_SECONDS", 0.05)
    publisher = open_publisher(BrokerAddress(URL("kafka://a.example/?bootstrap=b.example")), silent)
    with pytest.raises(OSError, match=r"no answer within 0\.05 s"):
        await publisher.publish([message_to("any", 1)])


@pytest.mark.skipif("KAFKA_BOOTSTRAP" in os.environ, reason="it needs a second broker, on another port of 127.0.0.1")
async def test_a_broker_that_the_cluster_advertises_has_to_be_allowed(server: KafkaServer, topic: str) -> None:
    first = int(server.bootstrap.partition(",")[0].rpartition(":")[2])

    async def dial(host: str, port: int) -> socket.socket:
        if port != first:
            raise AddressRefusedError(TargetFault(f"{host}:{port} is a loopback address"))
        return await direct_dial(host, port)

    publisher = open_publisher(BrokerAddress(URL(f"kafka://127.0.0.1:{first}")), dial)
    with pytest.raises(AddressRefusedError):
        await publisher.publish([message_to(topic, 1)])
    await publisher.close()


async def test_wrong_credentials_are_refused_in_the_words_of_the_broker() -> None:
    async with refusing_broker() as port:
        address = BrokerAddress(URL(f"kafka://127.0.0.1:{port}/?sasl=PLAIN"), "detent", "wrong")
        publisher = open_publisher(address, direct_dial)
        with pytest.raises(BrokerRefusedError, match="Wrong user name or password, says the broker"):
            await publisher.publish([message_to("any", 1)])
        await publisher.close()


async def test_a_failed_tls_handshake_is_no_refusal_because_the_broker_may_restart() -> None:
    async with greeting_with(b"not TLS\r\n" * 10) as port:
        address = BrokerAddress(URL(f"kafkas://127.0.0.1:{port}"), tls=ssl.create_default_context())
        publisher = open_publisher(address, direct_dial)
        with pytest.raises(OSError, match="TLS with"):
            await publisher.publish([message_to("any", 1)])
        await publisher.close()


async def test_waiting_for_a_cluster_keeps_no_thread_of_the_loop(server: KafkaServer, topic: str) -> None:
    class NoThreads(ThreadPoolExecutor):
        def submit(self, *_work: Any, **_options: Any) -> Any:
            raise AssertionError("a thread of the loop is used")

    publisher = open_publisher(address_of(server), dial)
    asyncio.get_running_loop().set_default_executor(NoThreads(1))
    (answer,) = await publisher.publish([message_to(topic, 1)])
    await publisher.close()
    assert isinstance(answer, Receipt)


async def test_a_login_that_fails_after_others_have_succeeded_is_tried_once_more(
    publisher: KafkaPublisher, topic: str
) -> None:
    """A broker that stops while a client logs in looks the same as one that refuses it."""
    await publisher.publish([message_to(topic, 1)])
    client = publisher._client
    assert client is not None
    client._failed(KafkaError(KafkaError._AUTHENTICATION))
    assert client.failure is not None and client.failure.retryable
    (answer,) = await publisher.publish([message_to(topic, 2)])
    assert isinstance(answer, Receipt)
    assert publisher._client is not client


class RefusingBroker(Listener):
    """Speaks as much of Kafka's protocol as a client needs to learn that its credentials are wrong: the mock brokers of
    the client library know no credentials."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                request = await reader.readexactly(size)
                api, version, correlation = struct.unpack(">hhi", request[:8])
                answer = struct.pack(">i", correlation) + _refusing_answer(api, version)
                writer.write(struct.pack(">i", len(answer)) + answer)


@asynccontextmanager
async def refusing_broker() -> AsyncIterator[int]:
    broker = RefusingBroker()
    async with broker.listening():
        yield broker.port


def _refusing_answer(api: int, version: int) -> bytes:
    if api == 18:  # ApiVersions: other versions than 0 are refused, and the client falls back to it
        supported = [(18, 0, 0), (17, 0, 1), (36, 0, 0), (3, 0, 1)]
        entries = b"".join(struct.pack(">hhh", *each) for each in supported)
        return struct.pack(">hi", 35 if version else 0, len(supported)) + entries
    if api == 17:  # SaslHandshake
        return struct.pack(">hih", 0, 1, 5) + b"PLAIN"
    words = b"Wrong user name or password, says the broker"
    return struct.pack(">hh", 58, len(words)) + words + struct.pack(">i", 0)  # SaslAuthenticate


def test_servers_to_begin_with_are_the_host_and_those_of_bootstrap() -> None:
    url = URL("kafka://a.example/?bootstrap=b.example:9095,[::1]:9096,c.example")
    assert bootstrap_of(BrokerAddress(url), 9092) == [
        ("a.example", 9092), ("b.example", 9095), ("::1", 9096), ("c.example", 9092)
    ]  # fmt: skip


def test_credentials_and_certificates_become_settings_of_the_client() -> None:
    url = URL("kafkas://a.example/?sasl=SCRAM-SHA-512")
    address = BrokerAddress(url, "detent", "pass", ca="CA", client_certificate="PEM")
    found = client_settings(address, [("a.example", 9093)], lambda _: None)
    assert found["security.protocol"] == "SASL_SSL"
    assert found["sasl.mechanism"] == "SCRAM-SHA-512"
    assert (found["ssl.ca.pem"], found["ssl.certificate.pem"], found["ssl.key.pem"]) == ("CA", "PEM", "PEM")
    assert found["enable.idempotence"]
    assert "ssl.ca.location" not in found
    plain = client_settings(BrokerAddress(URL("kafka://a.example")), [("::1", 9092)], lambda _: None)
    assert plain["security.protocol"] == "PLAINTEXT"
    assert plain["bootstrap.servers"] == "[::1]:9092"


def test_the_authorities_of_the_machine_are_those_of_ssl_cert_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authorities = tmp_path / "authorities.pem"
    authorities.touch()
    monkeypatch.setenv("SSL_CERT_FILE", str(authorities))
    found = client_settings(BrokerAddress(URL("kafkas://a.example")), [("a.example", 9093)], lambda _: None)
    assert found["ssl.ca.location"] == str(authorities)
