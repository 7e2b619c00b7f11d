"""Notifications read from a table, for nodes that cannot LISTEN because they connect through a pooler.

A transaction becomes visible at its commit, and transactions do not commit in the order of their numbers. A reader that
continues after the last number it read loses rows with a smaller number that commit later. So each read starts at the
oldest transaction that was still open at the previous read (`pg_snapshot_xmin`). This range contains every new row, and
rows that were read before are filtered out.

Rows are written only while there are readers: each reader registers in the database.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import monotonic

from detent.store import sql
from detent.store.db import Database, PoolName

READ_EVERY = 1.0
PRESENT_EVERY = 20.0


class Feed:
    """As `Listener`, by polling."""

    every = READ_EVERY

    def __init__(self, database: Database, channels: Mapping[str, Callable[[str], None]]) -> None:
        self._database = database
        self._channels = channels
        self._lowest: int | None = None
        self._seen: set[tuple[int, int]] = set()
        self._present_next = 0.0

    async def ensure(self) -> bool:
        """Pass new notifications on; True if some may have been missed."""
        if monotonic() >= self._present_next:
            await self._database.fetch(PoolName.WORK, sql.feed.ANNOUNCE_READER)
            self._present_next = monotonic() + PRESENT_EVERY
        rows = await self._database.fetch(PoolName.WORK, sql.feed.READ, self._lowest, list(self._channels))
        lowest = rows[0]["lowest"]
        if self._lowest is None or lowest < self._lowest:  # the first read, or a server with an older state
            self._lowest, self._seen = lowest, set()
            return True
        found = {(row["xid"], row["id"]): (row["channel"], row["payload"]) for row in rows if row["id"] is not None}
        news = dict.fromkeys(said for key, said in found.items() if key not in self._seen)
        self._lowest = lowest
        self._seen = {(xid, number) for xid, number in found if xid >= lowest}
        for channel, payload in news:
            self._channels[channel](payload)
        return False

    async def close(self) -> None:
        return
