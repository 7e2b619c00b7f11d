"""Requests that are sent again: what was done once is answered again and not done again.

The work of a request and the answer to it are one transaction, so a crash leaves both or neither. While a request is
under way, an advisory lock of the same transaction keeps others with its key out: it leaves nothing to clean up.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from detent.errors import Conflict, UsageError
from detent.store import sql
from detent.store.db import MAX_MISSING_PARTITIONS, Database, MissingHistoryPartition, PoolName

KEPT = timedelta(hours=24)
FORGOTTEN_AT_ONCE = 1_000


class Answer(NamedTuple):
    """An answer as it was sent."""

    status: int
    headers: dict[str, str]
    body: bytes


class UnderWay(Conflict):
    """The same request is being served at this moment."""


class OtherRequest(UsageError):  # noqa: N818 - it says what is wrong
    """The key belongs to another request."""


class RequestStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def once(
        self,
        key: str,
        digest: bytes,
        work: Callable[[], Awaitable[Answer]],
        *,
        tenant: int,
        idle: timedelta,
    ) -> tuple[Answer, bool]:
        """The answer to a request, and whether it was given before. Verbs that `work` calls become part of one
        transaction; what it raises leaves nothing behind, and the key is as if it had not been used. It is called again
        where history had no partition for what it wrote, which is made by then."""
        for _ in range(MAX_MISSING_PARTITIONS):
            try:
                return await self._once(key, digest, work, tenant=tenant, idle=idle)
            except MissingHistoryPartition:
                continue
        return await self._once(key, digest, work, tenant=tenant, idle=idle)

    async def _once(
        self, key: str, digest: bytes, work: Callable[[], Awaitable[Answer]], *, tenant: int, idle: timedelta
    ) -> tuple[Answer, bool]:
        async with self._database.joined() as connection:
            limit = f"{idle // timedelta(milliseconds=1)}ms"
            (row,) = await connection.fetch(sql.request.LOCK.text, _lock_number(tenant, key), limit)
            if not row["held"]:
                raise UnderWay(f"A request with the idempotency key {key!r} is under way: wait for its end.")
            found = await connection.fetch(sql.request.READ.text, tenant, key, KEPT)
            if found and found[0]["digest"] != digest:
                raise OtherRequest(
                    f"The idempotency key {key!r} was used for another request: use a new one for each request."
                )
            if found:
                (kept,) = found
                return Answer(kept["status"], msgspec.json.decode(kept["headers"]), kept["body"]), True
            answer = await work()
            headers = msgspec.json.encode(answer.headers).decode()
            await connection.fetch(sql.request.STORE.text, tenant, key, digest, answer.status, headers, answer.body)
            return answer, False

    async def forget(self, at: datetime | None = None) -> int:
        """Remove answers that were kept long enough; how many there were. `at`: the time as the caller knows it."""
        return len(await self._database.fetch(PoolName.WORK, sql.request.PURGE, KEPT, FORGOTTEN_AT_ONCE, at))


def _lock_number(tenant: int, key: str) -> int:
    digest = hashlib.blake2b(f"{tenant}:{key}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
