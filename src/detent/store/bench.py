"""Statements of the benchmarks: rows by the hundred thousand, and what became of them."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import NamedTuple

from detent.model import encode_json
from detent.schedule import Schedule
from detent.store.db import Database

RAW_BATCH = 1000
RAW_NODE = 1
FAR_AWAY = 86_400.0


class Figures(NamedTuple):
    lateness_ms: dict[str, float]
    succeeded: int
    skipped: int


class Herd(NamedTuple):
    """Jobs with numbers that follow each other, and the instant at which they are all due."""

    first: int
    last: int
    due: datetime


class BenchStore:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._jobs = 0

    async def make_due(self, jobs: int, seconds: float, schedule: str = "every 1h") -> Herd:
        """Jobs that are all due at one instant, some seconds from now, or from when they are stored."""
        stored = encode_json(Schedule.parse(schedule).to_stored())
        rows = await self._database.fetch("people", "bench_make_due", jobs, seconds, stored, self._jobs)
        self._jobs += jobs
        return Herd(self._jobs - jobs + 1, self._jobs, rows[0]["due"])

    async def prepare_raw(self, herd: Herd) -> int:
        """Put a herd into the batches in which the raw limit is to write it; how many."""
        await self._database.fetch("people", "bench_raw_table")
        await self._database.fetch("people", "bench_raw_forget")
        rows = await self._database.fetch("people", "bench_raw_batches", herd.first, herd.last, RAW_BATCH)
        return int(rows[0]["batches"])

    async def raw_loop(self, batches: int) -> None:
        """The row-writes of the loop as plain batched statements, on two connections: what this machine could do if
        there were nothing to decide."""
        left = iter(range(batches))

        async def write() -> None:
            for batch in left:
                await self._database.fetch("work", "bench_raw_fire", batch, RAW_NODE)
                await self._database.fetch("work", "bench_raw_settle", batch, RAW_NODE)

        await asyncio.gather(write(), write())

    async def wal_position(self) -> str:
        position: str = (await self._database.fetch("people", "bench_wal_position"))[0]["position"]
        return position

    async def wal_since(self, position: str) -> int:
        written: int = (await self._database.fetch("people", "bench_wal_since", position))[0]["bytes"]
        return written

    async def figures(self, due: datetime) -> Figures:
        row = (await self._database.fetch("people", "bench_figures", due))[0]
        p50, p99, largest = row["lateness"]
        return Figures({"p50": p50, "p99": p99, "max": largest}, row["succeeded"], row["skipped"])
