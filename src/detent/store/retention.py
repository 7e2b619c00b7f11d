"""Removal of old history partitions, and of rows that deleted jobs leave behind.

Readers and writers of history do not wait for any of this. A partition is first detached concurrently, which PostgreSQL
does in two steps that may be interrupted and finished later. It is dropped only when no transaction can reach it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple

import asyncpg

from detent.domain.audit_event import NewEvent
from detent.errors import Unavailable
from detent.store import sql
from detent.store.audit_log import record
from detent.store.connection import Connection
from detent.store.db import Database, PoolName, connect, translate
from detent.store.limits import REQUEST_LIMITS

READ_AT_ONCE = 1_000
PURGE_BATCH = 500
MOVED_AT_ONCE = 1_000
LOCK_SECONDS = 2.0
DETACH_TRIES = 10
DETACH_PAUSE = 1.0

State = Literal["attached", "detaching", "detached", "gone"]

# The key of each kind of history, by which pages continue.
KEYS = {
    "run_history": ("job", "scheduled_at", "serial"),
    "attempts": ("job", "scheduled_at", "serial", "token"),
    "run_logs": ("job", "scheduled_at", "serial", "token", "part"),
}
ARCHIVE = {
    "run_history": sql.history.ARCHIVE_RUNS,
    "attempts": sql.history.ARCHIVE_ATTEMPTS,
    "run_logs": sql.history.ARCHIVE_LOGS,
}
# The column that says when what a row is about ended.
ENDED = {"run_history": "finished_at", "attempts": "finished_at", "run_logs": "written_at"}


class Part(NamedTuple):
    """A partition that is older than the retention."""

    part: int
    parent: Literal["run_history", "attempts", "run_logs"]
    name: str
    until: datetime
    archived: bool
    state: State


class RetentionStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    # -- leases of tasks

    async def take_turn(self, task: str, node: int, turn: timedelta, every: timedelta) -> bool:
        """Whether this node does the task now: no other node does, and it was last done long enough ago."""
        return bool(await self._database.fetch(PoolName.WORK, sql.upkeep.TAKE_TURN, task, node, turn, every))

    async def keep_turn(self, task: str, node: int, turn: timedelta) -> bool:
        """Extend the lease; returns whether this node still has it."""
        return bool(await self._database.fetch(PoolName.WORK, sql.upkeep.KEEP_TURN, task, node, turn))

    async def end_turn(self, task: str, node: int) -> None:
        await self._database.fetch(PoolName.WORK, sql.upkeep.END_TURN, task, node)

    # -- partitions

    async def expired(self, days: int, at: datetime | None = None) -> list[Part]:
        """Partitions older than this, and those whose removal has begun, the oldest first. `at`: the time of the
        caller's clock, if the server's clock is not trusted beyond it."""
        rows = await self._database.fetch(PoolName.REQUEST, sql.history.LIST_EXPIRED, days, None, at)
        return [Part(*row.values()) for row in rows]

    async def reread(self, part: Part, days: int, at: datetime | None = None) -> Part | None:
        """The present state of a partition; None: another node has removed it, or it is needed again."""
        rows = await self._database.fetch(PoolName.REQUEST, sql.history.LIST_EXPIRED, days, part.part, at)
        return Part(*rows[0].values()) if rows else None

    async def detach(self, part: Part) -> None:
        """Detach a partition. Readers and writers do not wait; if this role does not own history, they wait up to 100
        ms. LockTimeout: try again later."""
        verb = "FINALIZE" if part.state == "detaching" else "CONCURRENTLY"
        async with self._alone() as connection:
            try:
                await connection.execute(
                    sql.history.DETACH.text.format(parent=part.parent, name=_quoted(part.name), verb=verb)
                )
            except asyncpg.InsufficientPrivilegeError:
                await _detach_by_owner(connection, part.name)
        await self._database.fetch(PoolName.REQUEST, sql.history.RECORD_DETACHED, part.part)

    async def keep_late(self, part: Part, days: int, at: datetime | None = None) -> int:
        """Move rows that ended recently from a detached partition back into history; how many, 0 when none is left. The
        tick of a backfilled run may be a year old, but its result is kept as long as any other, from its end on."""
        moment = (await self._database.fetch(PoolName.REQUEST, sql.history.READ_RETAINED_FROM, days, at))[0]["moment"]
        name, key, ended = _quoted(part.name), KEYS[part.parent], ENDED[part.parent]
        find = sql.history.FIND_LATE.text.format(name=name, ended=ended)
        same = " AND ".join(f"p.{column} = late.{column}" for column in key)
        words = {"name": name, "parent": part.parent, "key": ", ".join(key), "same": same, "ended": ended}
        keep = sql.history.RESTORE_LATE.text.format(**words)

        async def work(connection: Connection) -> int:
            await connection.execute(sql.database.PREFER_INDEX.text)
            if not await connection.fetchval(find, moment):
                return 0
            return int(await connection.fetchval(keep, moment, MOVED_AT_ONCE))

        rows: int = await self._database.transaction(PoolName.REQUEST, work)
        return rows

    async def drop(self, part: Part) -> None:
        """Drop a detached partition. LockTimeout: a transaction still reads it; try again later."""
        if part.state != "gone":
            async with self._alone() as connection:
                if not await connection.fetchval(sql.history.DROP.text, part.name):
                    raise Unavailable(f"{part.name} is attached to history again.")

        async def work(connection: Connection) -> None:
            await connection.fetch(sql.history.RECORD_DROPPED.text, part.part)
            before = {"until": part.until, "archived": part.archived}
            await record(connection, NewEvent("history.drop", None, "partition", part.name, part.name, before))

        await self._database.transaction(PoolName.REQUEST, work)

    async def archived(self, part: Part, location: str, rows: int, sha256: str) -> None:
        await self._database.fetch(PoolName.REQUEST, sql.history.RECORD_ARCHIVED, part.part, location, rows, sha256)

    async def lines(self, part: Part) -> AsyncIterator[list[str]]:
        """The rows of a detached partition as JSON, page by page, because a snapshot that stays open for long slows
        claims."""
        text = ARCHIVE[part.parent].text.format(name=_quoted(part.name))
        key = KEYS[part.parent]
        after: tuple[Any, ...] = (None,) * len(key)
        while True:
            async with self._database.connection(PoolName.REQUEST) as connection:
                rows = await connection.fetch(text, READ_AT_ONCE, *after)
            if not rows:
                return
            yield [row["line"] for row in rows]
            after = tuple(rows[-1][column] for column in key)

    async def count(self, part: Part) -> int:
        async with self._database.connection(PoolName.REQUEST) as connection:
            return int(await connection.fetchval(sql.history.COUNT.text.format(name=_quoted(part.name))))

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[Connection]:
        """A connection outside of the pools and of any transaction, which waits for a lock only briefly."""
        database = self._database
        limits = REQUEST_LIMITS._replace(lock=LOCK_SECONDS)
        connection = await connect(database.url, database.schema, limits, pooled=database.pooled)
        try:
            yield connection
            await connection.close(timeout=LOCK_SECONDS)
        except Exception as error:
            meaning = translate(error)
            if meaning is None:
                raise
            raise meaning from error
        finally:
            connection.terminate()  # even if this was interrupted: the server ends the statement by its own limit

    # -- rows that deleted jobs leave behind

    async def purge_jobs(self, days: int) -> int:
        """Remove jobs that were deleted so long ago that history has none of their runs; returns how many."""
        return len(await self._database.fetch(PoolName.REQUEST, sql.job.PURGE, days, PURGE_BATCH))

    async def purge_workers(self, days: int) -> None:
        """Remove the names of pulling workers of which history has no run."""
        await self._database.fetch(PoolName.REQUEST, sql.pull.PURGE_WORKERS, days)

    async def purge_skips(self, days: int) -> None:
        """Remove marks of skipped ticks that are older than history."""
        await self._database.fetch(PoolName.REQUEST, sql.skip.PURGE, days)

    async def purge_progress(self) -> int:
        """Remove the progress of runs that have ended; returns how many."""
        return len(await self._database.fetch(PoolName.REQUEST, sql.output.PURGE_PROGRESS, PURGE_BATCH))

    async def purge_payloads(self, days: int) -> int:
        """Remove payloads of runs that history no longer has; returns how many."""
        return len(await self._database.fetch(PoolName.REQUEST, sql.run.PURGE_PAYLOADS, days, PURGE_BATCH))


async def _detach_by_owner(connection: Connection, name: str) -> None:
    """Detach with a function that has the owner's rights. It cannot do so concurrently, so each try for the lock is
    short: settles and readers queue behind it."""
    for _ in range(DETACH_TRIES - 1):
        try:
            await connection.fetch(sql.history.DETACH_BY_OWNER.text, name)
            return
        except asyncpg.LockNotAvailableError:
            await asyncio.sleep(DETACH_PAUSE)
    await connection.fetch(sql.history.DETACH_BY_OWNER.text, name)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
