"""Tenants: who shares this server, how much each may have, and room for the jobs each is about to register.

A counter that every registration locked until its commit would make them wait for one another. So room is reserved in
a short transaction of its own and used by the one that inserts the jobs. Whatever becomes of the process in between,
either the jobs are there, or the reservation is, and upkeep gives it up later.

That short transaction does not lock the counter either while the tenant is far from its quota: the first one reserves a
thousand jobs ahead, and those that follow take theirs from what is spare. For each tenant the counter equals the jobs
there are plus all reservations, spare ones included, and it never rises above the quota.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from detent.contract.tenant import Tenant
from detent.errors import Conflict, DetentError, NotFound, QuotaReached, Unavailable
from detent.store import sql
from detent.store.connection import Connection
from detent.store.db import Database, PoolName, Row
from detent.store.queues import WHOLE_TENANT, Limits, set_limits
from detent.telemetry.log import logger

log = logger("store")

# Longer than any transaction that registers jobs can take.
GIVEN_UP_AFTER = timedelta(minutes=10)
COUNTED_AT_ONCE = 100
# How many jobs are reserved ahead, for which registrations, and how far from the quota.
AHEAD = 1_000
AHEAD_FOR = 100
FAR = 16 * AHEAD

TenantPage = tuple[list[Tenant], int | None]


class Room(NamedTuple):
    """Room for jobs: their numbers, and how large their payloads may be."""

    reservation: int | None
    numbers: list[int]
    now: datetime
    max_payload_bytes: int


class TenantStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    # -- tenants and their quotas

    async def add(self, name: str) -> Tenant:
        if not await self._database.fetch(PoolName.REQUEST, sql.tenant.ADD, name):
            raise Conflict(f"There is already a tenant {name!r}: choose another name.")
        return await self.get(name)

    async def get(self, name: str) -> Tenant:
        rows = await self._database.fetch(PoolName.REQUEST, sql.tenant.LIST, 0, 1, name)
        if not rows:
            raise no_tenant(name)
        return _tenant(rows[0])

    async def list(self, *, after: int = 0, limit: int = 50) -> TenantPage:
        """In the order of their creation, and what to pass as `after` for more (None: these were all)."""
        rows = await self._database.fetch(PoolName.REQUEST, sql.tenant.LIST, after, limit + 1, None)
        return [_tenant(row) for row in rows[:limit]], rows[limit - 1]["tenant"] if len(rows) > limit else None

    async def number(self, name: str) -> int | None:
        rows = await self._database.fetch(PoolName.REQUEST, sql.tenant.LIST, 0, 1, name)
        return rows[0]["tenant"] if rows else None

    async def change(self, name: str, quotas: Mapping[str, Any]) -> Tenant:
        """Change some quotas; None takes a limit away."""

        async def write(connection: Connection) -> None:
            if not await connection.fetch(sql.tenant.LOCK.text, name):
                raise no_tenant(name)
            (row,) = await connection.fetch(sql.tenant.LIST.text, 0, 1, name)
            new = {**row, **quotas}
            await connection.fetch(
                sql.tenant.CHANGE.text, new["tenant"], new["max_jobs"], new["max_payload_bytes"], new["weight"] or 1
            )
            limits = Limits(new["max_concurrent"], new["max_runs_per_second"])
            await set_limits(connection, new["tenant"], WHOLE_TENANT, limits)

        await self._database.transaction(PoolName.REQUEST, write)
        return await self.get(name)

    # -- the count of jobs, put right

    async def give_up_reservations(self) -> int:
        """Room that was reserved long ago and never used; for how many jobs that were not registered in the end."""
        rows = await self._database.fetch(PoolName.REQUEST, sql.tenant.CANCEL_OLD_RESERVATIONS, GIVEN_UP_AFTER)
        return sum(row["lost"] for row in rows)

    async def recount(self) -> int:
        """Compare what is counted with what there is, tenant by tenant; how many were wrong."""
        wrong, last = 0, 0
        while rows := await self._database.fetch(PoolName.REQUEST, sql.tenant.LIST, last, COUNTED_AT_ONCE, None):
            for row in rows:
                wrong += await self._recount_one(row["tenant"])
            last = rows[-1]["tenant"]
        return wrong

    async def _recount_one(self, tenant: int) -> bool:
        rows = await self._database.fetch(PoolName.REQUEST, sql.tenant.RECOUNT_JOBS, tenant)
        if not rows or rows[0]["counted"] == rows[0]["found"]:
            return False
        difference = rows[0]["found"] - rows[0]["counted"]
        log.warning("the count of a tenant's jobs was wrong", tenant=tenant, by=-difference)
        await self._database.fetch(PoolName.REQUEST, sql.tenant.CORRECT_JOB_COUNT, tenant, difference)
        return True


@asynccontextmanager
async def room_for(database: Database, tenant: int, jobs: int, server_limit: int) -> AsyncIterator[Room]:
    """Reserve room; what fails inside gives it back. The insert uses it with `use_room`, in its own transaction."""
    room = await _reserve(database, tenant, jobs, server_limit)
    try:
        yield room
    except BaseException:
        if room.reservation is not None:
            await _give_up(database, room.reservation)
        raise


async def _reserve(database: Database, tenant: int, jobs: int, server_limit: int) -> Room:
    # On a connection of its own, also inside the caller's transaction: the lock must not outlive the statement.
    asked = (tenant, jobs, AHEAD if jobs <= AHEAD_FOR else 0, FAR)
    (row,) = await database.fetch(PoolName.SEPARATE, sql.tenant.RESERVE_JOBS, *asked)
    if jobs and row["reservation"] is None:
        await database.fetch(PoolName.SEPARATE, sql.tenant.RECLAIM_RESERVATIONS, tenant)
        (row,) = await database.fetch(PoolName.SEPARATE, sql.tenant.RESERVE_JOBS, *asked)
    if jobs and row["reservation"] is None:
        (found,) = await database.fetch(PoolName.SEPARATE, sql.tenant.READ_JOB_QUOTA, tenant)
        raise jobs_reached(jobs, found["jobs"], found["max_jobs"], found["name"])
    limit = _smaller(server_limit, row["max_payload_bytes"])
    return Room(row["reservation"], list(row["numbers"]), row["now"], limit)


async def _give_up(database: Database, reservation: int) -> None:
    try:
        await database.fetch(PoolName.SEPARATE, sql.tenant.CANCEL_RESERVATION, reservation)
    except DetentError as error:
        log.warning("room for jobs not given back; that is done later", reservation=reservation, error=str(error))


async def payload_limit(database: Database, tenant: int, server_limit: int) -> int:
    """How large a payload of this tenant's may be, where no room is reserved."""
    rows = await database.fetch(PoolName.REQUEST, sql.tenant.READ_PAYLOAD_LIMIT, tenant)
    return _smaller(server_limit, rows[0]["max_payload_bytes"] if rows else None)


async def use_room(connection: Connection, room: Room) -> None:
    """The jobs are inserted in this transaction: what was reserved for them is used."""
    if room.reservation is None:
        return
    if not await connection.fetch(sql.tenant.USE_RESERVATION.text, room.reservation):
        raise Unavailable("Registering these jobs took too long, and nothing was registered: try again, with fewer.")


def jobs_reached(asked: int, used: int, limit: int | None, tenant: str) -> QuotaReached:
    more = "one more" if asked == 1 else f"{asked} more"
    return QuotaReached(
        f"The tenant {tenant!r} has {used} jobs and may have {limit}, so {more} cannot be registered: delete some, or "
        f"ask an administrator of the server, who can raise it with `detent tenant quota {tenant} --jobs N`.",
        limit=limit or 0,
        used=used,
    )


def no_tenant(name: str) -> NotFound:
    return NotFound(f"There is no tenant {name!r}: `detent tenant list` shows those there are.")


def _smaller(server_limit: int, tenant_limit: int | None) -> int:
    return server_limit if tenant_limit is None else min(server_limit, tenant_limit)


def _tenant(row: Row) -> Tenant:
    return Tenant(**{name: row[name] for name in Tenant.__struct_fields__})
