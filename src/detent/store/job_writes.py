"""Statements that change the rows of jobs, of one job or of ten thousand.

Every statement locks cursors by number and names by name, in that order, so that two changes cannot deadlock.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from detent.contract.job import JobStatus, OnResume
from detent.domain.audit_event import NewEvent
from detent.domain.misfire import CatchUp, MissedRange
from detent.domain.references import may_refer
from detent.domain.registration import CursorPlace, PreparedJob
from detent.store import sql
from detent.store.audit_log import record
from detent.store.connection import Connection
from detent.store.db import Database, PoolName, Rejected, Row
from detent.store.secrets import keep, note_references
from detent.store.tenant_wall import has_policies
from detent.store.tenants import TenantQuota, use_quota
from detent.store.upkeep import JOBS_CHANNEL

ANNOUNCED_SINGLY = 100
FEW = 50
ENCODED_AT_A_TIME = 256
NAME_INDEX = "jobs_name"

JOB_COLUMNS = (
    *("job", "id", "tenant", "name", "partition", "target", "owner", "tags", "definition", "created_at"),
    *("updated_at", "changed_by", "since", "anchor", "tzdata"),
)
CURSOR_COLUMNS = (
    *("job", "next_tick", "fire_at", "runs_left", "queue", "schedule", "grace", "partition", "lanes", "priority"),
    *("once", "missed", "max_missed", "task", "key_limit", "key_rate", "key_shared", "key_text"),
)


FirstSpan = tuple[datetime | None, datetime | None, str | None]
"""Since when (None: since the registration), anchor and zone data."""


class Moved(Exception):  # noqa: N818 - it says what happened
    """The job changed after it was read: the transaction is rolled back, and the caller computes the change again."""


class NamesInUse(Exception):  # noqa: N818 - as above
    """Other jobs have these names."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(*names)
        self.names = frozenset(names)
        self.first = names[0]


class NewJob(NamedTuple):
    """A job to insert, the first tick of its cursor, and its first span of ticks."""

    job: PreparedJob
    where: CursorPlace
    span: FirstSpan


class Ownership(NamedTuple):
    """Whose jobs these are, since when, and who registers them."""

    tenant: int
    owner: str | None
    now: datetime
    by: str | None


class RevisedJob(NamedTuple):
    """A new revision of a job, with the row it was computed from."""

    job: PreparedJob
    row: Row
    grace: int
    runs_left: int | None


class TickSpan(NamedTuple):
    """A span of ticks that begins: since when, by which change, and the anchor and zone data of its schedule."""

    since: datetime
    opened: str
    anchor: datetime | None
    tzdata: str | None


class CursorMove(NamedTuple):
    """Where a cursor moves from where it was read, the spans that end and begin there, and the ticks it passes."""

    row: Row
    where: CursorPlace
    status: JobStatus
    closed: str
    until: datetime
    span: TickSpan
    skipped: Sequence[MissedRange] = ()
    owed: CatchUp | None = None
    task: bool = False

    @property
    def ended(self) -> bool:
        """Whether the job has fired its last tick. A task never has a tick, and does not end."""
        return self.status == "active" and self.where.next_tick is None and not self.task

    @property
    def through(self) -> datetime | None:
        """The last tick that this move accounts for."""
        ends = [ticks.last for ticks in self.skipped]
        return max([*ends, self.owed.last] if self.owed else ends, default=None)


async def insert(
    database: Database, jobs: Sequence[NewJob], whose: Ownership, quota: TenantQuota, event: NewEvent
) -> None:
    """All of them and their event in one transaction, or NamesInUse."""

    async def write(connection: Connection) -> None:
        await insert_on(connection, jobs, whose)
        await use_quota(connection, quota)
        await announce(connection, [new.job.number for new in jobs])
        await record(connection, event)

    try:
        await database.transaction(PoolName.REQUEST, write)
    except Rejected as error:
        if error.constraint != NAME_INDEX:
            raise
        names = [new.job.name for new in jobs]
        taken = await database.fetch(PoolName.REQUEST, sql.job.FIND_TAKEN_NAMES, whose.tenant, names)
        raise NamesInUse([row["name"] for row in taken] or names) from error


