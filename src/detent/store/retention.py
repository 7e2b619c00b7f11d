"""The life of history's partitions after their day, and of what deleted jobs leave behind.

Nobody who reads or writes history waits for any of this: a partition is first detached beside them, which PostgreSQL
does in two steps that may be cut in half and are then finished later; only then, when nobody can reach it any more, is
it dropped.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple

from detent.errors import Unavailable
from detent.store import sql
from detent.store.connection import Connection
from detent.store.db import Database, PoolName, connect, translate
from detent.store.limits import REQUEST_LIMITS

READ_AT_ONCE = 1_000
FORGOTTEN_AT_ONCE = 500
MOVED_AT_ONCE = 1_000
LOCK_SECONDS = 2.0

State = Literal["attached", "detaching", "detached", "gone"]

# Where each kind of history goes on after a page, as columns of its key.
KEYS = {"run_history": ("job", "scheduled_at", "serial"), "attempts": ("job", "scheduled_at", "serial", "token")}

ARCHIVE = {"run_history": sql.history.ARCHIVE_RUNS, "attempts": sql.history.ARCHIVE_ATTEMPTS}


class Part(NamedTuple):
    """A partition whose time is over."""

    part: int
    parent: Literal["run_history", "attempts"]
    name: str
    until: datetime
    archived: bool
    state: State


class RetentionStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    # -- whose turn it is

    async def take_turn(self, task: str, node: int, turn: timedelta, every: timedelta) -> bool:
        """Whether this node does it now: nobody else is at it, and it was last done long enough ago."""
        return bool(await self._database.fetch(PoolName.WORK, sql.upkeep.TAKE_TURN, task, node, turn, every))

    async def keep_turn(self, task: str, node: int, turn: timedelta) -> bool:
        """Whether it is still this node's turn, which then goes on."""
        return bool(await self._database.fetch(PoolName.WORK, sql.upkeep.KEEP_TURN, task, node, turn))

    async def end_turn(self, task: str, node: int) -> None:
        await self._database.fetch(PoolName.WORK, sql.upkeep.END_TURN, task, node)

    # -- partitions

    async def expired(self, days: int, at: datetime | None = None) -> list[Part]:
        """Partitions older than this, and those that were on their way out, from the oldest on. `at`: the time as the
        caller knows it, if the server's clock is not to be believed beyond that."""
        rows = await self._database.fetch(PoolName.REQUEST, sql.history.LIST_EXPIRED, days, None, at)
        return [Part(*row.values()) for row in rows]

    async def look_again(self, part: Part, days: int, at: datetime | None = None) -> Part | None:
        """One of them as it is now; None: somebody else was faster, or it is needed again."""
        rows = await self._database.fetch(PoolName.REQUEST, sql.history.LIST_EXPIRED, days, part.part, at)
        return Part(*rows[0].values()) if rows else None

    async def detach(self, part: Part) -> None:
        """Out of the reach of readers and writers, who do not wait for it; LockTimeout: not yet, some time later."""
        verb = "FINALIZE" if part.state == "detaching" else "CONCURRENTLY"
        async with self._alone() as connection:
            await connection.execute(
                sql.history.DETACH.text.format(parent=part.parent, name=_quoted(part.name), verb=verb)
            )
        await self._database.fetch(PoolName.REQUEST, sql.history.RECORD_DETACHED, part.part)

    async def keep_late(self, part: Part, days: int, at: datetime | None = None) -> int:
        """Put what ended lately back into history, out of a detached part; how many rows, 0 when there are none left.
        The tick of a backfilled run may be a year old, and its result is kept as long as any other, from its end on."""
        moment = (await self._database.fetch(PoolName.REQUEST, sql.history.READ_RETAINED_FROM, days, at))[0]["moment"]
        name, key = _quoted(part.name), KEYS[part.parent]
        look = sql.history.FIND_LATE.text.format(name=name)
        same = " AND ".join(f"p.{column} = late.{column}" for column in key)
        keep = sql.history.RESTORE_LATE.text.format(name=name, parent=part.parent, key=", ".join(key), same=same)

        async def work(connection: Connection) -> int:
            await connection.execute(sql.database.PREFER_INDEX.text)
            if not await connection.fetchval(look, moment):
                return 0
            return int(await connection.fetchval(keep, moment, MOVED_AT_ONCE))

        rows: int = await self._database.transaction(PoolName.REQUEST, work)
        return rows

    async def drop(self, part: Part) -> None:
        """LockTimeout: somebody looks at it, although it is detached; later, then."""
        if part.state != "gone":
            async with self._alone() as connection:
                if not await connection.fetchval(sql.history.DROP.text, part.name):
                    raise Unavailable(f"{part.name} is a part of history again.")
        await self._database.fetch(PoolName.REQUEST, sql.history.RECORD_DROPPED, part.part)

    async def archived(self, part: Part, location: str, rows: int, sha256: str) -> None:
        await self._database.fetch(PoolName.REQUEST, sql.history.RECORD_ARCHIVED, part.part, location, rows, sha256)

    async def lines(self, part: Part) -> AsyncIterator[list[str]]:
        """The rows of a detached partition as JSON, page by page: a snapshot that is held for long hurts claims."""
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
        """A connection outside any pool and any transaction, which waits for a lock only briefly."""
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
            connection.terminate()  # also when this was cut short: what the server has begun it ends by its own limit

    # -- what deleted jobs leave behind

    async def forget_jobs(self, days: int) -> int:
        """Jobs that were deleted so long ago that nothing in history is about them; how many."""
        return len(await self._database.fetch(PoolName.REQUEST, sql.job.PURGE, days, FORGOTTEN_AT_ONCE))

    async def forget_workers(self, days: int) -> None:
        """Names of workers that pull, when nothing in history is theirs."""
        await self._database.fetch(PoolName.REQUEST, sql.pull.PURGE_WORKERS, days)

    async def forget_skips(self, days: int) -> None:
        """Ticks that were to be skipped, when they have long passed."""
        await self._database.fetch(PoolName.REQUEST, sql.skip.PURGE, days)

    async def forget_payloads(self, days: int) -> int:
        """Payloads of runs that history has no more; how many."""
        return len(await self._database.fetch(PoolName.REQUEST, sql.run.PURGE_PAYLOADS, days, FORGOTTEN_AT_ONCE))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
