"""A program that places orders: `python -m tests.support.orders.enqueuer URL NOTES SEED`. It runs until it is killed.

Each of its transactions writes rows of its own table `orders` and enqueues their runs by the SQL functions. Some are
rolled back on purpose, or only up to a savepoint. What it got and rolled back, and what it had to repeat, it notes in a
file: whether a transaction that a kill interrupted was committed, only the table knows.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, Literal, NamedTuple
from uuid import uuid4

import asyncpg

from tests.support.orders.tasks import KINDS, TaskKind

CONNECTIONS = 4
CUSTOMERS = 120
MAX_BATCH = 30
# While this many runs wait, nothing more is enqueued: the load lasts as long as the kills.
MAX_WAITING = 1500
LOOK_EVERY = 0.2
READY = "ready\n"
CONNECT_SECONDS = 5.0
AWAY = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
)
ROLLBACK_SHARE, SAVEPOINT_SHARE, DELAYED_SHARE, RANKED_SHARE, SINGLE_SHARE, LONG_SHARE = 0.08, 0.05, 0.1, 0.1, 0.4, 0.02
LONGEST_DELAY = 3.0
Isolation = Literal["read_committed", "repeatable_read", "serializable"]
ISOLATIONS: tuple[Isolation, ...] = ("read_committed", "read_committed", "repeatable_read", "serializable")
ENQUEUE = (
    "SELECT * FROM detent.enqueue($1, $2::jsonb, delay => $3, priority => $4, unique_key => $5, concurrency_key => $6)"
)
ENQUEUE_MANY = "SELECT * FROM detent.enqueue_many($1, $2::jsonb)"
INSERT = (
    "INSERT INTO public.orders (reference, task, customer, run, created, unique_key, isolation, asked)"
    " VALUES ($1, $2, $3, $4, $5, $6, $7, $8)"
)


class RolledBackError(Exception):
    """On purpose."""


class Item(NamedTuple):
    reference: str
    customer: str
    delay: float | None
    priority: int | None
    unique_key: str | None
    concurrency_key: str | None

    @property
    def payload(self) -> dict[str, str]:
        return {"order": self.reference, "customer": self.customer}

    @property
    def document(self) -> dict[str, Any]:
        fields = {
            "payload": self.payload,
            "delay_seconds": self.delay,
            "priority": self.priority,
            "unique_key": self.unique_key,
            "concurrency_key": self.concurrency_key,
        }
        return {name: value for name, value in fields.items() if value is not None}


class Notes:
    """Lines of a file that survive the process."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(self, kind: str, *values: str) -> None:
        os.write(self._file, json.dumps([kind, *values]).encode() + b"\n")


