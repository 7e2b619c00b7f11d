"""Statements of the benchmarks: rows by the hundred thousand, and what became of them."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from detent.model import encode_json
from detent.schedule import Schedule
from detent.store.db import Database


class Figures(NamedTuple):
    lateness_ms: dict[str, float]
    skipped: int


class BenchStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def make_due(self, jobs: int, seconds: float) -> datetime:
        """Hourly jobs that are all due at one instant, some seconds from now; that instant."""
        stored = encode_json(Schedule.parse("every 1h").to_stored())
        rows = await self._database.fetch("people", "bench_make_due", jobs, seconds, stored)
        due: datetime = rows[0]["due"]
        return due

    async def finished(self) -> int:
        count: int = (await self._database.fetch("people", "bench_finished"))[0]["count"]
        return count

    async def wal_position(self) -> str:
        position: str = (await self._database.fetch("people", "bench_wal_position"))[0]["position"]
        return position

    async def wal_since(self, position: str) -> int:
        written: int = (await self._database.fetch("people", "bench_wal_since", position))[0]["bytes"]
        return written

    async def figures(self) -> Figures:
        row = (await self._database.fetch("people", "bench_figures"))[0]
        p50, p99, largest = row["lateness"]
        return Figures({"p50": p50, "p99": p99, "max": largest}, row["skipped"])
