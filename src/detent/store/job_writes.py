"""What changes the rows of jobs, one of them or ten thousand.

Always in one order, rows of cursors by number and names by name, so that two changes never wait for each other in a
circle.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from detent.domain.registration import Place, Prepared
from detent.errors import Conflict
from detent.store import sql
from detent.store.connection import Connection
from detent.store.db import Database, PoolName, Rejected, Row
from detent.store.job_moves import Move, edited, span_of
from detent.store.job_rows import edit_of
from detent.store.tenants import Room, use_room
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
    *("once", "missed", "max_missed"),
)


FirstSpan = tuple[datetime | None, datetime | None, str | None]


class Moved(Exception):  # noqa: N818 - it says what happened
    """A job is no longer as it was read: nothing of the change is kept, and it is computed again."""


class NameTaken(Conflict):
    """Names that jobs have already; `names` are all of them."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(
            f"There is already a job named {names[0]!r}: choose another name, or change or delete that job."
        )
        self.names = frozenset(names)


class NewJob(NamedTuple):
    """A job to insert, and the tick its cursor will stand on."""

    job: Prepared
    where: Place


class Ownership(NamedTuple):
    """Whose jobs these are, since when, and who says so."""

    tenant: int
    owner: str | None
    now: datetime
    by: str | None


async def insert(database: Database, jobs: Sequence[NewJob], whose: Ownership, room: Room) -> None:
    """All of them in one transaction, or NameTaken."""

    async def write(connection: Connection) -> None:
        await insert_on(connection, jobs, whose)
        await use_room(connection, room)
        await announce(connection, [new.job.number for new in jobs])

    try:
        await database.transaction(PoolName.REQUEST, write)
    except Rejected as error:
        if error.constraint != NAME_INDEX:
            raise
        names = [new.job.name for new in jobs]
        taken = await database.fetch(PoolName.REQUEST, sql.job.FIND_TAKEN_NAMES, whose.tenant, names)
        raise NameTaken([row["name"] for row in taken] or names) from error


async def insert_on(connection: Connection, jobs: Sequence[NewJob], whose: Ownership) -> None:
    """As insert, inside a transaction; a name that is taken may also be Rejected by its index."""
    schedules = await _schedule_numbers(connection, [new.job for new in jobs])
    queues = await _queue_numbers(connection, whose.tenant, [new.job for new in jobs])
    cursors = [
        (
            job.number, where.next_tick, where.fire_at, job.spec.max_runs, queues[job.spec.queue, job.needs],
            schedules[job.digest], where.grace, job.partition, job.lanes, job.spec.priority, job.once,
            job.missed, job.max_missed,
        )
        for job, where in jobs
    ]  # fmt: skip
    if len(jobs) < FEW:
        await _insert_few(connection, jobs, cursors, whose)
    else:
        await _copy(connection, jobs, cursors, whose)


async def _insert_few(connection: Connection, jobs: Sequence[NewJob], cursors: Sequence[Any], whose: Ownership) -> None:
    rows = [
        (job.number, job.job_id, job.name, job.partition, job.target, job.definition, _tags(job)) for job, _ in jobs
    ]
    spans = _first_spans(jobs, whose.now)
    _, ticks, fires, left, queues, schedules, graces, _, lanes, priorities, once, *missed = zip(*cursors, strict=True)
    added = await connection.fetch(
        sql.job.ADD.text, *zip(*rows, strict=True), ticks, fires, left, queues, schedules, graces, lanes,
        priorities, once, *whose, *zip(*spans, strict=True), *missed,
    )  # fmt: skip
    numbers = {row["job"] for row in added}
    taken = [job.name for job, _ in jobs if job.number not in numbers]
    if taken:
        raise NameTaken(taken)


async def _copy(connection: Connection, jobs: Sequence[NewJob], cursors: Sequence[Any], whose: Ownership) -> None:
    """COPY takes two thirds of the time of INSERT, but a name that is taken fails it as a whole."""
    tenant, owner, now, by = whose
    rows = [
        (
            job.number, job.job_id, tenant, job.name, job.partition, job.target, owner, job.spec.tags, job.definition,
            now, now, by, *span,
        )
        for (job, _), span in zip(jobs, _first_spans(jobs, now), strict=True)
    ]  # fmt: skip
    rows.sort(key=lambda row: row[3])
    await connection.copy_records_to_table("jobs", records=_gently(rows), columns=JOB_COLUMNS)
    await connection.copy_records_to_table("cursors", records=_gently(cursors), columns=CURSOR_COLUMNS)


def _first_spans(jobs: Sequence[NewJob], now: datetime) -> list[FirstSpan]:
    """Since (None: since the registration), anchor and zone data; computed once for each schedule that jobs share."""
    known: dict[int, FirstSpan] = {}
    spans: list[FirstSpan] = []
    for job, where in jobs:
        span = known.get(id(job.schedule))
        if span is None:
            since, _, anchor, tzdata = span_of(job.schedule, now, "created", where.next_tick)
            span = (None if since == now else since, anchor, tzdata)
            if job.schedule.kind != "once":
                known[id(job.schedule)] = span
        spans.append(span)
    return spans


async def _gently(rows: Sequence[Any]) -> AsyncIterator[Any]:
    """With the loop's turn in between, which also fires."""
    for position, row in enumerate(rows):
        if position % ENCODED_AT_A_TIME == 0:
            await asyncio.sleep(0)
        yield row


