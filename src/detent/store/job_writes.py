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

from detent.errors import Conflict
from detent.misfire import MissedRange
from detent.registration import Place, Prepared
from detent.shapes import JobStatus
from detent.store.db import Database, Rejected, Row, statement
from detent.store.job_rows import NOWHERE, Edit, edited, overdue
from detent.store.upkeep import JOBS_CHANNEL

ANNOUNCED_SINGLY = 100
FEW = 50
ENCODED_AT_A_TIME = 256
NAME_INDEX = "jobs_name"

JOB_COLUMNS = (
    *("job", "id", "tenant", "name", "partition", "target", "owner", "tags", "definition", "created_at"),
    "updated_at",
)
CURSOR_COLUMNS = (
    *("job", "next_tick", "fire_at", "runs_left", "queue", "schedule", "grace", "partition", "lanes", "priority"),
    "once",
)


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


class Move(NamedTuple):
    """Where a cursor goes from where it was read, and the ticks that are given up on the way."""

    row: Row
    where: Place
    given_up: Sequence[MissedRange] = ()


class Ownership(NamedTuple):
    """Whose jobs these are, and since when."""

    tenant: int
    owner: str | None
    now: datetime


async def insert(database: Database, jobs: Sequence[NewJob], whose: Ownership) -> None:
    """All of them in one transaction, or NameTaken."""

    async def write(connection: Any) -> None:
        await insert_on(connection, jobs, whose)
        await announce(connection, [new.job.number for new in jobs])

    try:
        await database.transaction("people", write)
    except Rejected as error:
        if error.constraint != NAME_INDEX:
            raise
        names = [new.job.name for new in jobs]
        taken = await database.fetch("people", "taken_names", whose.tenant, names)
        raise NameTaken([row["name"] for row in taken] or names) from error


async def insert_on(connection: Any, jobs: Sequence[NewJob], whose: Ownership) -> None:
    """As insert, inside a transaction; a name that is taken may also be Rejected by its index."""
    schedules = await _schedule_numbers(connection, [new.job for new in jobs])
    queues = await _queue_numbers(connection, whose.tenant, [new.job for new in jobs])
    cursors = [
        (
            job.number, where.next_tick, where.fire_at, job.spec.max_runs, queues[job.spec.queue, job.needs],
            schedules[job.digest], where.grace, job.partition, job.lanes, job.spec.priority, job.once,
        )
        for job, where in jobs
    ]  # fmt: skip
    if len(jobs) < FEW:
        await _insert_few(connection, jobs, cursors, whose)
    else:
        await _copy(connection, jobs, cursors, whose)


async def _insert_few(connection: Any, jobs: Sequence[NewJob], cursors: Sequence[Any], whose: Ownership) -> None:
    rows = [
        (job.number, job.job_id, job.name, job.partition, job.target, job.definition, _tags(job)) for job, _ in jobs
    ]
    _, ticks, fires, left, queues, schedules, graces, _, lanes, priorities, once = zip(*cursors, strict=True)
    added = await connection.fetch(
        statement("add_jobs"), *zip(*rows, strict=True), ticks, fires, left, queues, schedules, graces, lanes,
        priorities, once, *whose,
    )  # fmt: skip
    numbers = {row["job"] for row in added}
    taken = [job.name for job, _ in jobs if job.number not in numbers]
    if taken:
        raise NameTaken(taken)


async def _copy(connection: Any, jobs: Sequence[NewJob], cursors: Sequence[Any], whose: Ownership) -> None:
    """COPY takes two thirds of the time of INSERT, but a name that is taken fails it as a whole."""
    tenant, owner, now = whose
    rows = [
        (
            job.number, job.job_id, tenant, job.name, job.partition, job.target, owner, job.spec.tags, job.definition,
            now, now,
        )
        for job, _ in sorted(jobs, key=lambda new: new.job.name)
    ]  # fmt: skip
    await connection.copy_records_to_table("jobs", records=_gently(rows), columns=JOB_COLUMNS)
    await connection.copy_records_to_table("cursors", records=_gently(cursors), columns=CURSOR_COLUMNS)


