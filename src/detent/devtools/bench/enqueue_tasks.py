"""What the enqueue benchmark does with detent: it makes and pauses tasks, enqueues runs, and counts those that wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import islice
from typing import Any
from uuid import UUID

from detent.devtools.bench.enqueue_calls import TASK, as_runs
from detent.devtools.bench.enqueue_columns import CREATE_ORDERS, EnqueueClient, Payload, encode, payloads
from detent.devtools.sql import bench
from detent.domain.registration import read_document
from detent.jobs import JobOperations
from detent.store import Store
from detent.store.connection import Connection
from detent.store.db import PoolName

FILL_AT_ONCE = 5_000
FILLERS = 4
TASKS_AT_ONCE = 1_000
TARGET = {"type": "http", "url": "http://127.0.0.1:9/"}


class BenchTasks:
    def __init__(self, store: Store) -> None:
        self._database = store.database
        self._jobs = JobOperations(store)

    async def make(self, names: Sequence[str], **fields: Any) -> list[UUID]:
        """Tasks: jobs without a schedule."""
        made = []
        specs = [read_document({"name": name, "target": TARGET, **fields}) for name in names]
        for first in range(0, len(specs), TASKS_AT_ONCE):
            made += await self._jobs.registration.add(specs[first : first + TASKS_AT_ONCE])
        return [job.id for job in made]

    async def pause(self, job: UUID) -> None:
        await self._jobs.lifecycle.pause(job, "benchmark")

    async def enqueue_many(self, task: str, runs: str) -> None:
        await self._database.fetch(PoolName.WORK, bench.ENQUEUE_MANY, task, runs)

    async def fill(self, task: str, count: int, progress: Callable[[int], None], **others: object) -> None:
        """Enqueue many runs, several thousand per call; `others` are the same for all."""
        source = payloads()
        left: Iterator[int] = iter(range(0, count, FILL_AT_ONCE))
        done = 0

        async def work() -> None:
            nonlocal done
            for first in left:
                some = list(islice(source, min(FILL_AT_ONCE, count - first)))
                await self.enqueue_many(task, as_runs(some, **others))
                done += len(some)
                progress(done)

        await asyncio.gather(*(work() for _ in range(FILLERS)))

    async def fill_keys(self, task: str, keys: Iterable[str]) -> None:
        """One run for each concurrency key."""
        source, rest = payloads(), iter(keys)
        while some := list(islice(rest, FILL_AT_ONCE)):
            runs = [{"payload": next(source), "concurrency_key": key} for key in some]
            await self.enqueue_many(task, encode(runs))

    async def fill_each(self, names: Sequence[str], runs: Sequence[Mapping[str, object]]) -> None:
        """Runs with these fields, for each of many tasks."""
        source = payloads()
        left = iter(names)

        async def work() -> None:
            for name in left:
                await self.enqueue_many(name, encode([{"payload": next(source), **fields} for fields in runs]))

        await asyncio.gather(*(work() for _ in range(FILLERS)))

    async def waiting(self) -> int:
        count: int = (await self._database.fetch(PoolName.REQUEST, bench.COUNT_WAITING))[0]["waiting"]
        return count

    async def forget(self) -> None:
        await self._database.fetch(PoolName.REQUEST, bench.FORGET_WAITING)

    async def make_orders(self) -> None:
        async with self._database.unpooled() as connection:
            await connection.execute("SET search_path = public")
            await connection.execute(CREATE_ORDERS)

    async def settle_down(self) -> None:
        """Vacuum and analyze, so that what was enqueued a moment ago behaves as it would an hour later."""
        async with self._database.unpooled() as connection:
            await connection.execute("SET statement_timeout = 0")
            await connection.execute(bench.VACUUM_WAITING.text, timeout=3600)
        await self.checkpoint()

    async def checkpoint(self) -> None:
        """No measurement pays for pages that the one before it has changed."""
        async with self._database.unpooled() as connection:
            await connection.execute("SET statement_timeout = 0")
            await connection.execute("CHECKPOINT", timeout=3600)

    @asynccontextmanager
    async def clients(self, count: int) -> AsyncIterator[list[EnqueueClient]]:
        async with AsyncExitStack() as stack:
            connections = [await stack.enter_async_context(self._database.unpooled()) for _ in range(count)]
            yield [TaskClient(connection) for connection in connections]


class TaskClient:
    """Enqueues on one connection, as a program of a user does."""

    def __init__(self, connection: Connection, task: str = TASK) -> None:
        self._connection = connection
        self._task = task

    async def single(self, payload: Payload) -> None:
        await self._connection.fetchrow(bench.ENQUEUE.text, self._task, encode(payload))

    async def keyed(self, payload: Payload, key: str) -> None:
        await self._connection.fetchrow(bench.ENQUEUE_KEYED.text, self._task, encode(payload), key)

    async def batch(self, payloads: Sequence[Payload]) -> None:
        await self._connection.fetch(bench.ENQUEUE_MANY.text, self._task, as_runs(payloads))

    async def transaction(self, payload: Payload) -> None:
        async with self._connection.transaction():
            await self._insert(payload)
            await self.single(payload)

    async def insert(self, payload: Payload) -> None:
        async with self._connection.transaction():
            await self._insert(payload)

    async def _insert(self, payload: Payload) -> None:
        await self._connection.execute(bench.INSERT_ORDER.text, payload["customer"], payload["amount"])
