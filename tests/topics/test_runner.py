"""How the runner shares connections, waits, refuses and recovers; on a real Redis unless the server must misbehave."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

from detent.domain.job import TargetCredentials, TopicTarget
from detent.domain.masking import Mask
from detent.domain.run import NotBegun, Succeeded
from detent.domain.secret_ref import SecretRef
from detent.domain.target_access import NOTHING_READ, PRIVATE_TOO, PUBLIC_ONLY, TargetFault, TargetRules
from detent.domain.target_patterns import read_pattern
from detent.targets.policies import FixedPolicy
from detent.targets.topics import clients, shared
from detent.targets.topics import runner as runner_module
from detent.targets.topics.clients import available_protocols, opener_of
from detent.targets.topics.dial import GuardedDial
from detent.targets.topics.publisher import Receipt, TopicMessage
from detent.targets.topics.runner import TopicTargetRunner
from detent.worker.execute import execute
from tests.support.ports import free_port
from tests.support.waiting import until
from tests.targets.target_helpers import failed, succeeded
from tests.topics.brokers import USER, Broker, RedisBroker
from tests.topics.conftest import Start
from tests.topics.topic_calls import topic_call


@pytest.fixture
def redis(start_broker: Start) -> Broker:
    return start_broker("redis")


async def connections(broker: Broker) -> int:
    """Of the publishers of this process."""
    assert isinstance(broker, RedisBroker)
    async with broker.client() as client:
        return sum(each["name"] == "detent" for each in await client.client_list())


async def test_runs_of_a_tenant_share_one_connection(redis: Broker, runner: TopicTargetRunner, topic: str) -> None:
    before = await connections(redis)
    calls = [topic_call(redis.target(topic if number % 2 else f"{topic}-2"), number) for number in range(300)]
    assert all(isinstance(outcome, Succeeded) for outcome in await asyncio.gather(*map(runner, calls)))
    assert await connections(redis) == before + 1


async def test_no_two_tenants_and_no_two_credentials_share_a_connection(
    start_broker: Start, runner: TopicTargetRunner, topic: str
) -> None:
    secured = start_broker("redis", secured=True)
    before = await connections(secured)
    for tenant in (1, 2):
        succeeded(await runner(topic_call(secured.target(topic), tenant=tenant)))
        succeeded(await runner(topic_call(secured.target(topic), tenant=tenant)))
    assert await connections(secured) == before + 2
    wrong = secured.target(topic, credentials=TargetCredentials(USER, "wrong"))
    assert not failed(await runner(topic_call(wrong))).retryable


async def test_idle_connections_are_closed_and_opened_again(
    redis: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner_module, "IDLE_SECONDS", 0.2)
    async with running() as runner:
        before = await connections(redis)
        succeeded(await runner(topic_call(redis.target(topic))))
        await until(lambda: _closed(redis, before), what="the idle connection to be closed")
        succeeded(await runner(topic_call(redis.target(topic))))


async def _closed(broker: Broker, before: int) -> bool:
    return await connections(broker) == before


async def test_a_large_batch_is_sent_in_parts(
    redis: Broker, runner: TopicTargetRunner, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "MOST_BYTES", 10_000)
    calls = [topic_call(redis.target(topic), "x" * 3000) for _ in range(40)]
    assert all(isinstance(outcome, Succeeded) for outcome in await asyncio.gather(*map(runner, calls)))
    assert len(await redis.read(topic)) == 40


async def test_a_server_that_never_answers_holds_up_only_its_own_runs(
    redis: Broker, runner: TopicTargetRunner, topic: str
) -> None:
    async with silent_server() as (port, accepted):
        silent = TopicTarget(url=f"redis://127.0.0.1:{port}", topic=topic)
        stuck = [asyncio.create_task(_outcome(runner, silent)) for _ in range(3)]
        await until(lambda: accepted, what="the connection")
        succeeded(await runner(topic_call(redis.target(topic), 1)))
        for task in stuck:
            task.cancel()
        await asyncio.gather(*stuck, return_exceptions=True)
        again = asyncio.create_task(_outcome(runner, silent))
        await until(lambda: len(accepted) == 2, what="a new connection after the last run left")
        again.cancel()
        await asyncio.gather(again, return_exceptions=True)


async def test_a_batch_without_an_answer_fails_in_the_end(
    runner: TopicTargetRunner, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "ANSWER_SECONDS", 0.3)
    async with silent_server() as (port, _):
        late = failed(await runner(topic_call(TopicTarget(url=f"nats://127.0.0.1:{port}", topic=topic))))
    assert late.retryable
    assert f"127.0.0.1:{port} did not acknowledge the message within 0.3 s." == late.error


async def test_many_runs_with_wrong_credentials_do_not_flood_the_broker(
    start_broker: Start, runner: TopicTargetRunner, topic: str
) -> None:
    secured = start_broker("redis", secured=True)
    assert isinstance(secured, RedisBroker)
    async with secured.client() as client:
        await client.acl_log_reset()
        wrong = secured.target(topic, credentials=TargetCredentials(USER, "wrong-password"))
        for _ in range(200):
            assert not failed(await runner(topic_call(wrong))).retryable
        refused = sum(int(entry["count"]) for entry in await client.acl_log() if entry["reason"] == "auth")
    assert 1 <= refused < 20


async def test_an_address_that_was_just_allowed_is_reached(redis: Broker, topic: str) -> None:
    opened = TargetRules([read_pattern(f"127.0.0.1:{redis.port}")])
    async with running(_Changing(PUBLIC_ONLY, opened)) as runner:
        succeeded(await runner(topic_call(redis.target(topic))))


async def test_a_run_returns_to_its_queue_while_the_allow_list_cannot_be_read(
    redis: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner_module, "UNREAD_PAUSE_SECONDS", 0.01)
    async with running(FixedPolicy(NOTHING_READ)) as runner:
        outcome = await runner(topic_call(redis.target(topic)))
    assert isinstance(outcome, NotBegun)
    assert "could not be read" in outcome.why


async def test_a_name_is_resolved_once_and_only_its_open_addresses_are_called(redis: Broker, topic: str) -> None:
    """The second address would answer, but the tenant may not reach it."""
    only = TargetRules([read_pattern("127.0.0.1")])
    resolver = _Names({"broker.test": ["127.0.0.2", "127.0.0.1"], "bad.test": ["127.0.0.2"]})
    async with running(FixedPolicy(only), resolver=resolver) as runner:
        good = TopicTarget(url=f"redis://broker.test:{redis.port}", topic=topic)
        succeeded(await runner(topic_call(good)))
        bad = failed(await runner(topic_call(TopicTarget(url=f"redis://bad.test:{redis.port}", topic=topic))))
    assert not bad.retryable
    assert f"detent tenant allow default bad.test:{redis.port}" in bad.error


async def test_a_name_without_address_is_retried(runner: TopicTargetRunner, topic: str) -> None:
    async with running(resolver=_Names({})) as made:
        lost = failed(await made(topic_call(TopicTarget(url="nats://nowhere.test", topic=topic))))
    assert lost.retryable
    assert lost.error.startswith("No connection to nowhere.test:4222 could be made: ")


async def test_a_port_of_another_protocol_stays_guarded(topic: str) -> None:
    async with running(FixedPolicy(PRIVATE_TOO)) as runner:
        refused = failed(await runner(topic_call(TopicTarget(url="nats://127.0.0.1:5432", topic=topic))))
        away = failed(await runner(topic_call(TopicTarget(url="nats://127.0.0.1:4222", topic=topic))))
    assert "Port 5432 is one of databases" in refused.error
    assert "No connection to 127.0.0.1:4222" in away.error or "refused" in away.error


async def test_a_reference_that_nobody_filled_in_is_not_sent(runner: TopicTargetRunner, topic: str) -> None:
    header = TopicTarget(url="redis://127.0.0.1:1", topic=topic, headers={"Token": SecretRef("t")})
    assert "refers to a secret" in failed(await runner(topic_call(header))).error
    login = TopicTarget(url="redis://127.0.0.1:1", topic=topic, credentials=TargetCredentials("u", SecretRef("p")))
    assert "target.credentials refers to a secret" in failed(await runner(topic_call(login))).error


async def test_a_secret_with_a_line_break_cannot_become_a_header(redis: Broker, runner: TopicTargetRunner) -> None:
    target = redis.target("orders", headers={"Region": "eu\r\nNats-Msg-Id: forged"})
    refused = failed(await runner(topic_call(target, filled=True)))
    assert "The value of the header Region contains a line break" in refused.error
    assert not refused.retryable


async def test_secrets_are_masked_in_what_the_broker_says(start_broker: Start, topic: str) -> None:
    secured = start_broker("redis", secured=True)
    key = "planted-secret-topic"
    async with running() as runner, secured_client(secured) as client:
        await client.set(key, "not a stream")
        outcome = await execute(topic_call(secured.target(key), mask=Mask([key])), {"topic": runner})
        await client.delete(key)
    assert key not in failed(outcome).error
    assert "wrong kind of value" in failed(outcome).error


async def test_a_missing_client_is_named_with_its_extra(
    runner: TopicTargetRunner, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(clients.CLIENTS, "nats", clients.TopicClient("nats", "no_such_library.at_all"))
    opener_of.cache_clear()
    available_protocols.cache_clear()
    try:
        assert "nats" not in available_protocols() and "redis" in available_protocols()
        missing = failed(await runner(topic_call(TopicTarget(url="nats://127.0.0.1:1", topic=topic))))
    finally:
        opener_of.cache_clear()
        available_protocols.cache_clear()
    assert missing.error == "This worker has no client for nats: pip install 'detent[nats]'."


async def test_a_url_that_registration_would_refuse_is_not_called(runner: TopicTargetRunner) -> None:
    """Rules may be stricter than when the job was stored."""
    refused = failed(await runner(topic_call(TopicTarget(url="stomp://127.0.0.1:1", topic="t"))))
    assert not refused.retryable


async def test_a_publisher_that_fails_unexpectedly_fails_its_messages_only(
    redis: Broker, runner: TopicTargetRunner, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_address: object, _dial: object) -> Any:
        raise LookupError("a fault of the client")

    with monkeypatch.context() as patched:
        patched.setattr(runner_module, "opener_of", lambda _protocol: broken)
        away = failed(await runner(topic_call(TopicTarget(url="nats://127.0.0.1:1", topic=topic))))
    assert away.retryable
    assert "a fault of the client" in away.error
    succeeded(await runner(topic_call(redis.target(topic))))


# --- helpers ---


async def _outcome(runner: TopicTargetRunner, target: TopicTarget) -> object:
    return await runner(topic_call(target))


@asynccontextmanager
async def running(policy: Any = None, **options: Any) -> AsyncIterator[TopicTargetRunner]:
    made = TopicTargetRunner(policy or FixedPolicy(PRIVATE_TOO), **options)
    try:
        yield made
    finally:
        await made.close()


@asynccontextmanager
async def secured_client(broker: Broker) -> AsyncIterator[Any]:
    assert isinstance(broker, RedisBroker)
    async with broker.client() as client:
        yield client


@asynccontextmanager
async def silent_server() -> AsyncIterator[tuple[int, list[asyncio.StreamWriter]]]:
    """It accepts connections and says nothing."""
    accepted: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(_keep(accepted), "127.0.0.1", free_port())
    try:
        yield server.sockets[0].getsockname()[1], accepted
    finally:
        for writer in accepted:
            writer.close()
        server.close()


def _keep(accepted: list[asyncio.StreamWriter]) -> Callable[[Any, asyncio.StreamWriter], None]:
    return lambda _reader, writer: accepted.append(writer)


class _Changing:
    """A policy whose list was changed after it was read."""

    def __init__(self, before: TargetRules, after: TargetRules) -> None:
        self._before = before
        self._after = after

    async def rules_of(self, _tenant: int) -> TargetRules:
        return self._before

    async def renewed(self, _tenant: int) -> TargetRules:
        return self._after

    async def sentence(self, fault: TargetFault, _tenant: int) -> str:
        return fault.sentence("default")


class _Names(AbstractResolver):
    def __init__(self, known: dict[str, list[str]]) -> None:
        self._known = known

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        if host not in self._known:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [
            ResolveResult(hostname=host, host=each, port=port, family=socket.AF_INET, proto=0, flags=0)
            for each in self._known[host]
        ]

    async def close(self) -> None:
        pass


async def test_a_run_that_leaves_while_earlier_parts_of_its_batch_are_sent_is_not_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared, "MOST_BYTES", 1)
    sent: list[str] = []
    begun, go_on = asyncio.Event(), asyncio.Event()

    class SlowPublisher:
        async def publish(self, messages: Sequence[TopicMessage]) -> list[Receipt]:
            sent.extend(message.deduplication_id for message in messages)
            begun.set()
            await go_on.wait()
            return [Receipt({})] * len(messages)

        async def close(self) -> None:
            return None

    dial = GuardedDial(1, PRIVATE_TOO, None, "redis")
    publisher = shared.SharedPublisher(SlowPublisher, dial, "server")
    runs = [
        asyncio.create_task(publisher.publish(TopicMessage("orders", b"12", {}, "key", name)))
        for name in ("first", "leaves", "last")
    ]
    await begun.wait()
    runs[1].cancel()
    go_on.set()
    await asyncio.gather(*runs, return_exceptions=True)
    assert sent == ["first", "last"]
