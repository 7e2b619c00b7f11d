"""Tenants, their quotas, and reservations against the quota for jobs that are about to be registered.

If every registration locked the tenant's counter until its commit, registrations would wait for one another. So a short
transaction reserves part of the quota, and the transaction that inserts the jobs uses the reservation. If the process
fails in between, the reservation remains without jobs, and upkeep releases it later.

While the tenant is far from its quota, that short transaction does not lock the counter either: the first one reserves
a thousand jobs ahead, and the following ones take theirs from the spare reservation. For each tenant the counter equals
its jobs plus all reservations, including spare ones, and never exceeds the quota.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from detent.contract.tenant import Tenant, TenantDeletion
from detent.domain.audit_event import NewEvent, changed
from detent.domain.job import TopicTarget
from detent.domain.references import target_references
from detent.domain.secret_ref import provider_of
from detent.domain.target_access import AllowLists
from detent.errors import (
    DetentError,
    JobQuotaReached,
    StorageQuotaReached,
    TenantExists,
    TenantNotFound,
    Unavailable,
)
from detent.store import sql
from detent.store.audit_log import record
from detent.store.connection import Connection
from detent.store.db import Database, LockTimeout, PoolName, Row
from detent.store.queues import WHOLE_TENANT, RunLimits, set_limits
from detent.store.secrets import keep
from detent.telemetry.log import logger

log = logger("store")

# Longer than any transaction that registers jobs can take.
GIVEN_UP_AFTER = timedelta(minutes=10)
COUNTED_AT_ONCE = 100
MEASURED_AT_ONCE = 50
# Requests may wait for the rules; after that the last ones apply.
RULES_SECONDS = 2.0
# How many jobs are reserved ahead, up to which size of registration, and how far from the quota.
AHEAD = 1_000
AHEAD_FOR = 100
FAR = 16 * AHEAD

TenantPage = tuple[list[Tenant], int | None]
TargetEdit = Callable[[Sequence[str]], Sequence[str]]

# What the audit log says about a change.
RECORDED = (
    "max_jobs",
    "max_payload_bytes",
    "max_concurrent",
    "max_runs_per_second",
    "max_storage_bytes",
    "requests_per_second",
    "weight",
    "allow_targets",
    "signing",
    "dead_letter_topic",
)


class TenantQuota(NamedTuple):
    """Quota of a tenant reserved for new jobs: their numbers, and the largest payload they may have."""

    tenant: int
    reservation: int | None
    numbers: list[int]
    now: datetime
    max_payload_bytes: int


class TenantRule(NamedTuple):
    """What differs from the rules of the server for the requests of a tenant."""

    name: str
    suspended: bool
    requests_per_second: float | None


class TenantStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    # -- tenants and their quotas

    async def add(self, name: str) -> Tenant:

        async def write(connection: Connection) -> None:
            added = await connection.fetch(sql.tenant.ADD.text, name)
            if not added:
                raise TenantExists(name)
            await record(connection, NewEvent("tenant.create", added[0]["tenant"], "tenant", name, name))

        await self._database.transaction(PoolName.REQUEST, write)
        return await self.get(name)

    async def get(self, name: str) -> Tenant:
        rows = await self._database.fetch(PoolName.REQUEST, sql.tenant.LIST, 0, 1, name)
        if not rows:
            raise TenantNotFound(name)
        return _tenant(rows[0])

    async def list(self, *, after: int = 0, limit: int = 50) -> TenantPage:
        """In order of creation, and the value to pass as `after` for the next page (None: the last one)."""
        rows = await self._database.fetch(PoolName.REQUEST, sql.tenant.LIST, after, limit + 1, None)
        return [_tenant(row) for row in rows[:limit]], rows[limit - 1]["tenant"] if len(rows) > limit else None

    async def name_of(self, tenant: int, *, pool: PoolName = PoolName.WORK) -> str:
        (row,) = await self._database.fetch(pool, sql.tenant.READ_NAME, tenant)
        return str(row["name"])

    async def number(self, name: str) -> int | None:
        rows = await self._database.fetch(PoolName.REQUEST, sql.tenant.LIST, 0, 1, name)
        return rows[0]["tenant"] if rows else None

    async def change(
        self, name: str, quotas: Mapping[str, Any], edit: TargetEdit | None = None, by: str | None = None
    ) -> Tenant:
        """Change some quotas, where None removes a limit, the signing secret, the dead-letter topic, and the allow list
        to what `edit` makes of it; all or none, under a lock against other changes. MissingSecrets: the tenant does not
        have one of those secrets."""

        async def write(connection: Connection) -> None:
            if not await connection.fetch(sql.tenant.LOCK.text, name):
                raise TenantNotFound(name)
            (row,) = await connection.fetch(sql.tenant.LIST.text, 0, 1, name)
            new = {**row, **quotas}
            if quotas:
                await _set_quotas(connection, new)
            if "signing" in quotas:
                await _set_signing(connection, new)
            if "dead_letter_topic" in quotas:
                new["dead_letter_topic"] = await _set_dead_letter_topic(connection, new)
            if edit is not None:
                new["allow_targets"] = await _set_targets(connection, row["tenant"], row["allow_targets"], edit, by)
            before, after = changed(
                {field: row[field] for field in RECORDED}, {field: new[field] for field in RECORDED}
            )
            if after:
                await record(connection, NewEvent("tenant.change", row["tenant"], "tenant", name, name, before, after))

        await self._database.transaction(PoolName.REQUEST, write)
        return await self.get(name)

    # -- which addresses their jobs may call

    async def allow_lists(self, *, pool: PoolName = PoolName.WORK) -> AllowLists:
        """What every process that calls addresses has to know."""
        rows = await self._database.fetch(pool, sql.tenant.READ_ALLOW_LISTS)
        patterns = {row["tenant"]: tuple(row["patterns"]) for row in rows if row["tenant"] is not None}
        return AllowLists(any(row["keyed"] for row in rows), patterns)

    # -- what their requests may do

    async def rules(self) -> dict[int, TenantRule]:
        """Of the tenants that have any: what every process that answers requests has to know."""
        rows = await self._database.fetch_within(RULES_SECONDS, PoolName.REQUEST, sql.tenant.READ_RULES)
        return {row["tenant"]: TenantRule(row["name"], row["suspended"], row["requests_per_second"]) for row in rows}

    # -- how much they store

    async def limited_storage(self) -> Sequence[int]:
        """Tenants whose storage is limited."""
        rows = await self._database.fetch(PoolName.REQUEST, sql.tenant.LIST_LIMITED_STORAGE)
        return [row["tenant"] for row in rows]

    async def measure_storage(self, tenant: int) -> AsyncIterator[int]:
        """Measure what a tenant stores, some jobs at a time, and record it at the end; yields the bytes so far."""
        job, size, at_once = 0, 0, MEASURED_AT_ONCE
        while True:
            try:
                (row,) = await self._database.fetch(PoolName.REQUEST, sql.tenant.MEASURE_STORAGE, tenant, job, at_once)
            except LockTimeout:
                if at_once == 1:
                    raise
                at_once = 1  # so many together have too much history for one statement
                continue
            if row["last"] is None:
                break
            job, size = row["last"], size + row["bytes"]
            yield size
        await self._database.fetch(PoolName.REQUEST, sql.tenant.RECORD_STORAGE, tenant, size)

    # -- correcting the count of jobs

    async def release_stale(self) -> int:
        """Release reservations that no registration used in time; for how many jobs."""
        rows = await self._database.fetch(PoolName.REQUEST, sql.tenant.CANCEL_OLD_RESERVATIONS, GIVEN_UP_AFTER)
        return sum(row["lost"] for row in rows)

    async def recount(self) -> int:
        """Compare each tenant's counter with its jobs and correct it; how many were wrong."""
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
        log.warning("corrected the job count of a tenant", tenant=tenant, by=-difference)
        await self._database.fetch(PoolName.REQUEST, sql.tenant.CORRECT_JOB_COUNT, tenant, difference)
        return True


