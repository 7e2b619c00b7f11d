"""Searches for jobs.

What no index answers is searched in stretches of jobs, a bounded number in one call: such a page may end before it is
full, with the job to continue after.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from detent.contract.job import JobStatus
from detent.domain.job import TargetKind
from detent.store import sql
from detent.store.connection import Connection
from detent.store.job_limits import job_limits

NOT_DELETED: tuple[JobStatus, ...] = ("active", "paused", "completed")
LAST = (1 << 62) - 1
FIRST_STRETCH = 10_000
LONGEST_STRETCH = 160_000
MAX_EXAMINED = 500_000
GROWTH = 4

Moment = datetime | timedelta
"""A time, or a distance from now."""


class JobSearch(NamedTuple):
    """All conditions must hold; an empty one or None does not restrict. Without statuses, deleted jobs are left out;
    contradictory statuses find nothing. With `ids`, only statuses are checked besides."""

    statuses: tuple[JobStatus, ...] | None = None
    prefix: str | None = None
    words: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    targets: tuple[TargetKind, ...] = ()
    queues: tuple[str, ...] = ()
    next_before: Moment | None = None
    next_after: Moment | None = None
    owner: str | None = None
    ids: tuple[UUID, ...] = ()

    @property
    def wanted(self) -> tuple[JobStatus, ...]:
        return NOT_DELETED if self.statuses is None else self.statuses

    @property
    def walks(self) -> bool:
        """Whether many jobs may have to be examined for each one found."""
        timed = self.next_before is not None or self.next_after is not None
        rare = self.words or self.prefix or self.tags or self.queues or self.owner
        return not self.by_name and (timed or bool(rare))

    @property
    def by_name(self) -> bool:
        """Whether the index of names answers it, which has no deleted jobs."""
        return self.prefix is not None and "deleted" not in self.wanted

    def filters(self) -> Iterator[object]:
        yield self.prefix
        for values in (self.words, self.tags, self.targets, self.queues):
            yield list(values) or None
        for moment in (self.next_before, self.next_after):
            yield moment if isinstance(moment, datetime) else None
            yield moment if isinstance(moment, timedelta) else None
        yield self.owner


class FoundJob(NamedTuple):
    number: int
    id: UUID
    name: str
    status: JobStatus


async def find(
    connection: Connection, tenant: int, search: JobSearch, after: int, limit: int
) -> tuple[list[int], int | None]:
    """The numbers of a page, and the value to pass as `after` for the next (None: the last one)."""
    if not search.wanted:
        return [], None
    if search.ids:
        arguments = (tenant, list(search.wanted), list(search.ids), after, limit + 1, job_limits())
        found = [row["job"] for row in await connection.fetch(sql.job.FIND_BY_IDS.text, *arguments)]
        return found[:limit], found[limit - 1] if len(found) > limit else None
    if not search.walks and job_limits() is None:
        found = await _stretch(connection, tenant, search, after, LAST, limit + 1)
        return found[:limit], found[limit - 1] if len(found) > limit else None
    (row,) = await connection.fetch(sql.job.FIND_LAST.text)
    end = row["job"] or 0
    found, lower, stretch = [], after, FIRST_STRETCH
    while lower < end and lower - after < MAX_EXAMINED:
        # If the first stretch does not fill the page, the tag is rare, and its index finds the rest at once.
        upper = LAST if search.tags and lower > after else lower + stretch
        found += await _stretch(connection, tenant, search, lower, upper, limit + 1 - len(found))
        if len(found) > limit:
            return found[:limit], found[limit - 1]
        lower, stretch = upper, min(stretch * GROWTH, LONGEST_STRETCH)
    return found, lower if lower < end else None


async def _stretch(
    connection: Connection, tenant: int, search: JobSearch, lower: int, upper: int, limit: int
) -> list[int]:
    statement = sql.job.LIST_BY_NAME if search.by_name else sql.job.LIST
    bounds = (tenant, list(search.wanted), lower, upper, limit)
    rows = await connection.fetch(statement.text, *bounds, *search.filters(), job_limits())
    return [row["job"] for row in rows]
