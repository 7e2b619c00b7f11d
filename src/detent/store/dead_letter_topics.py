"""Dead runs that wait to be forwarded to a topic. History notes them itself, with the run that dies (a trigger)."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from detent.domain.identity import RunKey
from detent.store import sql
from detent.store.db import Database, PoolName, Row


class DeadLetter(NamedTuple):
    """A dead run to forward now. `topic` and `payload` are JSON; None: the job and its tenant have no topic any more,
    or the run had no payload."""

    letter: int
    key: RunKey
    token: int
    attempt: int
    reason: str | None
    finished_at: datetime
    tries: int
    age: timedelta
    job_id: UUID
    job: str
    tenant: int
    timezone: str
    template: str | None
    topic: str | None
    payload: str | None
    error: str | None


class DeadLetterTopicStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def take(self, limit: int, taken_for: timedelta) -> list[DeadLetter]:
        """Some that are due, which no other node takes for this long."""
        rows = await self._database.fetch(PoolName.WORK, sql.dead_letter_topic.TAKE, limit, taken_for)
        return [_letter(row) for row in rows]

    async def end(self, letter: DeadLetter) -> None:
        await self._database.fetch(PoolName.WORK, sql.dead_letter_topic.END, letter.letter)

    async def put_off(self, letter: DeadLetter, pause: timedelta, error: str) -> None:
        arguments = (letter.letter, letter.tries, pause, error)
        await self._database.fetch(PoolName.WORK, sql.dead_letter_topic.POSTPONE, *arguments)

    async def next_due(self) -> float | None:
        """After how many seconds the next one is due; None: none waits."""
        rows = await self._database.fetch(PoolName.WORK, sql.dead_letter_topic.NEXT_DUE)
        return rows[0]["seconds"] if rows else None


def _letter(row: Row) -> DeadLetter:
    return DeadLetter(
        letter=row["letter"],
        key=RunKey(row["job"], row["scheduled_at"], row["serial"]),
        token=row["token"],
        attempt=row["attempt"],
        reason=row["reason"],
        finished_at=row["finished_at"],
        tries=row["tries"],
        age=row["age"],
        job_id=row["id"],
        job=row["name"],
        tenant=row["tenant"],
        timezone=row["timezone"] or "UTC",
        template=row["template"],
        topic=row["topic"],
        payload=row["payload"],
        error=row["error"],
    )
