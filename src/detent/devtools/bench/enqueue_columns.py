"""What `detent bench enqueue` and `make bench-enqueue-peers` measure of enqueuing, the same for every system.

An adapter of another system imports this module in an interpreter of its own, where nothing of detent is installed: so
it imports only the standard library.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

Kind = Literal["single", "batch", "transaction", "insert"]
Payload = Mapping[str, Any]

BATCH = 1000
PAYLOAD_BYTES = 76
WARM_UP_SECONDS = 0.3
# Numbers of the payloads have as many digits as this one.
FIRST_NUMBER = 10_000_000

CREATE_ORDERS = """CREATE TABLE orders (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, customer text NOT NULL, amount numeric NOT NULL,
    ordered_at timestamptz NOT NULL DEFAULT now())"""
"""The table of the caller."""


class EnqueueColumn(NamedTuple):
    kind: Kind
    connections: int

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.connections}"

    @property
    def title(self) -> str:
        connections = f"{self.connections} connection{'s' if self.connections > 1 else ''}"
        return f"{TITLES[self.kind]}, {connections}"

    @property
    def runs_per_call(self) -> int:
        return BATCH if self.kind == "batch" else 1

    @property
    def enqueues(self) -> bool:
        return self.kind != "insert"

    @property
    def inserts(self) -> bool:
        """Whether each call inserts a row of the caller's own."""
        return self.kind in ("transaction", "insert")


TITLES: Mapping[Kind, str] = {
    "single": "one run per call",
    "batch": f"{BATCH:,} runs per call",
    "transaction": "transaction with an INSERT and one run",
    "insert": "transaction with the INSERT alone",
}
COLUMNS = (
    EnqueueColumn("single", 1),
    EnqueueColumn("single", 8),
    EnqueueColumn("batch", 1),
    EnqueueColumn("batch", 4),
    EnqueueColumn("transaction", 1),
    EnqueueColumn("transaction", 8),
    EnqueueColumn("insert", 1),
    EnqueueColumn("insert", 8),
)


class EnqueueClient(Protocol):
    """One connection that enqueues as a program would: each call begins with Python values, and ends when its
    transaction is committed."""

    async def single(self, payload: Payload, /) -> object: ...

    async def batch(self, payloads: Sequence[Payload], /) -> object: ...

    async def transaction(self, payload: Payload, /) -> object:
        """One row into `orders`, and one run."""

    async def insert(self, payload: Payload, /) -> object:
        """One row into `orders`."""


class EnqueueRate(NamedTuple):
    """`calls` includes those of the warm-up, so that they can be compared with what is in the tables."""

    calls: int
    per_second: float


def payloads() -> Iterator[Payload]:
    """Different payloads of PAYLOAD_BYTES bytes."""
    number = FIRST_NUMBER
    while True:
        number += 1
        yield {"order": number, "customer": f"c-{number % 99_999:07}", "amount": 129.9, "gift": False}


def encode(value: object) -> str:
    return json.dumps(value)


async def measure_column(
    column: EnqueueColumn, clients: Sequence[EnqueueClient], seconds: float, warm_up: float = WARM_UP_SECONDS
) -> EnqueueRate:
    """All clients call one after another for `seconds`. The calls of the warm-up prepare statements and fill caches."""
    source = payloads()
    calls = [_call(column, client, source) for client in clients[: column.connections]]
    warmed = await _repeat(calls, warm_up)
    began = time.perf_counter()
    counted = await _repeat(calls, seconds)
    took = time.perf_counter() - began
    return EnqueueRate(warmed + counted, counted * column.runs_per_call / took)


def _call(column: EnqueueColumn, client: EnqueueClient, source: Iterator[Payload]) -> Callable[[], Awaitable[object]]:
    if column.kind == "batch":
        return lambda: client.batch([next(source) for _ in range(BATCH)])
    one: Callable[[Payload], Awaitable[object]] = getattr(client, column.kind)
    return lambda: one(next(source))


async def _repeat(calls: Sequence[Callable[[], Awaitable[object]]], seconds: float) -> int:
    until = time.perf_counter() + seconds

    async def repeat(call: Callable[[], Awaitable[object]]) -> int:
        """At least once, however slow it is."""
        made = 0
        while not made or time.perf_counter() < until:
            await call()
            made += 1
        return made

    return sum(await asyncio.gather(*(repeat(call) for call in calls)))
