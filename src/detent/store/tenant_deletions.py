"""The deletion of a tenant with everything that it owns, in steps.

Each step is a short transaction that locks the tenant, deletes some rows and adds their number to the progress. So a
node that dies leaves nothing half done, any node continues with the next step, and two nodes do not wait for each
other: the second one finds the tenant locked and leaves it alone.

Audit events are the only rows that stay. What a partition of history took along when it was archived stays in the
archive.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta

import msgspec

from detent.domain.audit_event import NewEvent
from detent.store import sql
from detent.store.audit_log import record
from detent.store.connection import Connection
from detent.store.db import Database, PoolName, Row
from detent.store.live_runs import cancel_runs
from detent.store.run_rows import key_of
from detent.store.statement import Statement

JOBS_AT_ONCE = 200
ROWS_AT_ONCE = 5_000

Step = Callable[[Connection, Row], Awaitable[bool]]


class TenantDeletionStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def contents(self, *, tenant: int) -> dict[str, int]:
        """How many rows a tenant owns, by table."""
        found: Counter[str] = Counter()
        job = 0
        while True:
            jobs = await self._fetch(sql.tenant.LIST_JOBS, tenant, job, JOBS_AT_ONCE)
            if not jobs:
                break
            job = jobs[-1]["job"]
            found.update(_counted(await self._fetch(sql.tenant.COUNT_OF_JOBS, [row["job"] for row in jobs])))
        found.update(_counted(await self._fetch(sql.tenant.COUNT_REST, tenant)))
        return {name: found[name] for name in sorted(found)}

    async def under_way(self, age: timedelta) -> list[int]:
        """Tenants whose deletion was requested at least so long ago."""
        return [row["tenant"] for row in await self._fetch(sql.tenant.LIST_DELETING, age)]

    # -- steps: whether there is more to do of the same kind, now

    async def end_jobs(self, tenant: int) -> bool:
        """No tick of these jobs fires any more."""

        async def work(connection: Connection, row: Row) -> bool:
            return bool(await connection.fetch(sql.tenant.END_JOBS.text, tenant, JOBS_AT_ONCE))

        return await self._step(tenant, work)

    async def end_runs(self, tenant: int) -> bool:
        """Cancel runs that wait, and ask the others to stop."""

        async def work(connection: Connection, row: Row) -> bool:
            runs = await connection.fetch(sql.tenant.LIST_OPEN_RUNS.text, tenant, JOBS_AT_ONCE)
            await cancel_runs(connection, [key_of(run) for run in runs])
            return bool(runs)

        return await self._step(tenant, work)

    async def open_runs(self, tenant: int) -> int:
        """Runs that workers have been asked to stop, and that have not ended."""
        (row,) = await self._fetch(sql.tenant.COUNT_OPEN_RUNS, tenant)
        return int(row["runs"])

    async def delete_jobs(self, tenant: int) -> bool:
        """Delete some waiting runs and history of some jobs, or, when they have none left, the jobs."""

        async def work(connection: Connection, row: Row) -> bool:
            rows = await connection.fetch(sql.tenant.LIST_ENDED_JOBS.text, tenant, JOBS_AT_ONCE)
            jobs = [each["job"] for each in rows]
            await connection.execute(sql.database.PREFER_INDEX.text)
            gone = _counted(await connection.fetch(sql.tenant.DELETE_WAITING.text, jobs, ROWS_AT_ONCE))
            gone += _counted(await connection.fetch(sql.tenant.DELETE_HISTORY.text, jobs, ROWS_AT_ONCE))
            if jobs and not any(gone.values()):
                gone = _counted(await connection.fetch(sql.tenant.DELETE_JOBS.text, jobs))
            await _add(connection, row, gone)
            return any(gone.values())

        return await self._step(tenant, work)

    async def finish(self, tenant: int) -> bool:
        """Delete the rest, and the tenant with it once it owns nothing else."""

        async def work(connection: Connection, row: Row) -> bool:
            gone = _counted(await connection.fetch(sql.tenant.DELETE_REST.text, tenant, ROWS_AT_ONCE))
            total = await _add(connection, row, gone)
            if max(gone.values()) >= ROWS_AT_ONCE:
                return True
            if await connection.fetch(sql.tenant.LIST_JOBS.text, tenant, 0, 1):
                return False  # they were registered while the tenant was suspended: the next pass ends them
            total += _counted(await connection.fetch(sql.tenant.COUNT_REST.text, tenant))
            # Before the tenant is gone, because the event has its name.
            facts = {"rows": sum(total.values()), "requested_by": row["deleting_by"]}
            await record(
                connection, NewEvent("tenant.deleted", tenant, "tenant", row["name"], row["name"], after=facts)
            )
            await connection.fetch(sql.tenant.REMOVE.text, tenant)
            return False

        return await self._step(tenant, work)

    async def _step(self, tenant: int, work: Step) -> bool:
        """False also if another node is at it."""

        async def locked(connection: Connection) -> bool:
            rows = await connection.fetch(sql.tenant.LOCK_DELETING.text, tenant)
            return bool(rows) and await work(connection, rows[0])

        more: bool = await self._database.transaction(PoolName.REQUEST, locked)
        return more

    async def _fetch(self, statement: Statement, *arguments: object) -> list[Row]:
        return await self._database.fetch(PoolName.REQUEST, statement, *arguments)


async def _add(connection: Connection, row: Row, gone: Counter[str]) -> Counter[str]:
    """Add these to the progress of the deletion; what it is then."""
    total = Counter(msgspec.json.decode(row["deleted_rows"], type=dict[str, int])) + gone
    if any(gone.values()):
        await connection.fetch(sql.tenant.RECORD_DELETED.text, row["tenant"], msgspec.json.encode(total).decode())
    return total


def _counted(rows: Iterable[Row]) -> Counter[str]:
    return Counter({row["name"]: row["rows"] for row in rows})
