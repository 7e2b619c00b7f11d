"""The audit log: events of changes, written in the transaction of the change, and the chain of their hashes.

Who makes a change is known at the door: the API, the dashboard, a command, the registration of an app. `acting` keeps
it for everything that happens inside, so that no verb has to pass it on. Without it, the change is one of the node
itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import NamedTuple

import msgspec

from detent.contract.audit_event import AuditChain, AuditEvent, EventActor, EventObject
from detent.domain.audit_chain import digests
from detent.domain.audit_event import ITSELF, Actor, Facts, NewEvent, shortened
from detent.store import sql
from detent.store.connection import Connection
from detent.store.db import Database, PoolName, Row

CHAINED_AT_ONCE = 200
PURGED_AT_ONCE = 1_000

EventPage = tuple[list[AuditEvent], int | None]

_actor: ContextVar[Actor] = ContextVar("actor", default=ITSELF)


@contextmanager
def acting(actor: Actor) -> Iterator[None]:
    """Changes in this block are made by this actor."""
    before = _actor.set(actor)
    try:
        yield
    finally:
        _actor.reset(before)


async def record(connection: Connection, event: NewEvent) -> None:
    """Write the event of a change, in the transaction that makes it. Every use case calls this for what it changes."""
    await connection.fetch(sql.audit_event.ADD.text, *_columns(event))


class EventFilter(NamedTuple):
    """Which events; None: all. `action` is the beginning of one; `actor` and `object` are an id or a name."""

    action: str | None = None
    actor: str | None = None
    object: str | None = None
    since: datetime | None = None
    until: datetime | None = None


EVERYTHING = EventFilter()


class AuditLogStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, event: NewEvent) -> None:
        """Record an event that belongs to no single change: a refusal, or the start of a bulk change."""
        await self._database.fetch(PoolName.REQUEST, sql.audit_event.ADD, *_columns(event))

    async def list(
        self,
        which: EventFilter = EVERYTHING,
        *,
        tenant: int | None,
        cluster: bool = False,
        below: int | None = None,
        limit: int = 50,
    ) -> EventPage:
        """From the newest to the oldest, and the value to pass as `below` for the next page (None: the last one).
        `tenant` None: of all tenants; `cluster`: also events that concern no tenant."""
        arguments = (tenant, cluster, below, limit + 1, *which)
        async with self._database.connection(PoolName.REQUEST) as connection, connection.transaction(readonly=True):
            await connection.fetch(sql.database.LIMIT_READER.text)
            rows = await connection.fetch(sql.audit_event.LIST.text, *arguments)
        return [_event(row) for row in rows[:limit]], rows[limit - 1]["id"] if len(rows) > limit else None

    # -- the chain

    async def chain(self) -> AuditChain:
        (row,) = await self._database.fetch(PoolName.REQUEST, sql.audit_event.READ_CHAIN)
        return _chain(row)

    async def in_chain(self, *, after: int = 0, limit: int = 500) -> EventPage:
        """Events in the order of the chain, and the value to pass as `after` for the next page (None: the last one)."""
        rows = await self._database.fetch(PoolName.REQUEST, sql.audit_event.LIST_CHAIN, after, limit + 1)
        return [_event(row) for row in rows[:limit]], rows[limit - 1]["position"] if len(rows) > limit else None

    async def extend_chain(self) -> int:
        """Chain the oldest events that are not chained yet; returns how many. Any node may: one of them succeeds."""
        (ends,) = await self._database.fetch(PoolName.REQUEST, sql.audit_event.READ_CHAIN)
        rows = await self._database.fetch(PoolName.REQUEST, sql.audit_event.LIST_UNCHAINED, CHAINED_AT_ONCE)
        if not rows:
            return 0
        hashes = list(digests(ends["head_hash"], [_event(row).facts for row in rows]))
        ids = [row["id"] for row in rows]
        (done,) = await self._database.fetch(PoolName.REQUEST, sql.audit_event.CHAIN, ends["head"], ids, hashes)
        return int(done["chained"])

    async def purge(self, days: int, at: datetime | None = None) -> int:
        """Remove the oldest chained events, some at a time; returns how many. This is an event, too, which the function
        of the database writes. `at`: the time of the caller's clock."""
        (done,) = await self._database.fetch(PoolName.REQUEST, sql.audit_event.PURGE, days, at, PURGED_AT_ONCE)
        return int(done["removed"])


def _columns(event: NewEvent) -> tuple[object, ...]:
    actor = _actor.get()
    return (
        event.tenant, actor.kind, actor.id, actor.name, actor.address, event.action, event.kind, event.id, event.name,
        _json(event.before), _json(event.after), actor.request_id,
    )  # fmt: skip


def _json(facts: Facts | None) -> str | None:
    return None if facts is None else msgspec.json.encode(shortened(facts)).decode()


def _event(row: Row) -> AuditEvent:
    return AuditEvent(
        id=row["id"],
        at=row["at"],
        tenant=row["tenant_name"],
        tenant_number=row["tenant"],
        actor=EventActor(kind=row["actor_kind"], id=row["actor_id"], name=row["actor_name"]),
        address=row["address"],
        action=row["action"],
        object=EventObject(kind=row["object_kind"], id=row["object_id"], name=row["object_name"]),
        before=_read(row["before"]),
        after=_read(row["after"]),
        request_id=row["request_id"],
        position=row["position"],
        hash=None if row["hash"] is None else row["hash"].hex(),
        previous_hash=None if row["previous_hash"] is None else row["previous_hash"].hex(),
    )


def _read(text: str | None) -> object:
    return None if text is None else msgspec.json.decode(text)


def _chain(row: Row) -> AuditChain:
    return AuditChain(
        head=row["head"],
        head_hash=row["head_hash"].hex(),
        purged=row["purged"],
        purged_hash=row["purged_hash"].hex(),
        unchained=row["unchained"],
        unchained_seconds=0.0 if row["unchained_age"] is None else max(row["unchained_age"].total_seconds(), 0.0),
    )
