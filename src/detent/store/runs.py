"""Runs as the documents that the API returns: read one, list them, cancel one."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from detent.contract.run import Attempt, Run
from detent.domain.identity import EPOCH, MANUAL, RunKey
from detent.domain.states import RunStatus
from detent.store import sql
from detent.store.connection import Connection
from detent.store.db import Database, PoolName, Row
from detent.store.effect_ledger import steps_of
from detent.store.history import NEWEST, HistoryQuery, few_jobs, newest_runs
from detent.store.job_limits import job_limits
from detent.store.job_search import Moment
from detent.store.jobs import DEFAULT_TENANT, number_of
from detent.store.live_runs import cancel_runs, promote_on
from detent.store.output import progress_of
from detent.store.run_rows import Origin, attempt_of, run_of, status_of
from detent.store.upkeep import RUNS_CHANNEL

MICROSECOND = timedelta(microseconds=1)

RunPage = tuple[list[Run], RunKey | None]


class RunStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, key: RunKey, *, tenant: int = DEFAULT_TENANT) -> Run | None:
        async with self._database.connection(PoolName.REQUEST) as connection:
            rows = await connection.fetch(sql.run.READ.text, *key, tenant, job_limits())
            if not rows:
                return None
            (run,) = await documents(connection, rows, whole=True)
            own = await connection.fetch(sql.run.READ_PAYLOAD.text, *key) if key.manual else []
            steps = await steps_of(connection, key)
        details = {"concurrency_key": rows[0]["key"], "not_before": rows[0]["not_before"]}
        given = {name: value for name, value in details.items() if value is not None}
        given |= {"payload": msgspec.json.decode(own[0]["payload"])} if own else {}
        given |= {"steps": steps} if steps else {}
        return msgspec.structs.replace(run, **given)

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

        `status` may name several; none means any. `since` and `until` bound the tick, as times or relative to now. A
        page may be short although more runs follow: the key is None only at the end."""
        number = None if job is None else await number_of(self._database, job, tenant)
        # One snapshot, so that a run that is settled meanwhile appears once: live or finished.
        async with (
            self._database.connection(PoolName.REQUEST) as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            await connection.fetch(sql.database.LIMIT_READER.text)
            jobs = await few_jobs(connection, tenant) if number is None else [number]
            (clock,) = await connection.fetch(sql.database.CLOCK.text)
            floor = EPOCH if since is None else max(_time(since, clock["now"]) - MICROSECOND, EPOCH)
            first = NEWEST if until is None else NEWEST._replace(scheduled_at=_time(until, clock["now"]))
            query = HistoryQuery(tenant, jobs, frozenset(status) or None, after or first, limit, floor)
            rows, following = await newest_runs(connection, query)
            return await documents(connection, rows), following

    async def ticks_that_ran(self, job: int, first: datetime, last: datetime, limit: int) -> Sequence[datetime]:
        """Ticks of a job in this range that have a run, finished or not."""
        rows = await self._database.fetch(
            PoolName.REQUEST, sql.ledger.LIST_TICKS_THAT_RAN, job, first, last, MANUAL, limit
        )
        return [row["scheduled_at"] for row in rows]


def _time(moment: Moment, now: datetime) -> datetime:
    return moment if isinstance(moment, datetime) else now + moment


async def cancel(connection: Connection, key: RunKey, tenant: int) -> RunStatus | None:
    """CANCELLED: it had not started. RUNNING: its worker was asked to stop it. None: there is no such live run."""
    if not await connection.fetch(sql.job.CHECK_TENANT.text, key.job, tenant, job_limits()):
        return None
    owners = await cancel_runs(connection, [key])
    if key not in owners:
        return None
    if owners[key] is not None:
        return RunStatus.RUNNING
    if await promote_on(connection, [key.job]):  # one may have waited for this run
        await connection.fetch(sql.feed.NOTIFY.text, RUNS_CHANNEL, "ready")
    return RunStatus.CANCELLED


async def status_on(connection: Connection, key: RunKey, tenant: int) -> RunStatus | None:
    rows = await connection.fetch(sql.run.READ.text, *key, tenant, job_limits())
    return status_of(rows[0]) if rows else None


async def documents(connection: Connection, rows: Sequence[Row], *, whole: bool = False) -> list[Run]:
    """`whole`: with the tracebacks of attempts."""
    if not rows:
        return []
    revisions = {(row["job"], row["revision"]) for row in rows}
    found = await connection.fetch(sql.run.READ_JOBS.text, *zip(*revisions, strict=True))
    origins = {
        (row["job"], row["revision"]): Origin(
            row["id"], row["name"], row["template"], row["timezone"] or "UTC", row["created_at"]
        )
        for row in found
    }
    keys = [(row["job"], row["scheduled_at"], row["serial"]) for row in rows]
    kept: dict[int, list[Attempt]] = {}
    tried = await connection.fetch(sql.run.LIST_ATTEMPTS.text, *zip(*keys, strict=True), whole)
    workers = await _workers(connection, {row["node"] for row in (*rows, *tried)})
    for row in tried:
        kept.setdefault(row["position"], []).append(attempt_of(row, workers, whole=whole))
    progress = await progress_of(connection, rows)
    return [
        run_of(row, origins[row["job"], row["revision"]], kept.get(position, []), workers, progress.get(position))
        for position, row in enumerate(rows, 1)
    ]


async def _workers(connection: Connection, nodes: set[int | None]) -> dict[int, str]:
    """The names of owners that pull; their numbers are negative, because they are not nodes."""
    pulling = [-node for node in nodes if node is not None and node < 0]
    if not pulling:
        return {}
    return {-row["worker"]: row["name"] for row in await connection.fetch(sql.pull.LIST_WORKER_NAMES.text, pulling)}