async def _set_quotas(connection: Connection, new: Mapping[str, Any]) -> None:
    plain = (new["max_jobs"], new["max_payload_bytes"], new["weight"] or 1)
    newer = (new["max_storage_bytes"], new["requests_per_second"])
    await connection.fetch(sql.tenant.CHANGE.text, new["tenant"], *plain, *newer)
    limits = RunLimits(new["max_concurrent"], new["max_runs_per_second"])
    await set_limits(connection, new["tenant"], WHOLE_TENANT, limits)


async def _set_signing(connection: Connection, new: Mapping[str, Any]) -> None:
    await keep(connection, new["tenant"], [] if new["signing"] is None else [new["signing"]])
    await connection.fetch(sql.tenant.SET_SIGNING.text, new["name"], new["signing"])


async def _set_dead_letter_topic(connection: Connection, new: Mapping[str, Any]) -> str | None:
    """The topic as JSON, whose secrets are kept from now on."""
    topic: TopicTarget | None = new["dead_letter_topic"]
    names = {one.name for one in target_references(topic)} if topic is not None else set()
    await keep(connection, new["tenant"], sorted(name for name in names if provider_of(name)[0] == "stored"))
    text = None if topic is None else msgspec.json.encode(topic).decode()
    await connection.fetch(sql.tenant.SET_DEAD_LETTER_TOPIC.text, new["name"], text)
    return text


