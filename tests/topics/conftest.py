"""The brokers, each started when a test first asks for it and stopped with the test process; runners that may send to
this machine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from uuid import uuid4

import pytest

from detent.domain.target_access import PRIVATE_TOO
from detent.targets.policies import FixedPolicy
from detent.targets.topics.runner import TopicTargetRunner
from tests.support.brokers import Mosquitto, RabbitMQ
from tests.topics.brokers import BROKERS, Broker, running_broker
from tests.topics.debian_brokers import MosquittoBroker, RabbitBroker

Start = Callable[..., Broker]


@pytest.fixture(scope="session")
def start_broker() -> Iterator[Start]:
    """Each kind of server once: plain, with credentials, with TLS."""
    with ExitStack() as stack:
        started: dict[tuple[str, bool, bool], Broker] = {}

        def start(name: str, *, secured: bool = False, encrypted: bool = False) -> Broker:
            key = name, secured, encrypted
            if key not in started:
                running = running_broker(BROKERS[name], secured=secured, encrypted=encrypted)
                started[key] = stack.enter_context(running)
            started[key].ensure()
            return started[key]

        yield start


@pytest.fixture
def rabbitmq_server(start_broker: Start) -> RabbitMQ:
    broker = start_broker("rabbitmq")
    assert isinstance(broker, RabbitBroker)
    return broker.server


@pytest.fixture
def mosquitto_server(start_broker: Start) -> Mosquitto:
    broker = start_broker("mosquitto")
    assert isinstance(broker, MosquittoBroker)
    return broker.server


@pytest.fixture(params=BROKERS)
def broker_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def broker(start_broker: Start, broker_name: str) -> Iterator[Broker]:
    """One broker after the other; a test may kill it, the next one finds it running."""
    found = start_broker(broker_name)
    yield found
    found.ensure()


@pytest.fixture
async def runner() -> AsyncIterator[TopicTargetRunner]:
    made = TopicTargetRunner(FixedPolicy(PRIVATE_TOO))
    yield made
    await made.close()


@pytest.fixture
def topic() -> str:
    """A name that every broker takes, and no other test has."""
    return f"orders-{uuid4().hex[:12]}"
