"""A broker that does not answer: its circuit opens, and runs wait without using up attempts."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

import pytest

from detent.domain.job import TargetCredentials, TopicTarget
from detent.domain.run import Failed, NotBegun, Outcome
from detent.domain.target_access import PRIVATE_TOO
from detent.targets.breaker import HostBreakers
from detent.targets.policies import FixedPolicy
from detent.targets.topics import kafka_settings
from detent.targets.topics.runner import TopicTargetRunner
from detent.telemetry.metrics import Metrics
from tests.support.relay import Listener, relay_to
from tests.support.waiting import until
from tests.targets.target_helpers import failed, succeeded
from tests.topics.cloud_servers import running_pubsub
from tests.topics.conftest import Start
from tests.topics.topic_calls import topic_call

LIMIT = 3


def closed_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


async def test_a_broker_that_refuses_connections_uses_up_so_many_attempts_and_no_more() -> None:
    metrics = Metrics()
    runner = TopicTargetRunner(FixedPolicy(PRIVATE_TOO), breakers=HostBreakers(LIMIT, 30.0, metrics))
    port = closed_port()
    target = TopicTarget(url=f"redis://127.0.0.1:{port}", topic="orders")
    found = list(await asyncio.gather(*(runner(topic_call(target)) for _ in range(20))))
    found.append(await runner(topic_call(target)))
    assert len([each for each in found if isinstance(each, Failed)]) == LIMIT
    waiting = [each for each in found if isinstance(each, NotBegun)]
    assert len(waiting) == 21 - LIMIT
    assert all(each.retry_after > 0 and f"127.0.0.1:{port} does not answer" in each.why for each in waiting)
    assert metrics.circuits_open == 1
    await runner.close()


@pytest.fixture
async def circuit() -> AsyncIterator[Circuit]:
    """Of the first call that is not answered."""
    metrics = Metrics()
    runner = TopicTargetRunner(FixedPolicy(PRIVATE_TOO), breakers=HostBreakers(1, 30.0, metrics))
    yield Circuit(runner, metrics)
    await runner.close()


async def test_a_service_whose_gateway_says_that_it_is_away_opens_its_circuit(circuit: Circuit) -> None:
    async with running_pubsub("projects/my-project/topics/events") as server:
        target = TopicTarget(url=f"pubsub://127.0.0.1:{server.port}/my-project", topic="events")
        server.refuse_next = (429, {})
        failed(await circuit.runner(topic_call(target)))
        assert circuit.metrics.circuits_open == 0
        server.refuse_next = (503, {"Retry-After": "7"})
        away = failed(await circuit.runner(topic_call(target)))
    assert (away.retryable, away.retry_after) == (True, 7.0)
    assert circuit.metrics.circuits_open == 1


async def test_a_service_that_hangs_up_opens_its_circuit(circuit: Circuit) -> None:
    async with hanging_up() as port:
        credentials = TargetCredentials("AKIATEST", "secret")
        target = TopicTarget(url=f"sqs://127.0.0.1:{port}/", topic="orders", credentials=credentials)
        lost = failed(await circuit.runner(topic_call(target)))
    assert lost.retryable
    assert circuit.metrics.circuits_open == 1


@pytest.mark.parametrize("name", ["redis", "nats", "rabbitmq", "mosquitto"])
async def test_a_connection_that_breaks_before_the_acknowledgement_opens_the_circuit(
    name: str, start_broker: Start, circuit: Circuit, topic: str
) -> None:
    broker = start_broker(name)
    await broker.create(topic)
    async with relay_to(broker.port) as relay:
        target = broker.target(topic, url=broker.url.replace(str(broker.port), str(relay.port)))
        succeeded(await circuit.runner(topic_call(target)))
        relay.answers = False
        before = relay.forwarded
        under_way = asyncio.create_task(circuit.outcome(target))
        await until(lambda: relay.forwarded > before, what="the message to be sent")
        relay.cut()
        lost = failed(await under_way)
    assert lost.retryable
    assert "broke before the message was acknowledged" in lost.error
    assert circuit.metrics.circuits_open == 1


async def test_a_kafka_cluster_that_acknowledges_nothing_opens_its_circuit(
    circuit: Circuit, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_settings, "DELIVERY_SECONDS", 1)
    async with killable_kafka() as (port, kill):
        target = TopicTarget(url=f"kafka://127.0.0.1:{port}", topic=topic)
        succeeded(await circuit.runner(topic_call(target)))
        await kill()
        late = failed(await circuit.runner(topic_call(target)))
    assert late.retryable
    assert "MSG_TIMED_OUT" in late.error
    assert circuit.metrics.circuits_open == 1


# --- helpers ---


class Circuit(NamedTuple):
    runner: TopicTargetRunner
    metrics: Metrics

    async def outcome(self, target: TopicTarget) -> Outcome | NotBegun:
        return await self.runner(topic_call(target))


class HangingUp(Listener):
    """Reads a request and ends the connection."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65_536)


@asynccontextmanager
async def hanging_up() -> AsyncIterator[int]:
    server = HangingUp()
    async with server.listening():
        yield server.port


MOCK_CLUSTER = """
import time
from confluent_kafka import Producer
host = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "unused", "log_level": 0})
(broker,) = host.list_topics(timeout=10).brokers.values()
print(broker.port, flush=True)
time.sleep(600)
"""


@asynccontextmanager
async def killable_kafka() -> AsyncIterator[tuple[int, Callable[[], Awaitable[object]]]]:
    """The mock broker of the client library, in a process of its own."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", MOCK_CLUSTER, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None

    async def kill() -> None:
        process.kill()
        await process.wait()

    try:
        yield int(await process.stdout.readline()), kill
    finally:
        if process.returncode is None:
            await kill()