async def _gently(rows: Sequence[Any]) -> AsyncIterator[Any]:
    """With the loop's turn in between, which also fires."""
    for position, row in enumerate(rows):
        if position % ENCODED_AT_A_TIME == 0:
            await asyncio.sleep(0)
        yield row


async def revise(connection: Any, changes: Sequence[tuple[Prepared, Row]], owner: str | None) -> None:
    """New revisions of jobs, and new places for the cursors of those whose schedule changed; or Moved."""
    jobs = [job for job, _ in changes]
    edits = [edited(job, row) for job, row in changes]
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
    revised = await connection.fetch(statement("revise_jobs"), *zip(*rows, strict=True), owner, last_ticks)
    if len(revised) < len(changes):
        raise Moved
    moves = [_move_of(row, edit) for (_, row), edit in zip(changes, edits, strict=True)]
    await move(connection, [each for each in moves if each is not None], "active", given_up="edited")
    await announce(connection, [job.number for job in jobs])


def _move_of(row: Row, edit: Edit) -> Move | None:
    if edit.place is None or row["status"] == "paused":
        return None
    return Move({**row, "generation": row["generation"] + 1}, edit.place, overdue(row, "edited"))


async def stop(connection: Any, row: Row, status: JobStatus, reason: str | None) -> None:
    await move(connection, [Move(row, NOWHERE, overdue(row, status))], status, reason, given_up=status)
    await announce(connection, [row["job"]])


async def move(
    connection: Any, moves: Sequence[Move], status: JobStatus, reason: str | None = None, *, given_up: str | None = None
) -> None:
    """Cursors from where they were read to where they go, or Moved."""
    if not moves:
        return
    rows = [
        (
            row["job"], row["generation"], row["last_tick"], where.next_tick, where.fire_at,
            status == "active" and where.next_tick is None,
        )
        for row, where, _ in moves
    ]  # fmt: skip
    ranges = [(row["job"], ticks.first, ticks.last, ticks.ticks) for row, _, passed in moves for ticks in passed]
    columns = zip(*ranges, strict=True) if ranges else ([], [], [], [])
    moved = await connection.fetch(
        statement("move_cursors"), *zip(*rows, strict=True), status, reason, *columns, given_up
    )
    if len(moved) < len(moves):
        raise Moved


async def announce(connection: Any, numbers: Sequence[int]) -> None:
    payload = ",".join(map(str, numbers)) if len(numbers) <= ANNOUNCED_SINGLY else "sweep"
    await connection.fetch(statement("wake"), JOBS_CHANNEL, payload)


def _tags(job: Prepared) -> str:
    return msgspec.json.encode(job.spec.tags).decode()


async def _schedule_numbers(connection: Any, jobs: Sequence[Prepared]) -> dict[bytes, int]:
    wanted = {job.digest: job.stored for job in jobs}
    found = await _numbers_of(connection, "schedule_numbers", list(wanted))
    missing = [digest for digest in wanted if digest not in found]
    if missing:
        await connection.fetch(statement("add_schedules"), [wanted[digest] for digest in missing], missing)
        # A statement of its own: it also sees what somebody else was faster to insert.
        found |= await _numbers_of(connection, "schedule_numbers", missing)
    return found


async def _numbers_of(connection: Any, name: str, digests: Sequence[bytes]) -> dict[bytes, int]:
    rows = await connection.fetch(statement(name), digests)
    return {row["digest"]: row["schedule"] for row in rows}


async def _queue_numbers(connection: Any, tenant: int, jobs: Sequence[Prepared]) -> dict[tuple[str, str], int]:
    wanted = list({(job.spec.queue, job.needs) for job in jobs})
    found = await _queues(connection, tenant, wanted)
    missing = [pair for pair in wanted if pair not in found]
    if missing:
        await connection.fetch(statement("add_queues"), tenant, *zip(*missing, strict=True))
        found |= await _queues(connection, tenant, missing)
    return found


async def _queues(connection: Any, tenant: int, pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], int]:
    rows = await connection.fetch(statement("queue_numbers"), tenant, *zip(*pairs, strict=True))
    return {(row["name"], row["needs"]): row["queue"] for row in rows}
