"""The brokers, each started when a test first asks for it and stopped with the test process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.brokers import Mosquitto, RabbitMQ
from tests.support.servers import running


@pytest.fixture(scope="session")
def rabbitmq_server() -> Iterator[RabbitMQ]:
    with running(RabbitMQ) as server:
        assert isinstance(server, RabbitMQ)
        yield server


@pytest.fixture(scope="session")
def mosquitto_server() -> Iterator[Mosquitto]:
    with running(Mosquitto) as server:
        assert isinstance(server, Mosquitto)
        yield server
