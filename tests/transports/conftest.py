"""The brokers, each started when a test first asks for it, and transports that are closed with the test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from uuid import uuid4

import pytest

from detent.transports.transport import Transport
from tests.topics.conftest import Start
from tests.topics.conftest import start_broker as start_broker
from tests.transports.carriers import CARRIERS, Carrier
from tests.transports.offers import LONG_HOLD

Connect = Callable[..., Awaitable[Transport]]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        call = getattr(item, "callspec", None)
        kind = None if call is None else CARRIERS.get(call.params.get("carrier_name", ""))
        if kind is not None and any(part in item.name for part in kind.long_tests):
            item.add_marker(pytest.mark.long)


@pytest.fixture(
    params=[pytest.param(name, marks=() if kind.short else pytest.mark.long) for name, kind in CARRIERS.items()]
)
def carrier_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def carrier(start_broker: Start, carrier_name: str) -> Iterator[Carrier]:
    """One broker after the other; a test may kill it, the next one finds it running."""
    kind = CARRIERS[carrier_name]
    broker = start_broker(kind.broker_name)
    yield kind(broker)
    broker.ensure()


@pytest.fixture
def cluster() -> str:
    """Each test has a cluster of its own, and so finds an empty broker."""
    return str(uuid4())


@pytest.fixture
async def connect(carrier: Carrier, cluster: str) -> AsyncIterator[Connect]:
    """Opens transports as other processes would: to the cluster of the test, unless it names another one. What a worker
    has taken does not return within the test, unless it says when."""
    opened: list[Transport] = []

    async def connect(
        of_cluster: str | None = None, address: str | None = None, hold_seconds: float = LONG_HOLD
    ) -> Transport:
        made = carrier.transport(of_cluster or cluster, address, hold_seconds)
        opened.append(made)
        await made.open()
        return made

    yield connect
    for transport in opened:
        await transport.close()


@pytest.fixture
async def transport(connect: Connect) -> Transport:
    return await connect()
