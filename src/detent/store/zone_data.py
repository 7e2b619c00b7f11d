"""The release of the zone data by which ticks were computed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from detent.domain.audit_event import NewEvent
from detent.store import sql
from detent.store.audit_log import record
from detent.store.connection import Connection
from detent.store.db import Database, PoolName, Row


class ZoneDataStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def seen(self) -> str | None:
        """The newest release by which all jobs were computed."""
        seen: str | None = (await self._database.fetch(PoolName.REQUEST, sql.zone_data.READ))[0]["tzdata"]
        return seen

    async def mark_seen(self, release: str, moved: int) -> None:
        """`moved`: how many next ticks the release has moved."""

        async def work(connection: Connection) -> None:
            await connection.fetch(sql.zone_data.RECORD.text, release)
            if moved:
                after = {"jobs": moved}
                await record(connection, NewEvent("zone-data.renew", None, "zone-data", release, after=after))

        await self._database.transaction(PoolName.REQUEST, work)

    async def older(self, release: str, behind: int, limit: int) -> list[Row]:
        """Jobs behind this number that were computed by another release, as rows to change."""
        return await self._database.fetch(PoolName.REQUEST, sql.zone_data.LIST_OUTDATED_JOBS, release, behind, limit)

    async def renew_spans(self, same: Sequence[tuple[int, int, datetime]], release: str) -> None:
        """Jobs (number, generation, end of the span) whose next tick is the same by this release."""
        await self._database.fetch(PoolName.REQUEST, sql.ledger.RENEW_SPANS, *zip(*same, strict=True), release)
