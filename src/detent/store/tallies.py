"""Stored figures: how many runs ended in each minute, and how many jobs there are.

One node computes them afterwards from history, so no fire, claim or settle writes an additional row. Rows that were
written late are counted in a second pass.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from detent.store import sql
from detent.store.db import Database, PoolName

# The rows of a run that ended this long ago are written by now, unless the database was unavailable.
SETTLED_AFTER = timedelta(seconds=2)
LONGEST_STRETCH = timedelta(seconds=60)
LOOKED_BACK = timedelta(hours=1)
MINUTES_KEPT_FOR = timedelta(days=8)
MAX_AMENDED = 200_000


class TallyMark(NamedTuple):
    """Up to when history is counted, and up to when it could be; the age of the job count; the tenant if it is the only
    one."""

    folded_until: datetime
    foldable: datetime
    count_age: timedelta
    now: datetime
    only_tenant: int | None


class TallyStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def mark(self) -> TallyMark:
        (row,) = await self._database.fetch(PoolName.REQUEST, sql.tally.READ_MARK, SETTLED_AFTER)
        return TallyMark(*row.values())

    async def fold(self, mark: TallyMark, bounds: tuple[float, ...]) -> datetime:
        """Add the next stretch to its minutes; returns up to when history is folded then. After a long absence only the
        last hour is folded."""
        since = mark.folded_until
        until = min(mark.foldable, since + LONGEST_STRETCH)
        if mark.foldable - since > LOOKED_BACK:
            since, until = await self._leap(mark)
        if until <= since:
            return since
        await self._database.fetch(
            PoolName.REQUEST, sql.tally.FOLD_MINUTES, since, until, list(bounds), mark.only_tenant
        )
        return until

    async def _leap(self, mark: TallyMark) -> tuple[datetime, datetime]:
        since = mark.foldable - LOOKED_BACK
        await self.leap(mark, since)
        return since, since + LONGEST_STRETCH

    async def leap(self, mark: TallyMark, until: datetime) -> None:
        """Runs that ended before `until` are no longer folded."""
        await self._database.fetch(PoolName.REQUEST, sql.tally.SKIP_AHEAD, mark.folded_until, until)

    async def amend(
        self, since: datetime, until: datetime, mark: TallyMark, bounds: tuple[float, ...], most: int = MAX_AMENDED
    ) -> None:
        """Count whole minutes again, unless they have more than `most` runs."""
        await self._database.fetch(
            PoolName.REQUEST, sql.tally.AMEND_MINUTES, since, until, list(bounds), mark.only_tenant, most
        )

    async def purge(self) -> None:
        await self._database.fetch(PoolName.REQUEST, sql.tally.PURGE_MINUTES, MINUTES_KEPT_FOR)

    async def count_jobs(self) -> None:
        await self._database.fetch(PoolName.REQUEST, sql.tally.COUNT_JOBS)
