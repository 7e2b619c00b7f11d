"""Statements of the benchmarks: they insert rows by the hundred thousand and measure the result."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import NamedTuple

from detent.devtools.sql import bench
from detent.domain.documents import encode_json
from detent.domain.schedule import Schedule
from detent.store import sql
from detent.store.db import Database, PoolName

RAW_BATCH = 1000
RAW_NODE = 1
FAR_AWAY = 86_400.0
HISTORY_AT_ONCE = 500_000


class Figures(NamedTuple):
    lateness_ms: dict[str, float]
    succeeded: int
    skipped: int


class Herd(NamedTuple):
    """Jobs with consecutive numbers, and the instant at which they are all due."""

    first: int
    last: int
    due: datetime


class BenchRows:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._jobs = 0

    async def make_due(self, jobs: int, seconds: float, schedule: str = "every 1h", spread: float = 0.0) -> Herd:
        """Jobs that are all due at one instant, this many seconds from now, or spread over `spread` seconds."""
        stored = encode_json(Schedule.parse(schedule).to_stored())
        rows = await self._database.fetch(PoolName.REQUEST, bench.MAKE_DUE, jobs, seconds, stored, self._jobs, spread)
        self._jobs += jobs
        return Herd(self._jobs - jobs + 1, self._jobs, rows[0]["due"])

    async def make_history(self, herd: Herd, runs: int) -> AsyncIterator[int]:
        """Insert finished runs of these jobs; yields how many there are so far."""
        jobs = herd.last - herd.first + 1
        now: datetime = (await self._database.fetch(PoolName.REQUEST, sql.database.CLOCK))[0]["now"]
        for made in range(0, runs, HISTORY_AT_ONCE):
            count = min(HISTORY_AT_ONCE, runs - made)
            await self._database.fetch(PoolName.REQUEST, bench.MAKE_HISTORY, count, jobs, herd.first, made, now)
            yield made + count

    async def sizes(self) -> dict[str, int]:
        """Bytes of the tables whose rows change often."""
        return dict((await self._database.fetch(PoolName.REQUEST, bench.SIZES))[0])

    async def commit(self, number: int) -> None:
        """One durable row: the lower bound for every durable write."""
        await self._database.fetch(PoolName.WORK, bench.COMMIT, number)

    async def settle_down(self) -> None:
        """Vacuum and analyze, so that newly inserted rows behave as they would an hour later."""
        async with self._database.unpooled() as connection:
            await connection.execute("SET statement_timeout = 0; SET maintenance_work_mem = '512MB'")
            await connection.execute(bench.VACUUM.text, timeout=3600)
            await connection.execute("CHECKPOINT", timeout=3600)

    async def prepare_commits(self) -> None:
        await self._database.fetch(PoolName.REQUEST, bench.RAW_TABLE)
        await self._database.fetch(PoolName.REQUEST, bench.RAW_TRUNCATE)

    @asynccontextmanager
    async def idle_reader(self) -> AsyncIterator[None]:
        """A reader that leaves its transaction open."""
        async with self._database.unpooled() as connection:
            await connection.execute("SET idle_in_transaction_session_timeout = 0")
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                await connection.fetch(bench.SIZES.text)
                yield

    async def prepare_raw(self, herd: Herd) -> int:
        """Divide a herd into the batches that `raw_loop` writes; returns how many."""
        await self._database.fetch(PoolName.REQUEST, bench.RAW_TABLE)
        await self._database.fetch(PoolName.REQUEST, bench.RAW_TRUNCATE)
        rows = await self._database.fetch(PoolName.REQUEST, bench.RAW_BATCHES, herd.first, herd.last, RAW_BATCH)
        return int(rows[0]["batches"])

    async def raw_loop(self, batches: int) -> None:
        """The row writes of the loop as plain batched statements, on two connections: the upper bound of this machine
        without any decisions."""
        left = iter(range(batches))

        async def write() -> None:
            for batch in left:
                await self._database.fetch(PoolName.WORK, bench.RAW_FIRE, batch, RAW_NODE)
                await self._database.fetch(PoolName.WORK, bench.RAW_SETTLE, batch, RAW_NODE)

        await asyncio.gather(write(), write())

    async def wal_position(self) -> str:
        position: str = (await self._database.fetch(PoolName.REQUEST, bench.WAL_POSITION))[0]["position"]
        return position

    async def wal_since(self, position: str) -> int:
        written: int = (await self._database.fetch(PoolName.REQUEST, bench.WAL_SINCE, position))[0]["bytes"]
        return written

    async def end(self, herd: Herd) -> None:
        """End the jobs: they have no more ticks."""
        await self._database.fetch(PoolName.REQUEST, bench.END, herd.first, herd.last)

    async def succeeded(self, due: datetime) -> int:
        count: int = (await self._database.fetch(PoolName.REQUEST, bench.SUCCEEDED, due))[0]["count"]
        return count

    async def partitions_led(self) -> list[int]:
        """How many partitions each node leads."""
        return [row["led"] for row in await self._database.fetch(PoolName.REQUEST, bench.PARTITIONS_LED)]

    async def transactions(self) -> int:
        """Of all nodes, and the few of the measurement itself."""
        count: int = (await self._database.fetch(PoolName.REQUEST, bench.TRANSACTIONS))[0]["transactions"]
        return count

    async def figures(self, due: datetime) -> Figures:
        row = (await self._database.fetch(PoolName.REQUEST, bench.FIGURES, due))[0]
        p50, p99, largest = row["lateness"]
        return Figures({"p50": p50, "p99": p99, "max": largest}, row["succeeded"], row["skipped"])