async def insert_on(connection: Connection, jobs: Sequence[NewJob], whose: Ownership) -> None:
    """As insert, inside a transaction; a name in use may also be Rejected by its index. MissingSecrets where a job
    refers to a secret that does not exist."""
    referring = [new.job for new in jobs if new.job.secrets]
    await keep(connection, whose.tenant, (name for job in referring for name in job.secrets))
    schedules = await _schedule_numbers(connection, [new.job for new in jobs])
    queues = await _queue_numbers(connection, whose.tenant, [new.job for new in jobs])
    cursors = [
        (
            job.number, where.next_tick, where.fire_at, job.spec.max_runs, queues[job.spec.queue, job.needs],
            schedules[job.digest], where.grace, job.partition, job.lanes, job.spec.priority, job.once,
            job.missed, job.max_missed, *_key_columns(job),
        )
        for job, where, _ in jobs
    ]  # fmt: skip
    if len(jobs) < FEW or has_policies(connection):
        await _insert_few(connection, jobs, cursors, whose)
    else:
        await _copy(connection, jobs, cursors, whose)
    await note_references(connection, [(job.number, job.secrets) for job in referring])


async def _insert_few(connection: Connection, jobs: Sequence[NewJob], cursors: Sequence[Any], whose: Ownership) -> None:
    rows = [
        (job.number, job.job_id, job.name, job.partition, job.target, job.definition, _tags(job)) for job, _, _ in jobs
    ]
    spans = [new.span for new in jobs]
    _, ticks, fires, left, queues, schedules, graces, _, lanes, priorities, once, *rest = zip(*cursors, strict=True)
    added = await connection.fetch(
        sql.job.ADD.text, *zip(*rows, strict=True), ticks, fires, left, queues, schedules, graces, lanes,
        priorities, once, *whose, *zip(*spans, strict=True), *rest,
    )  # fmt: skip
    numbers = {row["job"] for row in added}
    taken = [new.job.name for new in jobs if new.job.number not in numbers]
    if taken:
        raise NamesInUse(taken)


async def _copy(connection: Connection, jobs: Sequence[NewJob], cursors: Sequence[Any], whose: Ownership) -> None:
    """COPY takes two thirds of the time of INSERT, but one name in use fails it as a whole."""
    tenant, owner, now, by = whose
    rows = [
        (
            job.number, job.job_id, tenant, job.name, job.partition, job.target, owner, job.spec.tags, job.definition,
            now, now, by, *span,
        )
        for job, _, span in jobs
    ]  # fmt: skip
    rows.sort(key=lambda row: row[3])
    await connection.copy_records_to_table("jobs", records=_gently(rows), columns=JOB_COLUMNS)
    await connection.copy_records_to_table("cursors", records=_gently(cursors), columns=CURSOR_COLUMNS)


async def _gently(rows: Sequence[Any]) -> AsyncIterator[Any]:
    """Yields to the event loop in between, because it also fires."""
    for position, row in enumerate(rows):
        if position % ENCODED_AT_A_TIME == 0:
            await asyncio.sleep(0)
        yield row


async def revise(connection: Connection, revised: Sequence[RevisedJob], owner: str | None, by: str | None) -> None:
    """New revisions of jobs; or Moved, or MissingSecrets. The cursors stay on their ticks."""
    jobs = [each.job for each in revised]
    await keep(connection, revised[0].row["tenant"], (name for job in jobs for name in job.secrets))
    schedules = await _schedule_numbers(connection, jobs)
    queues = await _queue_numbers(connection, revised[0].row["tenant"], jobs)
    rows = [
        (
            job.number, row["generation"], job.lanes, queues[job.spec.queue, job.needs], schedules[job.digest],
            job.spec.priority, grace, job.once, runs_left, job.name, job.definition, job.target, _tags(job),
        )
        for job, row, grace, runs_left in revised
    ]  # fmt: skip
    last_ticks = [each.row["last_tick"] for each in revised]
    rest = zip(*((job.missed, job.max_missed, *_key_columns(job)) for job in jobs), strict=True)
    written = await connection.fetch(sql.job.REVISE.text, *zip(*rows, strict=True), owner, last_ticks, by, *rest)
    if len(written) < len(revised):
        raise Moved
    await note_references(
        connection,
        [
            (each.job.number, each.job.secrets)
            for each in revised
            if each.job.secrets or may_refer(each.row["definition"].encode())
        ],
    )
    await connection.fetch(sql.cursor.MARK_CROWDED.text, [job.number for job in jobs])


