"""Advisory locks on a separate connection: they are held for as long as it is open.

A process that is killed loses the connection, and with it the locks, at once. A paused process does not: its kernel
still answers keepalives. The server ends a connection that was idle for one time to live, which is the only limit that
frees the locks of a paused holder. For this the connection must lead to the server itself: behind a transaction pooler,
a lock would belong to the next session on the same server connection.
"""

from __future__ import annotations

from detent.errors import DetentError, Unavailable
from detent.store import sql
from detent.store.connection import Connection, Row
from detent.store.db import connect, translate
from detent.store.statement import Statement


class AdvisoryLocks:
    def __init__(self, url: str, schema: str, space: int, ttl: float) -> None:
        self._url = url
        self._schema = schema
        self._space = space
        self._ttl = ttl
        self._connection: Connection | None = None
        self._held: set[int] = set()

    async def hold(self, wanted: set[int]) -> set[int]:
        """Release all others, try to get these, and return those held. The call also keeps the connection alive."""
        await self._ensure()
        await self.release(self._held - wanted)
        rows = await self._run(sql.advisory_lock.TAKE, self._space, sorted(wanted - self._held))
        self._held |= {row["key"] for row in rows}
        return set(self._held)

    async def release(self, keys: set[int]) -> None:
        held = keys & self._held
        if held:
            await self._run(sql.advisory_lock.RELEASE, self._space, sorted(held))
            self._held -= held

    async def close(self) -> None:
        """Release all; a connection that is only closed keeps its locks until the server notices."""
        try:
            await self.release(set(self._held))
        finally:
            self._drop()

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None
        self._held.clear()

    async def _ensure(self) -> None:
        if self._connection is not None and self._connection.is_closed():
            self._drop()
        if self._connection is None:
            self._connection = await connect(self._url, self._schema)
            await self._run(sql.advisory_lock.LIMIT_IDLE_TIME, f"{round(self._ttl * 1000)}ms")

    async def _run(self, statement: Statement, *arguments: object) -> list[Row]:
        """After any error it is unknown what is held: the connection is closed, and the locks with it."""
        if self._connection is None:
            raise Unavailable("The connection that held the locks is closed.")
        try:
            return await self._connection.fetch(statement.text, *arguments)
        except BaseException as error:
            self._drop()
            if not isinstance(error, DetentError) and translate(error) is not None:
                raise Unavailable(f"The connection that holds the locks was lost ({error}).") from error
            raise
