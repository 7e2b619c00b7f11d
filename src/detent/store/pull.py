"""Runs that workers in any language pull over the API: claim, heartbeat, settle, and expired leases.

Each pulled run has its own lease, which ends by the database's clock. Every write names run, token and tenant; if it
matches no lease, the record says whether the report was repeated or came too late.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from detent.domain.identity import FIRST_TASK_LANE, RunKey
from detent.domain.job import Definition, JobSpec
from detent.domain.references import refers
from detent.domain.run import Claim, HeldRun
from detent.domain.states import CODES, RunStatus
from detent.store import sql
from detent.store.connection import Connection
from detent.store.db import Database, PoolName, Row
from detent.store.nodes import CRASH_CAP, RESCUE_BATCH, Rescued
from detent.store.queues import claim_under
from detent.store.settlements import among, end_columns, key_columns, time_columns
from detent.store.tasks import Freed
from detent.telemetry.log import logger

log = logger("store")

# Under a limit, any worker may end a run at any moment, and waiting claims are not notified of it.
SHORTEST_WAIT = 0.1
MAX_WAITS = 10_000
STATUSES = {code: status for status, code in CODES.items()}


class Wanted(NamedTuple):
    """What a worker claims: the queue, and the functions it can run; `functions`: all of them."""

    queue: str
    capabilities: tuple[str, ...]
    functions: bool


class Pulled(NamedTuple):
    """A claimed run; without a definition if its revision is no longer kept or cannot be read."""

    claim: Claim
    definition: Definition | None
    lease_until: datetime


class LeasedRun(NamedTuple):
    """A run under a lease, with what deciding about it needs."""

    claim: Claim
    definition: Definition | None
    tenant: int
    claimed_at: datetime


class PullBeat(NamedTuple):
    """Without a lease it is extended by a minute, and that of an accepted run by the lease of its job."""

    key: RunKey
    token: int
    lease: timedelta | None


class CallbackWait(NamedTuple):
    """Since when an accepted run waits for its callback, until when without a heartbeat, and until when at most."""

    accepted_at: datetime
    lease_until: datetime
    ends_at: datetime
    now: datetime


class Extended(NamedTuple):
    """A renewed lease. `cancel`: the run was asked to stop."""

    lease_until: datetime
    cancel: bool


class Report(NamedTuple):
    """The end of an attempt of a pulled run. Without a status it is retried after `delay`."""

    key: RunKey
    token: int
    status: int | None
    outcome: str
    reason: str | None = None
    result: str | None = None
    error: str | None = None
    delay: timedelta = timedelta(0)
    traceback: str | None = None


class Expired(NamedTuple):
    """An accepted run whose target was silent for too long, what was written, and its status then."""

    run: LeasedRun
    report: Report
    status: RunStatus | None


class Recorded(NamedTuple):
    """The present status of a run, and what was recorded under the given token."""

    status: RunStatus
    token: int | None
    outcome: str | None


class PullStore:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._waits: dict[tuple[int, str], float] = {}

    async def worker(self, tenant: int, name: str) -> int:
        """The number of the worker of this name."""
        (row,) = await self._database.fetch(PoolName.PULL, sql.pull.FIND_WORKER, tenant, name)
        return int(row["worker"])

    async def claim(
        self,
        tenant: int,
        worker: int,
        wanted: Wanted,
        limit: int,
        lease: timedelta,
        *,
        evenly: bool = False,
        runs: Sequence[RunKey] = (),
    ) -> list[Pulled]:
        """Up to `limit` ready runs, each under a lease; of these `runs`, if there are any."""
        arguments = (tenant, worker, wanted.queue, list(wanted.capabilities), wanted.functions)
        limits = [
            row["number"]
            for row in await self._database.fetch(PoolName.PULL, sql.limit.LIST_OF_QUEUE, tenant, wanted.queue)
        ]
        keys = tuple(zip(*runs, strict=True)) if runs else (None, None, None)
        how = (lease, evenly, *keys)
        if limits:
            rows = await self._claim_under(limits, arguments, limit, how)
        else:
            rows = await self._database.fetch(PoolName.PULL, sql.pull.CLAIM, *arguments, limit, *how)
        return [Pulled(_claim(row), _definition(row), row["lease_until"]) for row in rows]

    async def _claim_under(
        self, limits: Sequence[int], arguments: tuple[Any, ...], limit: int, how: tuple[Any, ...]
    ) -> list[Row]:
        async def claim(connection: Connection, room: int) -> list[Row]:
            rows: list[Row] = await connection.fetch(sql.pull.CLAIM.text, *arguments, room, *how)
            return rows

        rows, rest = await claim_under(self._database, limits, limit, claim, pool=PoolName.PULL)
        tenant, _, queue, *_ = arguments
        self._waits.pop((tenant, queue), None)
        if rest.busy or rest.full:
            if len(self._waits) >= MAX_WAITS:  # clients choose the names of queues
                del self._waits[next(iter(self._waits))]
            self._waits[tenant, queue] = max(rest.wait or 0.0, SHORTEST_WAIT)
        return rows

    def wait(self, tenant: int, queue: str) -> float | None:
        """If a limit restricted the last claim: in how many seconds to try again."""
        return self._waits.get((tenant, queue))

    async def accept(self, node: int, workers: Mapping[int, int], batch: Sequence[HeldRun]) -> list[HeldRun]:
        """Turn what this node holds into leases; `workers` stand for the targets of each tenant. Returns those that no
        longer belong to this node."""
        tenants, limits, leases, *_ = end_columns(batch)
        keys, (started, _) = key_columns([held.claim for held in batch]), time_columns(batch)
        standing = [workers[tenant] for tenant in tenants]
        rows = await self._database.fetch_guarded(
            PoolName.WORK, sql.pull.ACCEPT, "", "W7", node, *keys, started, standing, tenants, limits, leases
        )
        return among(batch, rows)

    async def settle_early(self, tenant: int, worker: int, report: Report, freed: Freed) -> RunStatus | None:
        """Settle a run whose target reports before its node has processed the answer 202. None: no node holds it under
        this token, or its job waits for no callback."""

        async def work(connection: Connection) -> list[Row]:
            if not await connection.fetch(sql.pull.ACCEPT_EARLY.text, tenant, *report.key, report.token, worker):
                return []
            rows: list[Row] = await connection.fetch(sql.pull.SETTLE.text, *_settle_columns(tenant, [report]))
            return rows

        return _settled(await self._database.transaction(PoolName.PULL, work), 1, freed)[0]

    async def held_early(self, tenant: int, key: RunKey, token: int) -> LeasedRun | None:
        """A run that waits for a callback as soon as its node has processed the answer of the target."""
        rows = await self._database.fetch(PoolName.PULL, sql.pull.READ_EARLY, tenant, *key, token)
        return _held(rows[0]) if rows else None

    async def callback_wait(self, key: RunKey, tenant: int) -> CallbackWait | None:
        rows = await self._database.fetch(PoolName.REQUEST, sql.pull.READ_WAIT, *key, tenant)
        return CallbackWait(*rows[0].values()) if rows else None

    async def expire(
        self, decide: Callable[[LeasedRun], Report], freed: Freed, *, limit: int = RESCUE_BATCH, passed_over: int = 0
    ) -> list[Expired]:
        """End the attempts of one batch of accepted runs whose targets were silent for too long, as `decide` says;
        without the first ones, which are `passed_over`. All or none: Rejected if one of them cannot be stored."""

        async def work(connection: Connection) -> list[Expired]:
            rows = await connection.fetch(sql.pull.LOCK_EXPIRED.text, limit, passed_over)
            silent = [_held(row) for row in rows]
            ended: list[Expired] = []
            for tenant in sorted({held.tenant for held in silent}):
                some = [held for held in silent if held.tenant == tenant]
                reports = [decide(held) for held in some]
                rows = await connection.fetch(sql.pull.SETTLE.text, *_settle_columns(tenant, reports))
                ended += map(Expired, some, reports, _settled(rows, len(some), freed))
            return ended

        return await self._database.transaction(PoolName.WORK, work)

    async def give_back(self, claims: Sequence[Claim]) -> None:
        """Return claims that could not be delivered: the runs are ready again, without a trace."""
        columns = zip(*((*claim.key, claim.token) for claim in claims), strict=True)
        await self._database.fetch(PoolName.PULL, sql.pull.GIVE_BACK, *columns)

    async def heartbeat(self, tenant: int, beats: Sequence[PullBeat]) -> list[Extended | None]:
        """For each: its renewed lease, or None when it is lost."""
        columns = zip(*((*beat.key, beat.token, beat.lease) for beat in beats), strict=True)
        rows = await self._database.fetch(PoolName.PULL, sql.pull.HEARTBEAT, tenant, *columns)
        found = {row["position"]: Extended(row["lease_until"], row["cancel"]) for row in rows}
        return [found.get(position) for position in range(1, len(beats) + 1)]

    async def held(self, tenant: int, key: RunKey, token: int) -> LeasedRun | None:
        rows = await self._database.fetch(PoolName.PULL, sql.pull.READ_LEASE, tenant, *key, token)
        return _held(rows[0]) if rows else None

    async def overdue(self, limit: int = RESCUE_BATCH) -> list[LeasedRun]:
        """Runs that exceeded their timeout, of all tenants."""
        return [_held(row) for row in await self._database.fetch(PoolName.WORK, sql.pull.LIST_OVERDUE, limit)]

    async def settle(
        self, tenant: int, reports: Sequence[Report], freed: Freed | None = None
    ) -> list[RunStatus | None]:
        """Settle runs. For each: its status now, or None when no lease matched. What they free is added to `freed`."""
        rows = await self._database.fetch(PoolName.PULL, sql.pull.SETTLE, *_settle_columns(tenant, reports))
        return _settled(rows, len(reports), freed)

    async def recorded(self, tenant: int, key: RunKey, token: int) -> Recorded | None:
        """None: there is no such run."""
        rows = await self._database.fetch(PoolName.PULL, sql.pull.FIND_RECORDED, tenant, *key, token)
        return Recorded(RunStatus(rows[0]["status"]), rows[0]["token"], rows[0]["outcome"]) if rows else None

    async def record_stale(self, key: RunKey, token: int, words: str) -> None:
        await self._database.fetch(PoolName.PULL, sql.pull.RECORD_STALE, *key, token, words)

    async def rescue(self) -> list[Rescued]:
        """One batch of runs whose lease has expired; empty when none is left."""
        rows = await self._database.fetch(PoolName.WORK, sql.pull.RESCUE, CRASH_CAP, RESCUE_BATCH)
        return [Rescued(*row.values()) for row in rows]


def _settle_columns(tenant: int, reports: Sequence[Report]) -> tuple[object, ...]:
    keys, tokens, statuses, outcomes, reasons, results, errors, delays, tracebacks = zip(*reports, strict=True)
    texts = (statuses, reasons, results, outcomes, errors, delays, tracebacks)
    return tenant, *zip(*keys, strict=True), tokens, *texts


def _settled(rows: Sequence[Row], count: int, freed: Freed | None) -> list[RunStatus | None]:
    if freed is not None:
        freed.keys.update((row["job"], row["key"]) for row in rows if row["key"] is not None)
        freed.jobs.update(row["job"] for row in rows if row["lane"] < FIRST_TASK_LANE)
    final = {row["position"]: STATUSES.get(row["final"], RunStatus.RETRYING) for row in rows}
    return [final.get(position) for position in range(1, count + 1)]


def _claim(row: Row) -> Claim:
    return Claim(**{name: row[name] for name in Claim._fields if name != "queue"})


def _definition(row: Row) -> Definition | None:
    """None if it is no longer kept or this version cannot read it; other runs are not affected."""
    if row["definition"] is None:
        return None
    try:
        spec = msgspec.json.decode(row["definition"], type=JobSpec)
        text = row["definition"]
        return Definition(row["id"], row["name"], spec, row.get("created_at"), refers=refers(spec, text))
    except Exception as error:  # as in live_runs
        log.error("a job's definition cannot be read", job=row["name"], error=str(error))
        return None


def _held(row: Row) -> LeasedRun:
    return LeasedRun(_claim(row), _definition(row), row["tenant"], row["claimed_at"])
