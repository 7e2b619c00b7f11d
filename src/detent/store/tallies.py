"""Figures that are kept: what ended in each minute, and how many jobs there are.

They are made after the fact, by one node for all, from what is on record anyway: no fire, claim or settle writes a row
more for them. What came on record late is counted in a second look.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from detent.store import sql
from detent.store.db import Database, PoolName

# What a run that ended so long ago left behind is on record by now, unless the database was away.
SETTLED_AFTER = timedelta(seconds=2)
LONGEST_STRETCH = timedelta(seconds=60)
LOOKED_BACK = timedelta(hours=1)
KEPT = timedelta(days=8)
MOST_AMENDED = 200_000


class Mark(NamedTuple):
    """Through when history is folded and could be, how old the count of jobs is, and the only tenant, if it is one."""

    folded_until: datetime
    foldable: datetime
    count_age: timedelta
    now: datetime
    only_tenant: int | None


class TallyStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def mark(self) -> Mark:
        (row,) = await self._database.fetch(PoolName.REQUEST, sql.tally.READ_MARK, SETTLED_AFTER)
        return Mark(*row.values())

    async def fold(self, mark: Mark, bounds: tuple[float, ...]) -> datetime:
        """Add the next stretch to its minutes; the answer is through when history is folded then. Of a long absence
        only the last hour is made up for."""
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

    async def _leap(self, mark: Mark) -> tuple[datetime, datetime]:
        since = mark.foldable - LOOKED_BACK
        await self.leap(mark, since)
        return since, since + LONGEST_STRETCH

    async def leap(self, mark: Mark, until: datetime) -> None:
        """What ended before is not folded any more."""
        await self._database.fetch(PoolName.REQUEST, sql.tally.SKIP_AHEAD, mark.folded_until, until)

    async def amend(
        self, since: datetime, until: datetime, mark: Mark, bounds: tuple[float, ...], most: int = MOST_AMENDED
    ) -> None:
        """Count whole minutes again that are folded already, unless they hold more than `most` runs."""
        await self._database.fetch(
            PoolName.REQUEST, sql.tally.AMEND_MINUTES, since, until, list(bounds), mark.only_tenant, most
        )

    async def forget(self) -> None:
        await self._database.fetch(PoolName.REQUEST, sql.tally.PURGE_MINUTES, KEPT)

    async def count_jobs(self) -> None:
        await self._database.fetch(PoolName.REQUEST, sql.tally.COUNT_JOBS)