async def revise(
    connection: Connection, changes: Sequence[tuple[Prepared, Row]], owner: str | None, by: str | None = None
) -> None:
    """New revisions of jobs, and new places for the cursors of those whose schedule changed; or Moved."""
    jobs = [job for job, _ in changes]
    edits = [edit_of(job, row) for job, row in changes]
    schedules = await _schedule_numbers(connection, jobs)
    queues = await _queue_numbers(connection, changes[0][1]["tenant"], jobs)
    rows = [
        (
            job.number, row["generation"], job.lanes, queues[job.spec.queue, job.needs], schedules[job.digest],
            job.spec.priority, edit.grace, job.once, edit.runs_left, job.name, job.definition, job.target, _tags(job),
        )
        for (job, row), edit in zip(changes, edits, strict=True)
    ]  # fmt: skip
    last_ticks = [row["last_tick"] for _, row in changes]
    missed = [job.missed for job in jobs], [job.max_missed for job in jobs]
    revised = await connection.fetch(sql.job.REVISE.text, *zip(*rows, strict=True), owner, last_ticks, by, *missed)
    if len(revised) < len(changes):
        raise Moved
    await connection.fetch(sql.cursor.MARK_CROWDED.text, [job.number for job in jobs])
    # In a thread: the ticks of a long pause take up to half a second to count, and this loop also fires.
    moves = await asyncio.to_thread(
        lambda: [edited(job, row, edit) for (job, row), edit in zip(changes, edits, strict=True)]
    )
    await move(connection, [each for each in moves if each is not None], by)
    await announce(connection, [job.number for job in jobs])


async def move(connection: Connection, moves: Sequence[Move], by: str | None) -> None:
    """Cursors from where they were read to where they go, with the spans and the ticks this ends; or Moved."""
    if not moves:
        return
    for each in moves:  # first, because a job that owes ticks is not completed yet
        if each.owed is not None:
            await connection.fetch(sql.catch_up.ADD_OWED.text, each.row["job"], *each.owed, by, each.row["schedule"])
    rows = [
        (
            each.row["job"], each.row["generation"], each.row["last_tick"], each.where.next_tick, each.where.fire_at,
            each.status == "active" and each.where.next_tick is None, each.through, each.status,
            each.row["schedule"], each.until, each.closed, *each.span,
        )
        for each in moves
    ]  # fmt: skip
    ranges = [(each.row["job"], *ticks) for each in moves for ticks in each.given_up]
    columns = zip(*ranges, strict=True) if ranges else ([], [], [], [], [])
    moved = await connection.fetch(sql.cursor.MOVE.text, *zip(*rows, strict=True), by, *columns)
    if len(moved) < len(moves):
        raise Moved


async def announce(connection: Connection, numbers: Sequence[int]) -> None:
    payload = ",".join(map(str, numbers)) if len(numbers) <= ANNOUNCED_SINGLY else "sweep"
    await connection.fetch(sql.feed.NOTIFY.text, JOBS_CHANNEL, payload)


def _tags(job: Prepared) -> str:
    return msgspec.json.encode(job.spec.tags).decode()


async def _schedule_numbers(connection: Connection, jobs: Sequence[Prepared]) -> dict[bytes, int]:
    wanted = {job.digest: job.stored for job in jobs}
    found = await _numbers_of(connection, list(wanted))
    missing = [digest for digest in wanted if digest not in found]
    if missing:
        await connection.fetch(sql.schedule.ADD.text, [wanted[digest] for digest in missing], missing)
        # A statement of its own: it also sees what somebody else was faster to insert.
        found |= await _numbers_of(connection, missing)
    return found


async def _numbers_of(connection: Connection, digests: Sequence[bytes]) -> dict[bytes, int]:
    """Of those that are there. One that is marked as unused is about to be removed, unless this takes the mark away."""
    rows = await connection.fetch(sql.schedule.FIND_NUMBERS.text, digests)
    found = {row["digest"]: row["schedule"] for row in rows if not row["marked"]}
    marked = [row["schedule"] for row in rows if row["marked"]]
    if marked:
        kept = await connection.fetch(sql.schedule.KEEP.text, marked)
        found |= {row["digest"]: row["schedule"] for row in kept}
    return found


async def _queue_numbers(connection: Connection, tenant: int, jobs: Sequence[Prepared]) -> dict[tuple[str, str], int]:
    wanted = list({(job.spec.queue, job.needs) for job in jobs})
    found = await _queues(connection, tenant, wanted)
    missing = [pair for pair in wanted if pair not in found]
    if missing:
        await connection.fetch(sql.queue.ADD.text, tenant, *zip(*missing, strict=True))
        found |= await _queues(connection, tenant, missing)
    return found


async def _queues(connection: Connection, tenant: int, pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], int]:
    """Of those that are there, as for schedules."""
    rows = await connection.fetch(sql.queue.FIND_NUMBERS.text, tenant, *zip(*pairs, strict=True))
    found = {(row["name"], row["needs"]): row["queue"] for row in rows if not row["marked"]}
    marked = [row["queue"] for row in rows if row["marked"]]
    if marked:
        kept = await connection.fetch(sql.queue.KEEP.text, marked)
        found |= {(row["name"], row["needs"]): row["queue"] for row in kept}
    return found
