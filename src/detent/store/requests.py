"""Idempotent requests: a repeated request gets the stored answer and is not executed again.

The work of a request and its stored answer are one transaction, so a crash leaves both or neither. While a request is
executed, an advisory lock of the same transaction keeps out others with its key: it leaves nothing to clean up.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from detent.errors import IdempotencyKeyReused, RequestInProgress
from detent.store import sql
from detent.store.db import MAX_MISSING_PARTITIONS, Database, MissingHistoryPartition, PoolName, StalePlan

ANSWERS_KEPT_FOR = timedelta(hours=24)
PURGE_BATCH = 1_000


class StoredAnswer(NamedTuple):
    """An answer as it was sent."""

    status: int
    headers: dict[str, str]
    body: bytes


class RequestStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def once(
        self,
        key: str,
        digest: bytes,
        work: Callable[[], Awaitable[StoredAnswer]],
        *,
        tenant: int,
        idle: timedelta,
        registers: bool = False,
    ) -> tuple[StoredAnswer, bool]:
        """The answer to a request, and whether it was stored before. Verbs that `work` calls join one transaction; if
        it raises, nothing is kept and the key counts as unused. It is called again if history had no partition for what
        it wrote, which exists by then, or if a migration changed what a prepared statement returns. `registers`: `work`
        registers jobs."""
        for _ in range(MAX_MISSING_PARTITIONS):
            try:
                return await self._once(key, digest, work, tenant=tenant, idle=idle, registers=registers)
            except (MissingHistoryPartition, StalePlan):
                continue
        return await self._once(key, digest, work, tenant=tenant, idle=idle, registers=registers)

    async def _once(
        self,
        key: str,
        digest: bytes,
        work: Callable[[], Awaitable[StoredAnswer]],
        *,
        tenant: int,
        idle: timedelta,
        registers: bool,
    ) -> tuple[StoredAnswer, bool]:
        async with self._database.joined(registers_for=tenant if registers else None) as connection:
            limit = f"{idle // timedelta(milliseconds=1)}ms"
            (row,) = await connection.fetch(sql.request.LOCK.text, _lock_number(tenant, key), limit)
            if not row["held"]:
                raise RequestInProgress(key)
            found = await connection.fetch(sql.request.READ.text, tenant, key, ANSWERS_KEPT_FOR)
            if found and found[0]["digest"] != digest:
                raise IdempotencyKeyReused(key)
            if found:
                (kept,) = found
                return StoredAnswer(kept["status"], msgspec.json.decode(kept["headers"]), kept["body"]), True
            answer = await work()
            headers = msgspec.json.encode(answer.headers).decode()
            await connection.fetch(sql.request.STORE.text, tenant, key, digest, answer.status, headers, answer.body)
            return answer, False

    async def purge(self, at: datetime | None = None) -> int:
        """Remove answers that were kept long enough; returns how many. `at`: the time of the caller's clock."""
        return len(await self._database.fetch(PoolName.WORK, sql.request.PURGE, ANSWERS_KEPT_FOR, PURGE_BATCH, at))


def _lock_number(tenant: int, key: str) -> int:
    digest = hashlib.blake2b(f"{tenant}:{key}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
