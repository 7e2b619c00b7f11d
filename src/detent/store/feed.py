"""What NOTIFY would have said, read from a table: for nodes that cannot listen, because a pooler stands in between.

A transaction becomes visible at its commit, and transactions do not commit in the order of their numbers. Whoever reads
"everything after the last number I saw" loses what had a smaller number and committed later. So each look begins with
the oldest transaction that was still open at the look before (`pg_snapshot_xmin`): all that may have come since is in
its range, and what was seen already is left out.

Rows are written only while somebody reads them: each reader leaves word in the database that it is there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import monotonic

from detent.store import sql
from detent.store.db import Database, PoolName

READ_EVERY = 1.0
PRESENT_EVERY = 20.0


class Feed:
    """As `Listener`, for somebody who has to look."""

    every = READ_EVERY

    def __init__(self, database: Database, channels: Mapping[str, Callable[[str], None]]) -> None:
        self._database = database
        self._channels = channels
        self._lowest: int | None = None
        self._seen: set[tuple[int, int]] = set()
        self._present_next = 0.0

    async def ensure(self) -> bool:
        """Pass on what is new; True when something may have been missed."""
        if monotonic() >= self._present_next:
            await self._database.fetch(PoolName.WORK, sql.feed.ANNOUNCE_READER)
            self._present_next = monotonic() + PRESENT_EVERY
        rows = await self._database.fetch(PoolName.WORK, sql.feed.READ, self._lowest, list(self._channels))
        lowest = rows[0]["lowest"]
        if self._lowest is None or lowest < self._lowest:  # the first look, or another server that has seen less
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
