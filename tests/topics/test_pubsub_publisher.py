"""The publisher of Pub/Sub against a server with the documented contract, and an emulator where one is given."""

from __future__ import annotations

import base64
import os
import ssl
from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import uuid4

import aiohttp
import pytest
from yarl import URL

from detent.domain.run import Failed
from detent.targets.topics.publisher import Answer, BrokerAddress, BrokerRefusedError, Receipt, TopicMessage
from detent.targets.topics.pubsub import open_publisher, read_service_account, signed_token
from tests.support.certificates import Authority
from tests.topics.cloud_servers import ACCOUNT, PubsubServer, ServiceKey, direct_dial, running_pubsub

TOPIC = "projects/my-project/topics/events"


@pytest.fixture(scope="module")
def key() -> ServiceKey:
    return ServiceKey()


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Of a server and of a client that trusts its authority."""
    authority = Authority()
    issued = authority.issue("localhost")
    folder = tmp_path_factory.mktemp("pubsub")
    (folder / "server.pem").write_text(issued.text)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "server.pem")
    return server, ssl.create_default_context(cadata=authority.certificate)


def message_of(number: int, topic: str = "events") -> TopicMessage:
    return TopicMessage(topic, f"{number}".encode(), {"Detent-Run-Id": str(number)}, "job", f"key-{number}")


async def published(address: BrokerAddress, messages: Sequence[TopicMessage]) -> Sequence[Answer]:
    publisher = open_publisher(address, direct_dial)
    try:
        return await publisher.publish(messages)
    finally:
        await publisher.close()


def emulated(server: PubsubServer) -> BrokerAddress:
    return BrokerAddress(URL(f"pubsub://127.0.0.1:{server.port}/my-project"))


async def test_messages_arrive_with_attributes_and_ordering_key() -> None:
    async with running_pubsub(TOPIC) as server:
        answers = await published(emulated(server), [message_of(number) for number in range(2500)])
        assert answers == [Receipt({"message_id": str(number)}) for number in range(2500)]
        found = server.topics[TOPIC]
        assert [base64.b64decode(each["data"]) for each in found] == [str(number).encode() for number in range(2500)]
        assert found[7]["attributes"] == {"Content-Type": "application/json", "Detent-Run-Id": "7"}
        assert found[7]["orderingKey"] == "job"
        assert server.requests == 3


async def test_a_token_is_signed_by_the_service_account(
    key: ServiceKey, contexts: tuple[ssl.SSLContext, ssl.SSLContext]
) -> None:
    async with running_pubsub(TOPIC, key=key, tls=contexts[0]) as server:
        url = URL(f"pubsub://localhost:{server.port}/my-project?scheme=https")
        address = BrokerAddress(url, password=key.document(), tls=contexts[1])
        assert await published(address, [message_of(1)]) == [Receipt({"message_id": "0"})]
        with pytest.raises(BrokerRefusedError, match="invalid authentication credentials"):
            await published(address._replace(password=ServiceKey().document()), [message_of(1)])
        with pytest.raises(BrokerRefusedError, match="JSON key of a service account"):
            await published(address._replace(password="hunter2"), [message_of(1)])


async def test_a_topic_that_does_not_exist_fails_its_messages_only() -> None:
    async with running_pubsub(TOPIC) as server:
        there, missing = await published(emulated(server), [message_of(1), message_of(2, "absent")])
        assert isinstance(there, Receipt)
        assert isinstance(missing, Failed)
        assert not missing.retryable
        assert "Resource not found (resource=absent). (NOT_FOUND)" in missing.error


async def test_an_exhausted_quota_is_retried_when_the_service_says() -> None:
    async with running_pubsub(TOPIC) as server:
        server.refuse_next = (429, {"Retry-After": "7"})
        (failed,) = await published(emulated(server), [message_of(1)])
        assert isinstance(failed, Failed)
        assert failed.retryable
        assert failed.retry_after == 7.0
        assert "Quota exceeded" in failed.error


async def test_a_service_that_is_away_raises_so_that_nothing_counts_as_sent() -> None:
    with pytest.raises(OSError):
        await published(BrokerAddress(URL("pubsub://127.0.0.1:1/my-project")), [message_of(1)])


def test_a_token_names_the_account_and_the_service(key: ServiceKey) -> None:
    from joserfc import jwt
    from joserfc.jwk import RSAKey

    account = read_service_account(key.document())
    assert account is not None
    at = datetime(2026, 1, 1, tzinfo=UTC)
    token = jwt.decode(signed_token(account, at), RSAKey.import_key(key.public()))
    assert token.header["kid"] == "key-1"
    assert token.claims["iss"] == token.claims["sub"] == ACCOUNT
    assert token.claims["exp"] - token.claims["iat"] == 3600


def test_a_key_is_not_part_of_a_text() -> None:
    assert "PRIVATE" not in repr(read_service_account(ServiceKey().document()))


@pytest.mark.skipif("PUBSUB_EMULATOR_HOST" not in os.environ, reason="set PUBSUB_EMULATOR_HOST to the emulator's host")
async def test_an_emulator_of_google_takes_the_messages() -> None:
    host, topic = os.environ["PUBSUB_EMULATOR_HOST"], f"detent-{uuid4().hex}"
    url = f"http://{host}/v1/projects/my-project/topics/{topic}"
    async with aiohttp.ClientSession() as session, session.put(url, json={}) as created:
        assert created.status == 200
    answers = await published(BrokerAddress(URL(f"pubsub://{host}/my-project")), [message_of(1, topic)] * 3)
    assert all(isinstance(answer, Receipt) for answer in answers), answers
