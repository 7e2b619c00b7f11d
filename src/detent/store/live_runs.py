"""Live runs: claim, start, settle, return, promote and cancel them, and list what a node holds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Literal

import msgspec

from detent.domain.identity import RunKey
from detent.domain.job import Definition, JobSpec
from detent.domain.references import refers
from detent.domain.run import Claim, HeldRun
from detent.runtime.bisection import halve_until_alone
from detent.store import sql
from detent.store.arrays import one_for_all
from detent.store.connection import Connection
from detent.store.db import Database, PoolName, Rejected, Row
from detent.store.run_rows import key_of
from detent.store.settlements import among, by_kind, claim_of, end_columns, key_columns, settle_statements, time_columns
from detent.store.statement import Statement
from detent.store.upkeep import RUNS_CHANNEL
from detent.telemetry.log import logger

log = logger("store")

MAX_PROMOTED = 1000
# On-demand runs that wait, of which one call cancels some.
CANCEL_BATCH = 1000
MAX_CANCELLED = 10_000
MAX_SPECS = 1_000
# How often one cancellation looks again for runs that moved. Each move takes a claim, a failed attempt or a promotion.
MAX_MOVES = 10
# Memory of a definition in bytes: always 400 (measured), and more if no other job has the same text (1,280 in total for
# a text of 105 characters, 2,410 for one of 427).
DEFINITION_BYTES = 400
SPEC_BYTES = 500
CHARACTER_BYTES = 4

StartVerdict = Literal["go", "cancel", "begun"]
Fetch = Callable[..., Awaitable[list[Row]]]
"""Sends a statement with its arguments, and returns the rows."""


class LiveRunStore:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._specs: dict[str, JobSpec] = {}

    async def claim(
        self, node: int, incarnation: int, queues: Sequence[int], limit: int, *, evenly: bool = False
    ) -> list[Claim]:
        """Up to `limit` ready runs, by priority and age; `evenly`: only by age."""
        arguments = (node, incarnation, list(queues), limit, evenly)
        return claims_of(await self._database.fetch_guarded(PoolName.WORK, sql.run.CLAIM, "", "W2", *arguments))

    async def reconcile(self, node: int) -> list[Claim]:
        return claims_of(await self._database.fetch(PoolName.WORK, sql.run.RECONCILE, node))

    async def start(
        self, node: int, claims: Sequence[Claim], alone: Sequence[bool] | None = None
    ) -> dict[tuple[int, int], StartVerdict]:
        """Mark runs as started, just before they are called. Returns by (job, lane) whether to call them; runs that are
        missing no longer belong to this node. `alone`: for each, whether it is the only run on this node until
        `accompany`."""
        flags = [False] * len(claims) if alone is None else list(alone)
        verdicts: dict[tuple[int, int], StartVerdict] = {}
        for of_tasks, some in by_kind(list(zip(claims, flags, strict=True)), lambda pair: pair[0]):
            statement = sql.run.START_TASKS if of_tasks else sql.run.START
            claimed, alone_flags = zip(*some, strict=True)
            rows = await self._database.fetch(PoolName.WORK, statement, node, *key_columns(claimed), alone_flags)
            verdicts |= {(row["job"], row["lane"]): row["verdict"] for row in rows}
        return verdicts

    async def accompany(self, node: int, claim: Claim) -> None:
        """Record that a run which was started alone is no longer alone: others are about to start on this node."""
        run = (claim.job, claim.lane, claim.scheduled_at, claim.serial, claim.token)
        await self._database.fetch(PoolName.WORK, sql.run.ACCOMPANY, node, *run)

    async def give_back(self, node: int, claims: Sequence[Claim]) -> set[tuple[int, int]]:
        return _addresses(await self._database.fetch(PoolName.WORK, sql.run.GIVE_BACK, node, *key_columns(claims)))

    async def put_off(self, node: int, batch: Sequence[tuple[Claim, timedelta]]) -> set[tuple[int, int]]:
        """As `give_back`, and each run waits for so long before it can be claimed again."""
        rows: list[Row] = []
        for of_tasks, some in by_kind(batch, lambda pair: pair[0]):
            claims, delays = zip(*some, strict=True)
            statement = sql.task.PUT_OFF if of_tasks else sql.run.PUT_OFF
            rows += await self._database.fetch(PoolName.WORK, statement, node, *key_columns(claims), delays)
        return _addresses(rows)

    async def settle(self, node: int, batch: Sequence[HeldRun]) -> list[HeldRun]:
        """End a batch of runs; returns those that no longer belong to this node."""
        unsettled: list[Row] = []
        for statement, arguments in settle_statements(batch):
            unsettled += await self._database.fetch_guarded(PoolName.SETTLE, statement, "", "W5", node, *arguments)
        return among(batch, unsettled)

    async def retry(self, node: int, batch: Sequence[HeldRun]) -> list[HeldRun]:
        """Record failed attempts and schedule the next; returns those that no longer belong to this node."""
        unsettled: list[Row] = []
        for of_tasks, some in by_kind(batch, claim_of):
            unsettled += await self._database.fetch_guarded(
                PoolName.WORK, sql.task.SETTLE_RETRY if of_tasks else sql.run.SETTLE_RETRY, "", "W5", node,
                *key_columns([held.claim for held in some]), *time_columns(some), *end_columns(some),
            )  # fmt: skip
        return among(batch, unsettled)

    async def committed(self, claims: Sequence[Claim]) -> list[bool]:
        """For each claim that matched no live run: True if its settle had committed before (the reply was lost), False
        if it is stale."""
        jobs, _, ats, serials, tokens = key_columns(claims)
        rows = await self._database.fetch(PoolName.WORK, sql.run.FIND_SETTLED, jobs, ats, serials, tokens)
        found = {row["position"] for row in rows}
        return [position in found for position in range(1, len(claims) + 1)]

    async def record_stale(self, node: int, late: Sequence[HeldRun]) -> None:
        jobs, _, ats, serials, tokens = key_columns([held.claim for held in late])
        await self._database.fetch(
            PoolName.WORK, sql.run.RECORD_STALE, node, jobs, ats, serials, tokens, *time_columns(late),
            [held.claim.attempt for held in late], [f"refused: {held.outcome}" for held in late],
        )  # fmt: skip

    async def quarantine(self, node: int, claim: Claim, words: str) -> bool:
        """End a run whose result cannot be stored; returns whether it still belonged to this node."""
        run = (claim.job, claim.lane, claim.scheduled_at, claim.serial, claim.token)
        return bool(await self._database.fetch(PoolName.WORK, sql.run.QUARANTINE, node, *run, words))

    async def definitions(self, wanted: Sequence[tuple[int, int]]) -> dict[tuple[int, int], Definition]:
        """The definitions at the wanted (job, revision); those that cannot be read are omitted."""
        jobs, revisions = zip(*wanted, strict=True)
        rows = await self._database.fetch(PoolName.WORK, sql.revision.READ_DEFINITIONS, jobs, one_for_all(revisions))
        found = {}
        for job, revision, number, name, created_at, text, tenant in (row.values() for row in rows):
            spec, size = self._specs.get(text), DEFINITION_BYTES
            if spec is None:
                spec, size = self._read_spec(name, text), size + SPEC_BYTES + CHARACTER_BYTES * len(text)
            if spec is not None:
                found[job, revision] = Definition(number, name, spec, created_at, size, tenant, refers(spec, text))
        return found

    def _read_spec(self, job: str, text: str) -> JobSpec | None:
        """The spec; None if this version cannot read it, so that other jobs are not affected. Equal texts share one
        JobSpec."""
        try:
            spec = msgspec.json.decode(text, type=JobSpec)
        except Exception as error:  # not only the decoder's errors: a text nested too deeply raises RecursionError
            log.error("a job's definition cannot be read", job=job, error=str(error))
            return None
        if len(self._specs) >= MAX_SPECS:
            self._specs.clear()
        self._specs[text] = spec
        return spec

    async def promote(self, jobs: Sequence[int] | None = None, *, pool: PoolName = PoolName.WORK) -> bool:
        """Make waiting runs of these jobs, or of all jobs, ready if their predecessor has ended; ask runs that are to
        be replaced to stop. Returns whether any run became ready."""
        send = partial(_promote, partial(self._database.fetch, pool))
        try:
            return await send(jobs)
        except Rejected:  # one of the jobs violates a constraint, and must not block the others
            if jobs is None:
                jobs = [row["job"] for row in await self._database.fetch(pool, sql.run.LIST_WAITING_JOBS)]
        return any(await halve_until_alone(jobs, send, _not_promoted, (Rejected,)))

    async def admit(
        self, jobs: Sequence[int], keys: Sequence[str] | None = None, *, pool: PoolName = PoolName.WORK
    ) -> bool:
        """Give runs in lanes that wait for their concurrency keys free places: of these keys, which runs of the jobs
        have freed, or of those that runs of the jobs wait for. Returns whether any got one."""
        return bool(await self._database.fetch(pool, sql.run.ADMIT, jobs, keys))

    async def unadmitted_keys(
        self, after: tuple[str, int], limit: int, *, pool: PoolName = PoolName.WORK
    ) -> list[tuple[str, int]]:
        """Concurrency keys that runs in lanes wait for, with their jobs, after this one."""
        rows = await self._database.fetch(pool, sql.run.LIST_UNADMITTED_KEYS, *after, limit)
        return [(row["key"], row["job"]) for row in rows]

    async def own_payload(self, key: RunKey, *, pool: PoolName = PoolName.WORK) -> str | None:
        """The payload that a run was given when it was enqueued, as JSON; None: it uses the payload of its job."""
        rows = await self._database.fetch(pool, sql.run.READ_PAYLOAD, *key)
        return rows[0]["payload"] if rows else None

    async def cancel(self, keys: Sequence[RunKey]) -> dict[RunKey, int | None]:
        """Ask runs to stop. Returns the owner of each run that was live; None: no node owned it, and it ended at
        once."""
        return await _cancel(partial(self._database.fetch, PoolName.WORK), keys)

    async def jobs_with_waiting(self, jobs: Sequence[int]) -> set[int]:
        """Those of these jobs that have on-demand runs waiting."""
        rows = await self._database.fetch(PoolName.REQUEST, sql.task.LIST_JOBS_WITH_WAITING, jobs)
        return {row["job"] for row in rows}

    async def of_jobs(self, jobs: Sequence[int]) -> list[RunKey]:
        """The unfinished runs of these jobs, but those that wait in the backlog."""
        async with self._database.connection(PoolName.REQUEST) as connection:
            return await live_runs_of(connection, jobs)


async def promote_on(connection: Connection, jobs: Sequence[int] | None) -> bool:
    """As `LiveRunStore.promote`, on a given connection."""
    return await _promote(_fetch_on(connection), jobs)


async def _promote(fetch: Fetch, jobs: Sequence[int] | None) -> bool:
    rows = await fetch(sql.run.PROMOTE, jobs, MAX_PROMOTED)
    happened = {row["what"] for row in rows}
    if "asked" in happened:
        await fetch(sql.feed.NOTIFY, RUNS_CHANNEL, "cancel")
    keyed = sorted({row["job"] for row in rows if row["what"] == "keyed"})
    if keyed and await fetch(sql.run.ADMIT, keyed, None):
        happened.add("promoted")
    if "replaced" in happened:  # the statement that freed the lane could not see that it is free
        await _promote(fetch, sorted({row["job"] for row in rows if row["what"] == "replaced"}))
    return not happened.isdisjoint({"promoted", "replaced"})


async def _not_promoted(job: int, error: Rejected) -> bool:
    log.error("a waiting run cannot be promoted", jobs=[job], error=str(error))
    return False


async def cancel_runs(connection: Connection, keys: Sequence[RunKey]) -> dict[RunKey, int | None]:
    """As `LiveRunStore.cancel`, on a given connection; the owners are notified."""
    if not keys:
        return {}
    owners = await _cancel(_fetch_on(connection), keys)
    if any(owner is not None for owner in owners.values()):
        await connection.fetch(sql.feed.NOTIFY.text, RUNS_CHANNEL, "cancel")
    return owners


async def _cancel(fetch: Fetch, keys: Sequence[RunKey]) -> dict[RunKey, int | None]:
    """Ask runs to stop, wherever they are. A claim moves an on-demand run from the backlog to live_runs, a retry moves
    it back, and a promotion moves a run to another lane. A run that moved while a statement waited for its lock, or
    between two statements, is looked for again, until it is found or has ended. The locks of those that were found are
    held meanwhile, so the search has an end."""
    owners: dict[RunKey, int | None] = {}
    left = list(keys)
    for _ in range(MAX_MOVES):
        if not left:
            break
        on_demand = [key for key in left if key.on_demand]
        if on_demand:
            owners |= _owners(await fetch(sql.task.CANCEL, *zip(*on_demand, strict=True)))
        owners |= _owners(await fetch(sql.run.CANCEL, *zip(*left, strict=True)))
        missed = [key for key in left if key not in owners]
        unfinished = await fetch(sql.task.LIST_UNFINISHED, *zip(*missed, strict=True)) if missed else []
        left = [key_of(row) for row in unfinished]
    return owners


async def cancel_open(connection: Connection, job: int) -> tuple[dict[RunKey, int | None], bool]:
    """As `cancel_runs`, for all unfinished runs of a job, and whether more of them wait than one call ends."""
    ended, more = await cancel_backlog(connection, [job])
    runs = await connection.fetch(sql.run.LIST_OPEN.text, job)
    owners = await cancel_runs(connection, [RunKey(*run.values()) for run in runs])
    return dict.fromkeys(ended, None) | owners, more


async def live_runs_of(connection: Connection, jobs: Sequence[int]) -> list[RunKey]:
    """As `LiveRunStore.of_jobs`, on a given connection."""
    return [key_of(row) for row in await connection.fetch(sql.run.LIST_LIVE_OF_JOBS.text, jobs)]


async def cancel_backlog(connection: Connection, jobs: Sequence[int]) -> tuple[list[RunKey], bool]:
    """End on-demand runs of these jobs that wait, and say whether there are more. There may be a million: one call ends
    some of them, in batches, so that no transaction takes long."""
    ended: list[RunKey] = []
    while len(ended) < MAX_CANCELLED:
        rows = await connection.fetch(sql.task.CANCEL_OF_JOBS.text, jobs, "cancelled", CANCEL_BATCH)
        ended += map(key_of, rows)
        if len(rows) < CANCEL_BATCH:
            return ended, False
    return ended, True


async def admit_on(connection: Connection, jobs: Sequence[int]) -> None:
    """As `LiveRunStore.admit`, on a given connection, for runs that have just got a lane."""
    if jobs:
        await connection.fetch(sql.run.ADMIT.text, sorted(set(jobs)), None)


async def wake_queue(connection: Connection, queue: int) -> None:
    """Notify the workers that a run of this queue is ready."""
    await connection.fetch(sql.feed.NOTIFY.text, RUNS_CHANNEL, str(queue))


async def make_way(connection: Connection, run: Row) -> None:
    """Promote a triggered run that waits to replace another at once, instead of with the next pass."""
    if run["lane"] is not None and run["lane"] < 0:
        await promote_on(connection, [run["job"]])


def _fetch_on(connection: Connection) -> Fetch:
    async def fetch(statement: Statement, *arguments: object) -> list[Row]:
        rows: list[Row] = await connection.fetch(statement.text, *arguments)
        return rows

    return fetch


def claims_of(rows: Sequence[Row]) -> list[Claim]:
    return [Claim(*row.values()) for row in rows]


def _owners(rows: Sequence[Row]) -> dict[RunKey, int | None]:
    return {key_of(row): row["owner"] for row in rows}


def _addresses(rows: list[Row]) -> set[tuple[int, int]]:
    return {(row["job"], row["lane"]) for row in rows}
