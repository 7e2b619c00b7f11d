"""What happens to jobs beside being changed: single ticks that are skipped, runs that are cancelled, pauses that end by
themselves, jobs that are paused because all their runs fail, one-offs that are over and done with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from detent.contract.tick import Skip
from detent.domain.identity import RunKey
from detent.domain.job import JobSpec
from detent.domain.registration import schedule_of
from detent.domain.schedule import Schedule
from detent.errors import Conflict, NotFound, UsageError
from detent.store import sql
from detent.store.connection import Connection
from detent.store.db import Database, PoolName, Row
from detent.store.job_writes import Moved, announce
from detent.store.jobs import DEFAULT_TENANT, TRIES, JobStore, busy
from detent.store.runs import number_of
from detent.store.upkeep import RUNS_CHANNEL
from detent.telemetry.log import logger

log = logger("jobs")

ITSELF = "detent"
MOST_RESUMED = 1000
LOOK_AGAIN = 0.5
MOST_COLLECTED = 1000


class Cancelled(NamedTuple):
    """What became of the open runs of a job: those that nobody had are over, the others were asked to stop."""

    cancelled: list[RunKey]
    stopping: list[RunKey]


class LifeStore:
    def __init__(self, database: Database, jobs: JobStore) -> None:
        self._database = database
        self._jobs = jobs

    # -- what people ask for

    async def skip(
        self,
        job_id: UUID,
        at: datetime,
        reason: str | None = None,
        *,
        tenant: int = DEFAULT_TENANT,
        by: str | None = None,
    ) -> Skip:
        """The tick at this instant is not to run; the schedule goes on behind it."""

        async def change(connection: Connection, row: Row) -> Skip:
            _check_tick(row, at)
            kept = await connection.fetch(sql.skip.ADD.text, row["job"], at, reason, by, row["generation"])
            if not kept:
                raise Moved
            await announce(connection, [row["job"]])
            return Skip(at=at, reason=reason, created_at=kept[0]["created_at"], created_by=by)

        skip: Skip = await self._change(job_id, tenant, change)
        return skip

    async def unskip(self, job_id: UUID, at: datetime, *, tenant: int = DEFAULT_TENANT) -> None:
        """The tick at this instant is to run after all."""

        async def change(connection: Connection, row: Row) -> None:
            skips = {each["tick"] for each in await connection.fetch(sql.skip.LIST_OF_JOB.text, row["job"])}
            if at not in skips:
                raise NotFound(
                    f"The tick {_text(at)} of {row['name']!r} was not to be skipped: there is nothing to undo."
                )
            if row["last_tick"] is not None and at <= row["last_tick"]:
                raise Conflict(f"The tick {_text(at)} of {row['name']!r} has passed: trigger the job instead.")
            if not await connection.fetch(sql.skip.REMOVE.text, row["job"], at, row["generation"]):
                raise Moved
            await announce(connection, [row["job"]])

        await self._change(job_id, tenant, change)

    async def skips(self, job_id: UUID, *, tenant: int = DEFAULT_TENANT) -> list[Skip]:
        """The ticks of a job that are not to run, and those that were not, for as long as history goes back."""
        number = await number_of(self._database, job_id, tenant)
        rows = await self._database.fetch(PoolName.REQUEST, sql.skip.LIST_OF_JOB, number)
        return [
            Skip(at=row["tick"], reason=row["reason"], created_at=row["created_at"], created_by=row["created_by"])
            for row in rows
        ]

    async def cancel_runs(self, job_id: UUID, *, tenant: int = DEFAULT_TENANT) -> Cancelled:
        """Cancel all runs of a job that are not over. Its schedule goes on."""
        row = await self._jobs.existing(tenant, job_id)

        async def work(connection: Connection) -> Cancelled:
            runs = await connection.fetch(sql.run.LIST_OPEN.text, row["job"])
            if not runs:
                return Cancelled([], [])
            found = await connection.fetch(sql.run.CANCEL.text, *zip(*(run.values() for run in runs), strict=True))
            stopping = [_key(run) for run in found if run["owner"] is not None]
            if stopping:
                await connection.fetch(sql.feed.NOTIFY.text, RUNS_CHANNEL, "cancel")
            return Cancelled([_key(run) for run in found if run["owner"] is None], stopping)

        done: Cancelled = await self._database.transaction(PoolName.REQUEST, work)
        return done

    async def _change(self, job_id: UUID, tenant: int, change: Callable[[Connection, Row], Any]) -> Any:
        for _ in range(TRIES):
            row = await self._jobs.existing(tenant, job_id)
            try:
                return await self._database.transaction(PoolName.REQUEST, partial(_with_row, change, row))
            except Moved:
                continue
        raise busy(row["name"])

    # -- what happens by itself; any node may do it, and two that do it at once do it once

    async def end_pauses(self) -> float | None:
        """Resume jobs whose pause was to last until now; the seconds until the next pause ends, if one does."""
        rows = await self._database.fetch(PoolName.REQUEST, sql.job.LIST_ENDING_PAUSES, MOST_RESUMED)
        for row in rows:
            if row["seconds"] > 0:
                return float(row["seconds"])
            await self._quietly(self._jobs.resume, row["id"], tenant=row["tenant"], by=ITSELF)
        return LOOK_AGAIN if rows else None

    async def pause_failing(self, jobs: Sequence[int]) -> list[UUID]:
        """Runs of these jobs have died: pause those that had nothing but dead runs for as long as they bear it."""
        rows = await self._database.fetch(PoolName.REQUEST, sql.job.FIND_DEAD_STREAKS, list(jobs))
        for row in rows:
            reason = f"the last {row['bears']} runs were dead" if row["bears"] > 1 else "the last run was dead"
            await self._quietly(self._jobs.pause, row["id"], reason, tenant=row["tenant"], by=ITSELF)
            log.warning("job paused: its runs are dead", job=str(row["id"]), runs=row["bears"])
        return [row["id"] for row in rows]

    async def _quietly(self, verb: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        """One that cannot be changed keeps no other from it: somebody else was faster, or it is gone."""
        try:
            await verb(*arguments, **options)
        except (NotFound, Conflict, UsageError) as error:
            log.warning("a job was left as it is", error=str(error))

    async def collect(self) -> int:
        """Delete one-offs that were completed long enough ago; how many."""
        count = 0
        while rows := await self._database.fetch(PoolName.REQUEST, sql.job.COLLECT, MOST_COLLECTED, ITSELF):
            count += len(rows)
        return count


async def _with_row(change: Callable[[Connection, Row], Any], row: Row, connection: Connection) -> Any:
    return await change(connection, row)


def _check_tick(row: Row, at: datetime) -> None:
    """Only a tick that is yet to come can be skipped."""
    name, now = row["name"], row["now"]
    if row["status"] == "completed":
        raise Conflict(f"The job {name!r} is completed: it has no tick left to skip.")
    last = row["last_tick"]
    if at <= now or (last is not None and at <= last):
        raise UsageError(f"at is {_text(at)}, which is past: only a tick that is yet to come can be skipped.", "/at")
    schedule = _schedule(row)
    if schedule.latest(at, at) != at:
        raise UsageError(f"at is {_text(at)}, which is no tick of {name!r}: {_nearest(schedule, at, now)}.", "/at")


def _nearest(schedule: Schedule, at: datetime, now: datetime) -> str:
    before, after = schedule.latest(now, at), schedule.next_after(at)
    if before is None and after is None:
        return "it has no tick left"
    near = [tick for tick in (before, after) if tick is not None]
    return f"the nearest {'are' if len(near) > 1 else 'is'} {' and '.join(map(_text, near))}"


def _schedule(row: Row) -> Schedule:
    spec = msgspec.json.decode(row["definition"], type=JobSpec)
    schedule = schedule_of(spec, row["job"], row["created_at"])
    first = row["next_tick"]
    # The instant of a one-off may be another than its job says, when that had passed.
    return schedule.anchored(first) if schedule.kind == "once" and first is not None else schedule


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds" if moment.microsecond else "seconds").replace("+00:00", "Z")


def _key(row: Row) -> RunKey:
    return RunKey(row["job"], row["scheduled_at"], row["serial"])