async def _set_targets(
    connection: Connection, tenant: int, before: Sequence[str], edit: TargetEdit, by: str | None
) -> list[str]:
    after = list(edit(before))
    gone = [pattern for pattern in before if pattern not in after]
    await connection.fetch(sql.tenant.DISALLOW_TARGETS.text, tenant, gone)
    await connection.fetch(sql.tenant.ALLOW_TARGETS.text, tenant, after, by)
    return after


@asynccontextmanager
async def reserved(database: Database, tenant: int, jobs: int, server_limit: int) -> AsyncIterator[TenantQuota]:
    """Reserve quota for this many jobs; an error in the block releases it. The transaction that inserts the jobs calls
    `use_quota`."""
    quota = await _reserve(database, tenant, jobs, server_limit)
    try:
        yield quota
    except BaseException:
        if quota.reservation is not None:
            await _release(database, quota.reservation)
        raise


async def _reserve(database: Database, tenant: int, jobs: int, server_limit: int) -> TenantQuota:
    # On a separate connection, even inside the caller's transaction: the lock must not outlive the statement.
    asked = (tenant, jobs, AHEAD if jobs <= AHEAD_FOR else 0, FAR)
    (row,) = await database.fetch(PoolName.SEPARATE, sql.tenant.RESERVE_JOBS, *asked)
    if jobs and row["reservation"] is None:
        await database.fetch(PoolName.SEPARATE, sql.tenant.RECLAIM_RESERVATIONS, tenant)
        (row,) = await database.fetch(PoolName.SEPARATE, sql.tenant.RESERVE_JOBS, *asked)
    if jobs and row["reservation"] is None:
        (found,) = await database.fetch(PoolName.SEPARATE, sql.tenant.READ_JOB_QUOTA, tenant)
        most, stored = found["max_storage_bytes"], found["storage_bytes"]
        if most is not None and stored is not None and stored >= most:
            raise StorageQuotaReached(used=stored, limit=most, tenant=found["name"])
        raise JobQuotaReached(jobs, used=found["jobs"], limit=found["max_jobs"] or 0, tenant=found["name"])
    limit = _smaller(server_limit, row["max_payload_bytes"])
    return TenantQuota(tenant, row["reservation"], list(row["numbers"]), row["now"], limit)


async def _release(database: Database, reservation: int) -> None:
    try:
        await database.fetch(PoolName.SEPARATE, sql.tenant.CANCEL_RESERVATION, reservation)
    except DetentError as error:
        log.warning("reserved quota not released; upkeep releases it later", reservation=reservation, error=str(error))


async def payload_limit(database: Database, tenant: int, server_limit: int) -> int:
    """The largest payload of this tenant, where no quota is reserved."""
    rows = await database.fetch(PoolName.REQUEST, sql.tenant.READ_PAYLOAD_LIMIT, tenant)
    return _smaller(server_limit, rows[0]["max_payload_bytes"] if rows else None)


async def use_quota(connection: Connection, quota: TenantQuota) -> None:
    """Turn the reservation into jobs, in the transaction that inserts them."""
    if quota.reservation is None:
        return
    if not await connection.fetch(sql.tenant.USE_RESERVATION.text, quota.reservation):
        raise Unavailable("Registering these jobs took too long, and none was registered: try again with fewer.")


def _smaller(server_limit: int, tenant_limit: int | None) -> int:
    return server_limit if tenant_limit is None else min(server_limit, tenant_limit)


def _tenant(row: Row) -> Tenant:
    deletion = None
    if row["deleting_at"] is not None:
        deleted = msgspec.json.decode(row["deleted_rows"], type=dict[str, int])
        deletion = TenantDeletion(requested_at=row["deleting_at"], by=row["deleting_by"], deleted=deleted)
    fields = {name: row[name] for name in Tenant.__struct_fields__ if name != "deletion"}
    if fields["dead_letter_topic"] is not None:
        fields["dead_letter_topic"] = msgspec.json.decode(fields["dead_letter_topic"], type=TopicTarget)
    return Tenant(**fields, deletion=deletion)
