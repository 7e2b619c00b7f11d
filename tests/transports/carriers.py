"""The brokers of the contract suite of transports, each a real server of `tests/topics/brokers.py`.

To add one: a subclass of `Carrier` that says what it promises and how the broker loses everything; then its name in
`CARRIERS`. A module of a transport has `open_transport(address, cluster, *, hold_seconds=HOLD_SECONDS)`, so that a test
need not wait half a minute for what a lost worker had.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from importlib import import_module
from typing import Any, ClassVar

from detent.transports.nats_stream import DUPLICATE_SECONDS
from detent.transports.transport import HOLD_SECONDS, Transport
from tests.support.brokers import PASSWORD, USER
from tests.topics.brokers import Broker

HOLD = 0.8


class Carrier(ABC):
    """A broker as a transport uses it. What it does not promise, the suite does not ask."""

    broker_name: ClassVar[str]
    """In `BROKERS` of tests/topics."""
    module: ClassVar[str]
    """In `detent.transports`."""
    short: ClassVar[bool] = True
    """False: all of it is for `-m long`, because it is much like another one."""
    slow: ClassVar[int] = 1
    """How many times fewer offers a test sends, where the server of the tests needs long for each."""
    long_tests: ClassVar[tuple[str, ...]] = ()
    """Tests that take long with it, by a part of their names: they are for `-m long`."""
    by_priority: ClassVar[bool] = True
    """Of offers that are there, those above the default priority are taken first, and those below it last."""
    deduplicates: ClassVar[bool] = True
    """The same offer sent twice is delivered once."""
    forgets_seconds: ClassVar[float] = 0.0
    """After so long, an offer that is sent again is no duplicate of one that was finished."""
    settle_seconds: ClassVar[float] = 0.0
    """A broker that is killed sooner after it has created a queue may not serve the queue again."""
    returns_at_close: ClassVar[bool] = True
    """What a transport has taken returns at once when it is closed, without waiting for the end of the hold."""
    hold_seconds: ClassVar[float] = HOLD
    """For which an offer is held in tests that wait for the end of it."""
    may_double: ClassVar[bool] = False
    """While workers come and go, an offer may be with two of them."""
    counts: ClassVar[bool] = True
    """`depth` has the number of offers at once."""
    relayed: ClassVar[bool] = True
    """Its clients connect to the address that they are given, and to no other."""
    can_secure: ClassVar[bool] = True
    can_encrypt: ClassVar[bool] = True
    away_seconds: ClassVar[float] = 12.0
    """Within which a call fails when the broker is away."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    def address(self, user: str = USER, password: str = PASSWORD, port: int | None = None) -> str:
        """As DETENT_QUEUE names it."""
        scheme, _, rest = self.broker.url.partition("://")
        rest = rest.replace(f":{self.broker.port}", f":{port or self.broker.port}")
        return f"{scheme}://{user}:{password}@{rest}" if self.broker.secured else f"{scheme}://{rest}"

    def transport(self, cluster: str, address: str | None = None, hold_seconds: float = HOLD_SECONDS) -> Transport:
        opener: Any = import_module(f"detent.transports.{self.module}").open_transport
        made: Transport = opener(address or self.address(), cluster, hold_seconds=hold_seconds)
        return made

    @abstractmethod
    async def empty(self, cluster: str) -> None:
        """Everything that the broker has of the cluster is lost."""


class RedisCarrier(Carrier):
    broker_name = "redis"
    module = "redis"

    async def empty(self, cluster: str) -> None:
        broker: Any = self.broker
        async with broker.client() as client:
            await client.flushall()
            await client.script_flush()


class ValkeyCarrier(RedisCarrier):
    broker_name = "valkey"
    short = False
    can_encrypt = False  # the server of the wheel is built without TLS


class NatsCarrier(Carrier):
    broker_name = "nats"
    module = "nats"
    forgets_seconds = DUPLICATE_SECONDS + 0.1

    async def empty(self, cluster: str) -> None:
        broker: Any = self.broker
        client = await broker.client()
        await client.jsm().delete_stream(f"detent-{cluster}")
        await client.close()


CARRIERS: dict[str, type[Carrier]] = {"redis": RedisCarrier, "valkey": ValkeyCarrier, "nats": NatsCarrier}

# Here, because they are made of what is above.
from tests.transports.queue_carriers import QUEUE_CARRIERS  # noqa: E402

CARRIERS.update(QUEUE_CARRIERS)
