"""Lines and progress of runs: what their workers add, and what readers see."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import NamedTuple
from uuid import UUID

from detent.contract.run import LogLine, RunProgress
from detent.domain.identity import RunKey, decode_run_id
from detent.domain.run_output import (
    HEAD_LINES,
    TAIL_PART,
    OutputChunk,
    OutputLine,
    ProgressMark,
    decode_lines,
    encode_lines,
    last_lines,
    left_out,
)
from detent.domain.states import RunStatus
from detent.store import sql
from detent.store.connection import Connection
from detent.store.db import Database, PoolName, Row
from detent.store.job_limits import job_limits
from detent.store.run_rows import instant_of, status_of

# A page has at most 1,000 lines, which is all that is kept of an attempt; chunks of a line each are the worst case.
CHUNKS_READ = 1_001
LATELY = timedelta(seconds=5)


class LogPlace(NamedTuple):
    """Where a reader of lines continues: behind this line."""

    token: int = 0
    number: int = 0


class LogPart(NamedTuple):
    """Some lines, how many were left out between them, and the place of the last one."""

    lines: list[LogLine]
    left_out: int
    place: LogPlace
    more: bool
    places: list[LogPlace]

    def placed(self) -> Iterator[tuple[LogPlace, LogLine]]:
        """Each line with its place."""
        return zip(self.places, self.lines, strict=True)


class FollowedRun(NamedTuple):
    """What a follower needs to know of a run. `ended_lately`: its last lines may not be written yet."""

    status: RunStatus
    ended_lately: bool
    progress: RunProgress | None


class OutputStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, chunks: Sequence[OutputChunk]) -> None:
        """Add chunks of lines, each with its own key."""
        columns = [
            (*_key(chunk.run_id), chunk.token, chunk.attempt, chunk.part, chunk.first, chunk.last, chunk.lines)
            for chunk in chunks
        ]
        await self._database.fetch(PoolName.OUTPUT, sql.output.ADD, *zip(*columns, strict=True))

    async def add_progress(self, marks: Sequence[ProgressMark], *, pool: PoolName = PoolName.OUTPUT) -> None:
        """Record how far runs are, each of them once."""
        columns = [(*_key(mark.run_id), mark.token, mark.at, mark.fraction, mark.message) for mark in marks]
        await self._database.fetch(pool, sql.output.ADD_PROGRESS, *zip(*columns, strict=True))

    async def read(
        self, key: RunKey, place: LogPlace, *, tenant: int, attempt: int | None = None, limit: int = 500
    ) -> LogPart:
        """Lines of a run behind this place."""
        arguments = (*key, tenant, job_limits(), attempt, *place, min(limit + 1, CHUNKS_READ))
        rows = await self._database.fetch(PoolName.REQUEST, sql.output.LIST, *arguments)
        lines: list[LogLine] = []
        places: list[LogPlace] = []
        missing = 0
        for row in rows:
            after = place.number if row["token"] == place.token else 0
            fresh = [line for line in decode_lines(row["lines"]) if line.number > after][: limit - len(lines)]
            if not fresh:
                continue
            missing += left_out(fresh, after)
            lines += [_line(row["attempt"], line) for line in fresh]
            places += [LogPlace(row["token"], line.number) for line in fresh]
            place = places[-1]
        last = LogPlace(rows[-1]["token"], rows[-1]["last"]) if rows else place
        return LogPart(lines, missing, place, place < last, places)

    async def followed(self, key: RunKey, *, tenant: int) -> FollowedRun | None:
        """None: there is no such run."""
        async with self._database.connection(PoolName.REQUEST) as connection:
            rows = await connection.fetch(sql.run.READ.text, *key, tenant, job_limits())
            if not rows:
                return None
            (clock,) = await connection.fetch(sql.database.CLOCK.text)
            progress = await progress_of(connection, rows)
        finished = rows[0]["finished_at"]
        lately = finished is not None and clock["now"] - finished < LATELY
        return FollowedRun(status_of(rows[0]), lately, progress.get(1))

    async def add_pulled(
        self, key: RunKey, token: int, given: Sequence[OutputLine], limit: int, *, tenant: int
    ) -> bool:
        """Add lines of a pulled run; False: it is no longer held under this token."""

        async def work(connection: Connection) -> bool:
            leases = await connection.fetch(sql.output.LOCK_LEASE.text, tenant, *key, token)
            if not leases:
                return False
            written = await connection.fetch(sql.output.READ_WRITTEN.text, *key, token)
            for part, lines in _continued(written, given, limit):
                first, last = lines[0].number, lines[-1].number
                row = (*key, token, leases[0]["attempt"], part, first, last, encode_lines(lines))
                await connection.fetch(sql.output.ADD.text, *([value] for value in row))
            return True

        return await self._database.transaction(PoolName.PULL, work)


async def progress_of(connection: Connection, rows: Sequence[Row]) -> dict[int, RunProgress]:
    """How far these runs are, by their positions from 1 on: those whose present attempt has reported it."""
    running = [(place, row) for place, row in enumerate(rows, 1) if row["status"] == "running"]
    if not running:
        return {}
    keys = [(row["job"], row["scheduled_at"], row["serial"]) for _, row in running]
    found = {}
    for mark in await connection.fetch(sql.output.READ_PROGRESS.text, *zip(*keys, strict=True)):
        place, row = running[mark["position"] - 1]
        if mark["token"] == row["token"]:
            fraction = round(mark["fraction"], 4)
            found[place] = RunProgress(fraction=fraction, message=mark["message"] or None, at=mark["at"])
    return found


def _continued(
    written: Sequence[Row], given: Sequence[OutputLine], limit: int
) -> list[tuple[int, Sequence[OutputLine]]]:
    """The parts to write: the given lines behind those that are there, the first of them while there is room."""
    number = max((row["last"] for row in written), default=0)
    lines = [line._replace(number=number + place) for place, line in enumerate(given, 1)]
    head = [row for row in written if row["part"] != TAIL_PART]
    room = limit // 2 - sum(row["size"] for row in head)
    tail = [row for row in written if row["part"] == TAIL_PART]
    parts: list[tuple[int, Sequence[OutputLine]]] = []
    if not tail:
        fitting = 0
        while fitting < len(lines) and room > 0 and number + fitting < HEAD_LINES:
            room -= lines[fitting].size
            fitting += 1
        if fitting:
            parts.append((len(head) + 1, lines[:fitting]))
        lines = lines[fitting:]
    if lines:
        before = decode_lines(tail[0]["lines"]) if tail else []
        parts.append((TAIL_PART, last_lines([*before, *lines], limit // 2)))
    return parts


def _line(attempt: int, line: OutputLine) -> LogLine:
    return LogLine(
        attempt=attempt,
        number=line.number,
        at=instant_of(line.at_ms),
        level=line.level,
        logger=line.logger,
        message=line.message,
    )


def _key(run_id: str) -> RunKey:
    key = decode_run_id(UUID(run_id))
    if key is None:
        raise ValueError(f"{run_id} is not the id of a run")
    return key
