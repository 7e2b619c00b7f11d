"""Runs as people see them: look up, list, cancel."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from detent.contract.run import Attempt, Run
from detent.domain.identity import EPOCH, RunKey, run_id
from detent.domain.states import RunStatus
from detent.errors import Conflict, NotFound
from detent.store import sql
from detent.store.connection import Connection
from detent.store.db import Database, PoolName, Row
from detent.store.history import NEWEST, Query, few_jobs, newest_runs
from detent.store.job_search import Moment
from detent.store.jobs import DEFAULT_TENANT
from detent.store.live import promote_on
from detent.store.run_rows import Origin, attempt_of, run_of, status_of
from detent.store.upkeep import RUNS_CHANNEL

MICROSECOND = timedelta(microseconds=1)

RunPage = tuple[list[Run], RunKey | None]


class RunStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, key: RunKey, *, tenant: int = DEFAULT_TENANT) -> Run | None:
        async with self._database.connection(PoolName.REQUEST) as connection:
            rows = await connection.fetch(sql.run.READ.text, *key, tenant)
            if not rows:
                return None
            (run,) = await documents(connection, rows)
            own = await connection.fetch(sql.run.READ_PAYLOAD.text, key.job, key.scheduled_at) if key.manual else []
        return msgspec.structs.replace(run, payload=msgspec.json.decode(own[0]["payload"])) if own else run

    async def list(
        self,
        *,
        job: UUID | None = None,
        status: Collection[RunStatus] = (),
        since: Moment | None = None,
        until: Moment | None = None,
        after: RunKey | None = None,
        limit: int = 50,
        tenant: int = DEFAULT_TENANT,
    ) -> RunPage:
        """Runs from the newest tick to the oldest, of one job or of all, and the key to pass as `after` for more.

        `status` may name several; none means any. `since` and `until` bound the tick, as times or from now on. The key
        may be there although the page is not full, and is None only at the end."""
        number = None if job is None else await number_of(self._database, job, tenant)
        # One snapshot, so that a run that is settled meanwhile is seen once: live or finished.
        async with (
            self._database.connection(PoolName.REQUEST) as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            await connection.fetch(sql.database.LIMIT_READER.text)
            jobs = await few_jobs(connection, tenant) if number is None else [number]
            (clock,) = await connection.fetch(sql.database.CLOCK.text)
            floor = EPOCH if since is None else max(_time(since, clock["now"]) - MICROSECOND, EPOCH)
            first = NEWEST if until is None else NEWEST._replace(scheduled_at=_time(until, clock["now"]))
            query = Query(tenant, jobs, frozenset(status) or None, after or first, limit, floor)
            rows, following = await newest_runs(connection, query)
            return await documents(connection, rows), following

    async def cancel(self, key: RunKey, *, tenant: int = DEFAULT_TENANT) -> RunStatus:
        """Cancelled: it had not started. Running: its node was asked to stop it."""
        status: RunStatus = await self._database.transaction(PoolName.REQUEST, lambda c: _cancel(c, key, tenant))
        return status


def _time(moment: Moment, now: datetime) -> datetime:
    return moment if isinstance(moment, datetime) else now + moment


async def number_of(database: Database, job_id: UUID, tenant: int) -> int:
    """The number of a job, also of one that was deleted: its runs stay."""
    rows = await database.fetch(PoolName.REQUEST, sql.job.FIND, tenant, job_id, None)
    if not rows:
        raise NotFound(f"There is no job {job_id}: list the jobs to see those there are.")
    return int(rows[0]["job"])


async def _cancel(connection: Connection, key: RunKey, tenant: int) -> RunStatus:
    found = []
    if await connection.fetch(sql.job.CHECK_TENANT.text, key.job, tenant):
        found = await connection.fetch(sql.run.CANCEL.text, [key.job], [key.scheduled_at], [key.serial])
    if found and found[0]["owner"] is None:
        if await promote_on(connection, [key.job]):  # one may have waited for this
            await connection.fetch(sql.feed.NOTIFY.text, RUNS_CHANNEL, "ready")
        return RunStatus.CANCELLED
    if found:
        await connection.fetch(sql.feed.NOTIFY.text, RUNS_CHANNEL, "cancel")
        return RunStatus.RUNNING
    rows = await connection.fetch(sql.run.READ.text, *key, tenant)
    if not rows:
        raise NotFound(f"There is no run {run_id(key)}: list the runs to see those there are.")
    status = status_of(rows[0])
    if status is not RunStatus.CANCELLED:
        raise Conflict(f"The run {run_id(key)} is already {status}: there is nothing left to cancel.")
    return status


async def documents(connection: Connection, rows: Sequence[Row]) -> list[Run]:
    if not rows:
        return []
    revisions = {(row["job"], row["revision"]) for row in rows}
    found = await connection.fetch(sql.run.READ_JOBS.text, *zip(*revisions, strict=True))
    origins = {
        (row["job"], row["revision"]): Origin(row["id"], row["name"], row["template"], row["timezone"] or "UTC")
        for row in found
    }
    keys = [(row["job"], row["scheduled_at"], row["serial"]) for row in rows]
    kept: dict[int, list[Attempt]] = {}
    tried = await connection.fetch(sql.run.LIST_ATTEMPTS.text, *zip(*keys, strict=True))
    workers = await _workers(connection, {row["node"] for row in (*rows, *tried)})
    for row in tried:
        kept.setdefault(row["position"], []).append(attempt_of(row, workers))
    return [
        run_of(row, origins[row["job"], row["revision"]], kept.get(position, []), workers)
        for position, row in enumerate(rows, 1)
    ]


async def _workers(connection: Connection, nodes: set[int | None]) -> dict[int, str]:
    """The names of those among the owners that pull: their numbers are below zero, since they are no nodes."""
    pulling = [-node for node in nodes if node is not None and node < 0]
    if not pulling:
        return {}
    return {-row["worker"]: row["name"] for row in await connection.fetch(sql.pull.LIST_WORKER_NAMES.text, pulling)}