class Enqueuer:
    def __init__(self, url: str, notes: Notes, chance: random.Random) -> None:
        self._url = url
        self._notes = notes
        self._chance = chance
        self._room = asyncio.Event()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for work in (self._watch, *[self._place_orders] * CONNECTIONS):
                group.create_task(self._connected(work))
            sys.stdout.write(READY)
            sys.stdout.flush()

    async def _connected(self, work: Callable[[Any], Awaitable[None]]) -> None:
        """The database may crash and come back elsewhere. Whether a transaction was committed of which no answer came,
        only the table knows."""
        while True:
            try:
                connection = await asyncpg.connect(self._url, timeout=CONNECT_SECONDS)
                try:
                    await work(connection)
                finally:
                    connection.terminate()
            except AWAY:
                await asyncio.sleep(LOOK_EVERY)

    async def _watch(self, look: Any) -> None:
        while True:
            waiting = await look.fetchval("SELECT count(*) FROM (SELECT FROM detent.backlog LIMIT $1) b", MAX_WAITING)
            if waiting < MAX_WAITING:
                self._room.set()
            else:
                self._room.clear()
            await asyncio.sleep(LOOK_EVERY)

    async def _place_orders(self, connection: Any) -> None:
        while True:
            await self._room.wait()
            await self._transact(connection)

    async def _transact(self, connection: Any) -> None:
        """One transaction, repeated as its caller should: as a whole, when its isolation level asks for it."""
        (kind,) = self._chance.choices(KINDS, [kind.share for kind in KINDS])
        items = [self._draw(kind) for _ in range(self._batch(kind))]
        isolation = self._chance.choice(ISOLATIONS)
        rolled_back = self._chance.random() < ROLLBACK_SHARE
        while True:
            got: list[str] = []
            try:
                async with connection.transaction(isolation=isolation):
                    await self._work(connection, kind, items, isolation, got)
                    if rolled_back:
                        raise RolledBackError
            except asyncpg.SerializationError:
                self._notes.write("repeated", isolation, *got)
                continue
            except RolledBackError:
                self._notes.write("rolled back", *got)
            return

    def _batch(self, kind: TaskKind) -> int:
        return 1 if kind.laned or self._chance.random() < SINGLE_SHARE else self._chance.randint(2, MAX_BATCH)

    def _draw(self, kind: TaskKind) -> Item:
        chance = self._chance
        customer = f"c{chance.randrange(CUSTOMERS)}"
        return Item(
            uuid4().hex,
            customer,
            round(chance.uniform(0, LONGEST_DELAY), 3) if chance.random() < DELAYED_SHARE else None,
            chance.randint(-100, 100) if chance.random() < RANKED_SHARE else None,
            customer if kind.unique else None,
            customer if kind.given_key else None,
        )

    async def _work(
        self, connection: Any, kind: TaskKind, items: Sequence[Item], isolation: Isolation, got: list[str]
    ) -> None:
        asked = time.time()
        if isolation != "read_committed":
            # Takes the snapshot, some time before the enqueue; and what is read here is what SERIALIZABLE protects.
            await connection.fetchval("SELECT max(id) FROM public.orders WHERE customer = $1", items[0].customer)
            await asyncio.sleep(self._chance.uniform(0, 0.01))
        if self._chance.random() < SAVEPOINT_SHARE:
            await self._regret(connection, kind)
        rows = await enqueue(connection, kind, items)
        got += [str(row["run"]) for row in rows if row["created"]]
        await connection.executemany(
            INSERT,
            [
                (
                    item.reference,
                    kind.name,
                    item.customer,
                    row["run"],
                    row["created"],
                    item.unique_key,
                    isolation,
                    asked,
                )
                for item, row in zip(items, rows, strict=True)
            ],
        )
        if self._chance.random() < LONG_SHARE:
            await asyncio.sleep(self._chance.uniform(0, 0.5))

    async def _regret(self, connection: Any, kind: TaskKind) -> None:
        """Enqueue something, and roll back to the savepoint before it. Without a unique key, of which each transaction
        locks those of one call only: otherwise two of them could wait for each other."""
        items = [self._draw(kind)._replace(unique_key=None)]
        got: list[str] = []
        try:
            async with connection.transaction():
                got += [str(row["run"]) for row in await enqueue(connection, kind, items)]
                raise RolledBackError
        except RolledBackError:
            self._notes.write("rolled back", *got)


async def enqueue(connection: Any, kind: TaskKind, items: Sequence[Item]) -> list[Any]:
    if len(items) > 1:
        documents = json.dumps([item.document for item in items])
        return list(await connection.fetch(ENQUEUE_MANY, kind.name, documents))
    (item,) = items
    delay = None if item.delay is None else timedelta(seconds=item.delay)
    arguments = (json.dumps(item.payload), delay, item.priority, item.unique_key, item.concurrency_key)
    return list(await connection.fetch(ENQUEUE, kind.name, *arguments))


if __name__ == "__main__":
    asyncio.run(Enqueuer(sys.argv[1], Notes(sys.argv[2]), random.Random(sys.argv[3])).run())
