"""The database of a measurement: temporary, with durable settings; and a meter for time, CPU and WAL."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from detent.devtools.bench.database import BenchRows
from detent.devtools.bench.processes import children_seconds, own_seconds
from detent.node.database import opened_store, prepare_database
from detent.node.process import collect_garbage_seldom
from detent.runtime.clock import monotonic
from detent.settings.settings import Settings
from detent.store import Store
from detent.store.embedded import EmbeddedServer


class BenchDatabase(NamedTuple):
    url: str
    store: Store
    bench: BenchRows
    postmaster: int


@asynccontextmanager
async def bench_database() -> AsyncIterator[BenchDatabase]:
    """The embedded PostgreSQL with fsync on, in a temporary folder, on the same machine."""
    collect_garbage_seldom()
    with tempfile.TemporaryDirectory(prefix="detent-bench-", ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o755)  # noqa: PTH101, S103 - the server's user has to get through when root measures
        async with EmbeddedServer(Path(folder)) as server:
            await prepare_database(server.url, "detent", migrate=True)
            async with opened_store(server.url, Settings()) as store:
                yield BenchDatabase(server.url, store, BenchRows(store.database), server.postmaster)


class Cost(NamedTuple):
    """The cost of some work: seconds, CPU seconds of this process and of the server, and bytes of WAL."""

    seconds: float
    ours: float
    servers: float
    wal: int


class Meter:
    """Measures the cost of work between `start` and `read`."""

    def __init__(self, at: BenchDatabase) -> None:
        self._at = at

    async def start(self) -> None:
        self._position = await self._at.bench.wal_position()
        self._ours, self._servers = own_seconds(), children_seconds(self._at.postmaster)
        self._began = monotonic()

    async def read(self) -> Cost:
        seconds = monotonic() - self._began
        ours, servers = own_seconds() - self._ours, children_seconds(self._at.postmaster) - self._servers
        return Cost(seconds, ours, servers, await self._at.bench.wal_since(self._position))