async def move(connection: Connection, moves: Sequence[CursorMove], by: str | None) -> None:
    """Move cursors from where they were read, and record the spans and ticks that end there; or Moved."""
    if not moves:
        return
    for each in moves:  # first, because a job that still owes ticks is not complete
        if each.owed is not None:
            await connection.fetch(sql.catch_up.ADD_OWED.text, each.row["job"], *each.owed, by, each.row["schedule"])
    rows = [
        (
            each.row["job"], each.row["generation"], each.row["last_tick"], each.where.next_tick, each.where.fire_at,
            each.ended, each.through, each.status,
            each.row["schedule"], each.until, each.closed, *each.span,
        )
        for each in moves
    ]  # fmt: skip
    ranges = [(each.row["job"], *ticks) for each in moves for ticks in each.skipped]
    columns = zip(*ranges, strict=True) if ranges else ([], [], [], [], [])
    moved = await connection.fetch(sql.cursor.MOVE.text, *zip(*rows, strict=True), by, *columns)
    if len(moved) < len(moves):
        raise Moved


async def adopt(connection: Connection, numbers: Sequence[int], owner: str) -> None:
    await connection.fetch(sql.job.ADOPT.text, numbers, owner)


async def set_pause(
    connection: Connection, job: int, reason: str | None, until: datetime | None, on_resume: OnResume | None
) -> None:
    """Write the details of a pause, None leaves one as it is; or Moved."""
    if not await connection.fetch(sql.job.ANNOTATE_PAUSE.text, job, reason, until, on_resume):
        raise Moved


async def cancel_waiting(connection: Connection, jobs: Sequence[int]) -> None:
    """Cancel the runs of deleted jobs that have not started."""
    await connection.fetch(sql.run.END_OF_DELETED_JOBS.text, jobs)


async def announce(connection: Connection, numbers: Sequence[int]) -> None:
    """Notify the nodes that these jobs have changed."""
    payload = ",".join(map(str, numbers)) if len(numbers) <= ANNOUNCED_SINGLY else "sweep"
    await connection.fetch(sql.feed.NOTIFY.text, JOBS_CHANNEL, payload)


def _key_columns(job: PreparedJob) -> tuple[bool, int | None, float | None, bool, str | None]:
    """Whether it is a task, and the limits of its concurrency keys, which claims and enqueues read."""
    spec = job.spec
    shared = spec.concurrency_scope == "tenant"
    return spec.schedule is None, spec.concurrency_limit, spec.concurrency_rate, shared, spec.concurrency_key


def _tags(job: PreparedJob) -> str:
    return msgspec.json.encode(job.spec.tags).decode()


async def _schedule_numbers(connection: Connection, jobs: Sequence[PreparedJob]) -> dict[bytes, int]:
    wanted = {job.digest: job.stored for job in jobs}
    found = await _numbers_of(connection, list(wanted))
    missing = [digest for digest in wanted if digest not in found]
    if missing:
        await connection.fetch(sql.schedule.ADD.text, [wanted[digest] for digest in missing], missing)
        # A separate statement, so that it also sees what another transaction inserted meanwhile.
        found |= await _numbers_of(connection, missing)
    return found


async def _numbers_of(connection: Connection, digests: Sequence[bytes]) -> dict[bytes, int]:
    """The numbers of existing schedules. One marked as unused will be removed unless its mark is cleared here."""
    rows = await connection.fetch(sql.schedule.FIND_NUMBERS.text, digests)
    found = {row["digest"]: row["schedule"] for row in rows if not row["marked"]}
    marked = [row["schedule"] for row in rows if row["marked"]]
    if marked:
        kept = await connection.fetch(sql.schedule.KEEP.text, marked)
        found |= {row["digest"]: row["schedule"] for row in kept}
    return found


async def _queue_numbers(
    connection: Connection, tenant: int, jobs: Sequence[PreparedJob]
) -> dict[tuple[str, str], int]:
    wanted = list({(job.spec.queue, job.needs) for job in jobs})
    found = await _queues(connection, tenant, wanted)
    missing = [pair for pair in wanted if pair not in found]
    if missing:
        await connection.fetch(sql.queue.ADD.text, tenant, *zip(*missing, strict=True))
        found |= await _queues(connection, tenant, missing)
    return found


async def _queues(connection: Connection, tenant: int, pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], int]:
    """The numbers of existing queues, as for schedules."""
    rows = await connection.fetch(sql.queue.FIND_NUMBERS.text, tenant, *zip(*pairs, strict=True))
    found = {(row["name"], row["needs"]): row["queue"] for row in rows if not row["marked"]}
    marked = [row["queue"] for row in rows if row["marked"]]
    if marked:
        kept = await connection.fetch(sql.queue.KEEP.text, marked)
        found |= {(row["name"], row["needs"]): row["queue"] for row in kept}
    return found
