"""The publisher of SQS against moto's server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime

import msgspec
import pytest
from aiohttp import web
from yarl import URL

from detent.domain.run import Failed
from detent.runtime.aws_signature import AwsCredentials, signed_headers
from detent.targets.breaker import Unanswered
from detent.targets.topics.publisher import Answer, BrokerAddress, BrokerRefusedError, Receipt, TopicMessage
from detent.targets.topics.sqs import SqsPublisher, open_publisher
from detent.targets.topics.sqs_messages import COMBINED, batches_of, entry_of, fifo_id
from tests.topics.cloud_servers import SqsServer, direct_dial, running_sqs

FACTS = {f"Detent-Fact-{number}": str(number) for number in range(8)} | {"Idempotency-Key": "k"}


@pytest.fixture(scope="module")
def server() -> Iterator[SqsServer]:
    with running_sqs() as running:
        yield running


@pytest.fixture
async def publisher(server: SqsServer) -> AsyncIterator[SqsPublisher]:
    opened = open_publisher(address_of(server.url), direct_dial)
    yield opened
    await opened.close()


def address_of(url: str, **options: object) -> BrokerAddress:
    return BrokerAddress(URL(url), "AKIATEST", "secret")._replace(**options)  # type: ignore[arg-type]  # any member


def message_to(queue: str, number: int, **fields: object) -> TopicMessage:
    message = TopicMessage(queue, f'{{"n":{number}}}'.encode(), {"Detent-Run-Id": str(number)}, "job", f"key-{number}")
    return message._replace(**fields)  # type: ignore[arg-type]  # any member


def receipts(answers: object) -> list[Receipt]:
    assert isinstance(answers, list)
    assert all(isinstance(answer, Receipt) for answer in answers), answers
    return answers


async def test_messages_arrive_with_their_facts_and_each_has_a_receipt(
    server: SqsServer, publisher: SqsPublisher
) -> None:
    queue = server.create("plain")
    answers = receipts(await publisher.publish([message_to("plain", number) for number in range(35)]))
    assert len({answer.facts["message_id"] for answer in answers}) == 35
    found = await asyncio.to_thread(server.receive, queue, 35)
    assert {message["Body"] for message in found} == {f'{{"n":{number}}}' for number in range(35)}
    assert {message["MessageAttributes"]["Detent-Run-Id"]["StringValue"] for message in found} == set(
        map(str, range(35))
    )


async def test_a_fifo_queue_keeps_the_order_of_a_group_and_drops_a_repeated_message(
    server: SqsServer, publisher: SqsPublisher
) -> None:
    queue = server.create("ordered.fifo")
    messages = [message_to("ordered.fifo", number) for number in range(25)]
    receipts(await publisher.publish(messages))
    receipts(await publisher.publish(messages[:5]))
    bodies = [message["Body"] for message in await asyncio.to_thread(server.receive, queue, 25)]
    assert bodies == [f'{{"n":{number}}}' for number in range(25)]
    assert server.count(queue) == 0


async def test_the_group_is_the_key_and_the_deduplication_id_the_idempotency_key(
    server: SqsServer, publisher: SqsPublisher
) -> None:
    queue = server.create("named.fifo")
    long = "é" * 100
    receipts(await publisher.publish([message_to("named.fifo", 1, key="orders", deduplication_id=long)]))
    (found,) = await asyncio.to_thread(server.receive, queue, 1)
    assert found["Attributes"]["MessageGroupId"] == "orders"
    assert found["Attributes"]["MessageDeduplicationId"] == fifo_id(long)
    assert len(fifo_id(long)) == 64


async def test_more_than_ten_headers_arrive_in_ten_attributes(server: SqsServer, publisher: SqsPublisher) -> None:
    queue = server.create("many")
    own = {"Own": "1", "Empty": "", "traceparent": "00-a-b-01"}
    receipts(await publisher.publish([message_to("many", 1, headers={**own, **FACTS})]))
    (found,) = await asyncio.to_thread(server.receive, queue, 1)
    attributes = {name: value["StringValue"] for name, value in found["MessageAttributes"].items()}
    combined = msgspec.json.decode(attributes.pop(COMBINED))
    assert attributes == FACTS
    assert combined == own


async def test_the_topic_may_be_the_url_of_the_queue_and_messages_may_be_delayed(server: SqsServer) -> None:
    queue = server.create("delayed")
    publisher = open_publisher(address_of(f"{server.url}&delay_seconds=900"), direct_dial)
    receipts(await publisher.publish([message_to(queue, 1)]))
    assert server.count(queue) == 1
    assert "Messages" not in server.client.receive_message(QueueUrl=queue)
    await publisher.close()


async def test_a_queue_that_does_not_exist_fails_its_messages_in_the_words_of_sqs_and_no_others(
    server: SqsServer, publisher: SqsPublisher
) -> None:
    server.create("present")
    there, missing = await publisher.publish([message_to("present", 1), message_to("absent", 2)])
    assert isinstance(there, Receipt)
    assert isinstance(missing, Failed)
    assert not missing.retryable
    assert "The specified queue does not exist" in missing.error


async def test_a_message_with_a_control_character_is_refused_and_the_others_are_sent(
    server: SqsServer, publisher: SqsPublisher
) -> None:
    server.create("strict")
    bad, good = await publisher.publish([message_to("strict", 1, body=b"\x01"), message_to("strict", 2)])
    assert isinstance(bad, Failed) and not bad.retryable
    assert isinstance(good, Receipt)


async def test_without_credentials_nothing_is_borrowed_from_the_machine(
    server: SqsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAOPERATOR")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "operator")
    queue = server.create("borrowed")
    publisher = open_publisher(address_of(server.url, username=None, password=None), direct_dial)
    (failed,) = await publisher.publish([message_to("borrowed", 1)])
    assert isinstance(failed, Failed)
    assert not failed.retryable
    assert "no credentials" in failed.error
    assert server.count(queue) == 0
    await publisher.close()
    ambient = open_publisher(address_of(server.url, username=None, password=None, ambient=True), direct_dial)
    receipts(await ambient.publish([message_to("borrowed", 1)]))
    await ambient.close()


async def test_a_server_that_is_away_raises_so_that_nothing_counts_as_sent(server: SqsServer) -> None:
    publisher = open_publisher(address_of("sqs://127.0.0.1:1/"), direct_dial)
    with pytest.raises(OSError):
        await publisher.publish([message_to("plain", 1)])
    await publisher.close()


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (400, "com.amazon.coral.availability#ThrottlingException", Failed("…", retry_after=1.0)),
        (400, "com.amazonaws.sqs#InvalidMessageContents", Failed("…", retryable=False)),
        (500, "InternalError", Failed("…")),
        (503, "com.amazon.coral.availability#ThrottlingException", Failed("…", retry_after=1.0)),
        (503, "ServiceUnavailable", Unanswered(Failed("…"), sent=True)),
        (403, "com.amazon.coral.service#AccessDeniedException", Failed("…", retryable=False)),
    ],
)
async def test_refusals_of_sqs_become_outcomes_with_its_words(
    status: int, code: str, expected: Failed | Unanswered
) -> None:
    (answer,) = await answered(status, code)
    assert type(answer) is type(expected)
    failed = _failed_of(answer)
    assert "In the words of SQS" in failed.error
    assert (failed.retryable, failed.retry_after) == (_failed_of(expected).retryable, _failed_of(expected).retry_after)


def _failed_of(answer: Answer) -> Failed:
    found = answer.failed if isinstance(answer, Unanswered) else answer
    assert isinstance(found, Failed)
    return found


async def test_unknown_keys_refuse_the_client(server: SqsServer) -> None:
    with pytest.raises(BrokerRefusedError, match="In the words of SQS"):
        await answered(403, "com.amazon.coral.service#UnrecognizedClientException")


async def answered(status: int, code: str) -> list[Answer]:
    """By a server that refuses every request in the documented form of SQS."""

    async def refuse(request: web.Request) -> web.Response:
        return web.json_response({"__type": code, "message": "In the words of SQS."}, status=status)

    app = web.Application()
    app.router.add_post("/", refuse)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    publisher = open_publisher(address_of(f"sqs://127.0.0.1:{runner.addresses[0][1]}/"), direct_dial)
    try:
        return list(await publisher.publish([message_to("http://127.0.0.1/1/any", 1)]))
    finally:
        await publisher.close()
        await runner.cleanup()


def test_requests_are_signed_as_the_library_of_aws_signs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    body, headers = b'{"QueueName":"a"}', {"Host": "sqs.eu-central-1.amazonaws.com", "X-Amz-Target": "AmazonSQS.A  b"}
    request = AWSRequest("POST", "https://sqs.eu-central-1.amazonaws.com/", headers=headers, data=body)
    SigV4Auth(Credentials("AKIA", "s3cret", "session"), "sqs", "eu-central-1").add_auth(request)
    at = datetime.strptime(request.headers["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    ours = signed_headers(
        headers, body, AwsCredentials("AKIA", "s3cret", "session"), region="eu-central-1", service="sqs", at=at
    )
    assert ours["Authorization"] == request.headers["Authorization"]


def test_batches_hold_what_sqs_takes() -> None:
    small = [entry_of(number, message_to("q", number), fifo=False, delay=None) for number in range(21)]
    assert [len(batch) for batch in batches_of(small)] == [10, 10, 1]
    large = [
        entry_of(number, message_to("q", number, body=b"x" * 200_000), fifo=False, delay=None) for number in (1, 2)
    ]
    assert [len(batch) for batch in batches_of(large)] == [1, 1]
