"""Where measurements are made: a throw-away database with durable settings, and meters for what a run of them costs."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from detent.devtools.bench.database import BenchStore
from detent.devtools.bench.processes import children_seconds, own_seconds
from detent.node import node
from detent.runtime.clock import monotonic
from detent.settings.settings import Settings
from detent.store import Store
from detent.store.embedded import EmbeddedServer


class Ground(NamedTuple):
    url: str
    store: Store
    bench: BenchStore
    postmaster: int


@asynccontextmanager
async def ground() -> AsyncIterator[Ground]:
    """The embedded PostgreSQL with fsync on, in a temporary folder, on the same machine."""
    node.collect_garbage_seldom()
    with tempfile.TemporaryDirectory(prefix="detent-bench-", ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o755)  # noqa: PTH101, S103 - the server's user has to get through when root measures
        async with EmbeddedServer(Path(folder)) as server:
            await node.prepare_database(server.url, "detent", migrate=True)
            async with node.opened_store(server.url, Settings()) as store:
                yield Ground(server.url, store, BenchStore(store.database), server.postmaster)


class Cost(NamedTuple):
    """What a stretch of work took: seconds, those of processor time on either side, and bytes of log."""

    seconds: float
    ours: float
    servers: float
    wal: int


class Meter:
    """Started before a stretch of work, read after it."""

    def __init__(self, at: Ground) -> None:
        self._at = at

    async def start(self) -> None:
        self._position = await self._at.bench.wal_position()
        self._ours, self._servers = own_seconds(), children_seconds(self._at.postmaster)
        self._began = monotonic()

    async def read(self) -> Cost:
        seconds = monotonic() - self._began
        ours, servers = own_seconds() - self._ours, children_seconds(self._at.postmaster) - self._servers
        return Cost(seconds, ours, servers, await self._at.bench.wal_since(self._position))
