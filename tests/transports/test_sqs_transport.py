"""What is special about offers in SQS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
from aiohttp import web

from detent.transports.sqs import open_transport
from detent.transports.transport import Transport, TransportAwayError
from tests.support.ports import free_port
from tests.support.waiting import until
from tests.topics.cloud_servers import SqsServer, running_sqs
from tests.transports.offers import LONG_HOLD, NOW, QUEUE, jobs_of, offer_of, take_all


@pytest.fixture(scope="module")
def server() -> Iterator[SqsServer]:
    with running_sqs() as started:
        yield started


@asynccontextmanager
async def opened(server: SqsServer, cluster: str) -> AsyncIterator[Transport]:
    address = f"sqs://AKIATEST:secret@127.0.0.1:{server.port}/?region=eu-central-1"
    transport = open_transport(address, cluster, hold_seconds=LONG_HOLD)
    try:
        yield transport
    finally:
        await transport.close()


def refusing(status: int, code: str, words: str) -> AbstractAsyncContextManager[tuple[str, list[web.Request]]]:
    document = {"__type": f"com.amazonaws.sqs#{code}", "message": words}

    async def answer(_: web.Request) -> web.Response:
        return web.json_response(document, status=status)

    return answering_with(answer)


@asynccontextmanager
async def answering_with(
    answer: Callable[[web.Request], Awaitable[web.Response]],
) -> AsyncIterator[tuple[str, list[web.Request]]]:
    """A service that answers every request so, and the requests that it got."""
    seen: list[web.Request] = []

    async def note(request: web.Request) -> web.StreamResponse:
        seen.append(request)
        return await answer(request)

    app = web.Application()
    app.router.add_post("/", note)
    runner = web.AppRunner(app)
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield f"127.0.0.1:{port}/?region=eu-central-1", seen
    finally:
        await runner.cleanup()


async def test_a_queue_is_created_with_a_hold_and_an_end(server: SqsServer, cluster: str) -> None:
    async with opened(server, cluster) as transport:
        await transport.send([offer_of(1)])
        url = server.client.get_queue_url(QueueName=f"detent-{cluster}-{QUEUE}")["QueueUrl"]
        found = server.client.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        assert (found["VisibilityTimeout"], found["MessageRetentionPeriod"]) == ("60", "300")


async def test_a_worker_takes_more_than_one_request_carries(server: SqsServer, cluster: str) -> None:
    async with opened(server, cluster) as transport:
        await transport.send([offer_of(number) for number in range(35)])
        await transport.take([QUEUE], 1, NOW, 5.0)
        found: list[int] = []
        takes = 0
        while len(found) < 34:
            found += jobs_of(await transport.take([QUEUE], 40, NOW, 5.0))
            takes += 1
        assert takes < 4


async def test_what_a_poll_brings_after_its_take_goes_to_others(server: SqsServer, cluster: str) -> None:
    async with opened(server, cluster) as transport, opened(server, cluster) as other:
        await transport.send([offer_of(1, queue=8)])
        assert jobs_of(await take_all(transport, 1, [QUEUE, 8])) == [1]  # the poll of the first queue goes on
        await transport.send([offer_of(2)])
        assert jobs_of(await take_all(other, 1)) == [2]


async def test_a_queue_that_was_deleted_is_created_again(server: SqsServer, cluster: str) -> None:
    async with opened(server, cluster) as transport:
        await transport.send([offer_of(1)])
        held = await take_all(transport, 1)
        url = server.client.get_queue_url(QueueName=f"detent-{cluster}-{QUEUE}")["QueueUrl"]
        await asyncio.to_thread(server.client.delete_queue, QueueUrl=url)
        await transport.finish(held)
        assert await transport.take([QUEUE], 1, NOW, 0.0) == []
        await transport.send([offer_of(2)])
        assert jobs_of(await take_all(transport, 1)) == [2]


async def test_a_refusal_has_the_words_of_the_service() -> None:
    async with refusing(403, "AccessDenied", "User: arn:aws:iam::1:user/x is not authorized") as (place, _):
        transport = open_transport(f"sqs://KEY:SECRET@{place}", "cluster")
        for call in (transport.open(), transport.send([offer_of(1)]), transport.take([QUEUE], 1, NOW, 5.0)):
            with pytest.raises(TransportAwayError, match=r"is not authorized \(AccessDenied\)\.") as refused:
                await call
            assert "SECRET" not in str(refused.value)
        await transport.close()


async def test_a_profile_that_does_not_exist_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    monkeypatch.setenv("AWS_PROFILE", "nowhere")
    for address in ("sqs://", "sqs://eu-central-1/"):
        transport = open_transport(address, "cluster")
        with pytest.raises(TransportAwayError, match=r"nowhere\) could not be found\. Correct them, or write others"):
            await transport.open()
        await transport.close()


@pytest.mark.parametrize("body", ["<html>", "[]", "{}"])
async def test_an_answer_that_is_none_of_sqs_is_a_service_that_is_away(body: str) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=body)

    async with answering_with(answer) as (place, _):
        transport = open_transport(f"sqs://KEY:SECRET@{place}", "cluster")
        for call in (transport.send([offer_of(1)]), transport.take([QUEUE], 1, NOW, 5.0)):
            with pytest.raises(TransportAwayError, match="answered"):
                await call
        await transport.close()


async def test_requests_do_not_wait_for_the_long_polls_of_many_queues() -> None:
    queues = range(80)
    received, sent = 0, asyncio.Event()

    async def answer(request: web.Request) -> web.Response:
        nonlocal received
        action = request.headers["X-Amz-Target"].partition(".")[2]
        if action == "ReceiveMessage":
            received += 1
            await sent.wait()
        elif action == "SendMessageBatch":
            sent.set()
        return web.json_response({"QueueUrl": "http://127.0.0.1/1/queue"})

    async with answering_with(answer) as (place, _):
        transport = open_transport(f"sqs://KEY:SECRET@{place}", "cluster")
        waiting = asyncio.create_task(transport.take(queues, 1, NOW, 60.0))
        await until(lambda: received == len(queues), what="a long poll of each queue")
        await transport.send([offer_of(1)])
        waiting.cancel()
        await transport.close()


async def test_without_credentials_in_the_address_those_of_the_machine_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("ACCESS_KEY_ID", "AKIAMACHINE"), ("SECRET_ACCESS_KEY", "s"), ("SESSION_TOKEN", "temporary")):
        monkeypatch.setenv(f"AWS_{name}", value)
    async with refusing(400, "InvalidAction", "no") as (place, seen):
        transport = open_transport(f"sqs://{place}", "cluster")
        with pytest.raises(TransportAwayError):
            await transport.open()
        await transport.close()
    (request,) = seen
    assert "Credential=AKIAMACHINE/" in request.headers["Authorization"]
    assert "/eu-central-1/sqs/aws4_request" in request.headers["Authorization"]
    assert request.headers["X-Amz-Security-Token"] == "temporary"


async def test_without_any_credentials_it_is_said_where_to_write_them(
    monkeypatch: pytest.MonkeyPatch, server: SqsServer
) -> None:
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN", "PROFILE"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    for name in ("SHARED_CREDENTIALS_FILE", "CONFIG_FILE"):
        monkeypatch.setenv(f"AWS_{name}", "/nowhere")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    transport = open_transport(f"sqs://127.0.0.1:{server.port}/", "cluster")
    with pytest.raises(TransportAwayError, match="write them into DETENT_QUEUE, as sqs://KEY:SECRET@REGION/"):
        await transport.open()
    await transport.close()
