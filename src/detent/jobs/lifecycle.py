"""What operators do with a job besides editing it: pause, resume, delete and trigger it, skip single ticks, cancel its
runs.

As in `register`, a change is computed from the row that was read and written only if the job is still the same.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from typing import NamedTuple, TypeVar
from uuid import UUID

import msgspec
from msgspec import UNSET

from detent.contract.job import IfBusy, Job, OnResume
from detent.contract.tick import Skip
from detent.domain.delay_rules import ticks_unknown
from detent.domain.documents import MAX_PAYLOAD_BYTES, check_size, check_text, encode_json, plain
from detent.domain.identity import RunKey
from detent.domain.job import JobSpec
from detent.domain.payload_schema import check_payload
from detent.domain.schedule import Schedule
from detent.domain.schedule.schedule import NO_LIMIT
from detent.domain.schedule.steps import Steps
from detent.domain.task_rules import without_ticks
from detent.errors import Conflict, JobNotFound, NotFound, UsageError
from detent.jobs import job_events
from detent.jobs.edits import Expected
from detent.jobs.limits import busy
from detent.jobs.moves import resumed, schedule_of_row, stopped
from detent.jobs.register import ANYTHING, ATTEMPTS
from detent.jobs.secret_faults import payload_secrets, unknown_in_payload
from detent.runtime.arithmetic import compute
from detent.store import Store
from detent.store.audit_log import record
from detent.store.connection import Connection
from detent.store.db import PoolName, Rejected, Row
from detent.store.job_writes import Moved, announce, cancel_waiting, move, set_pause
from detent.store.jobs import DEFAULT_TENANT
from detent.store.live_runs import cancel_open
from detent.store.secrets import MissingSecrets, keep
from detent.store.skips import add_skip, remove_skip, skips_of
from detent.store.tasks import JOB_GONE, trigger
from detent.store.tenants import payload_limit

Result = TypeVar("Result")
HAS_SCHEMA = '"payload_schema"'
ChangeVerb = Callable[[Connection, Row], Awaitable[Result]]


class CancelledOpenRuns(NamedTuple):
    """The open runs of a job: those that no worker held are cancelled, the others were asked to stop. `more`: more of
    them wait than one call cancels."""

    cancelled: list[RunKey]
    stopping: list[RunKey]
    more: bool


class JobLifecycle:
    def __init__(self, store: Store, max_payload_bytes: int = MAX_PAYLOAD_BYTES) -> None:
        self._store = store
        self._database = store.database
        self._max_payload_bytes = max_payload_bytes

    async def pause(
        self,
        job_id: UUID,
        reason: str | None = None,
        *,
        until: datetime | None = None,
        on_resume: OnResume | None = None,
        tenant: int = DEFAULT_TENANT,
        by: str | None = None,
        steps: Steps = NO_LIMIT,
        recorded: bool = True,
        only_if: Callable[[Row], bool] = lambda _: True,
    ) -> Job:
        """Stop the ticks until an operator resumes the job, or until a time. `on_resume` says what then happens to the
        ticks of the pause; by default they are skipped. If the job is paused already, omitted values stay. Nothing is
        changed unless the job is as `only_if` says.

        Here and below, `steps` counts what the ticks of its schedule cost, and `recorded` is False if the change is
        part of one for many jobs, which has an event of its own."""

        async def change(connection: Connection, row: Row) -> int:
            if not only_if(row):
                return int(row["job"])
            if row["status"] == "completed":
                raise Conflict(f"The job {row['name']!r} is completed: it has no tick left to pause.")
            _check_until(until, row["now"])
            if row["status"] == "active":
                await move(connection, [await compute(stopped, row, "paused", steps)], by)
                await announce(connection, [row["job"]])
            await set_pause(connection, row["job"], reason, until, on_resume)
            if recorded and (row["status"] == "active" or (reason, until, on_resume) != (None, None, None)):
                await record(connection, job_events.paused(row, reason, until, on_resume))
            return int(row["job"])

        return await self._store.jobs.by_number(await self._change(job_id, tenant, change))

    async def resume(
        self,
        job_id: UUID,
        *,
        on_resume: OnResume | None = None,
        tenant: int = DEFAULT_TENANT,
        by: str | None = None,
        steps: Steps = NO_LIMIT,
        recorded: bool = True,
    ) -> Job:
        """Continue with the next tick. Those of the pause are skipped or run, as `on_resume` or else the pause says."""

        async def change(connection: Connection, row: Row) -> int:
            if row["status"] == "completed":
                raise Conflict(f"The job {row['name']!r} is completed: it has no tick left to continue with.")
            if row["status"] == "paused":
                chosen = on_resume or row["on_resume"]
                await move(connection, [await compute(resumed, row, chosen, steps)], by)
                await announce(connection, [row["job"]])
                if recorded:
                    await record(connection, job_events.resumed(row, chosen))
            return int(row["job"])

        return await self._store.jobs.by_number(await self._change(job_id, tenant, change))

    async def delete(
        self,
        job_id: UUID,
        *,
        tenant: int = DEFAULT_TENANT,
        expected: Expected = ANYTHING,
        by: str | None = None,
        steps: Steps = NO_LIMIT,
        recorded: bool = True,
    ) -> None:
        """End the ticks and free the name. Running runs continue, waiting ones are cancelled, history stays."""

        async def change(connection: Connection, row: Row) -> None:
            expected.check(row)
            await move(connection, [await compute(stopped, row, "deleted", steps)], by)
            await cancel_waiting(connection, [row["job"]])
            await announce(connection, [row["job"]])
            if recorded:
                await record(connection, job_events.deleted(row))

        await self._change(job_id, tenant, change)

    async def trigger(
        self,
        job_id: UUID,
        payload: object = UNSET,
        *,
        tenant: int = DEFAULT_TENANT,
        may_refer: bool = True,
        if_busy: IfBusy = "wait",
    ) -> RunKey:
        """Run the job now, outside its schedule, with another payload if one is given. If the job has its maximum of
        unfinished runs, the run waits for one of them to end, or Conflict is raised. `may_refer`: whether the payload
        may refer to secrets."""
        text: str | None = None
        secrets: tuple[str, ...] = ()
        if payload is not UNSET:
            limit = await payload_limit(self._database, tenant, self._max_payload_bytes)
            text = encode_json(_checked_payload(payload, limit))
            secrets = payload_secrets(payload, allowed=may_refer)
        row = await self._store.jobs.to_change(tenant, job_id)
        if HAS_SCHEMA in row["definition"]:
            await compute(check_payload, msgspec.json.decode(row["definition"], type=JobSpec), payload)

        async def start(connection: Connection) -> RunKey:
            await keep(connection, tenant, secrets)
            started = await trigger(connection, row["job"], text)
            if started is None:
                raise JobNotFound(job_id)
            key, waits = started
            if waits and if_busy == "refuse":
                raise Conflict(
                    f"Not started: the job {row['name']!r} already has its maximum of unfinished runs. Wait until one "
                    'has ended, cancel one, or let the run wait with if_busy "wait".'
                )
            await record(connection, job_events.triggered(row, key, text is not None))
            return key

        try:
            key: RunKey = await self._database.transaction(PoolName.REQUEST, start)
        except MissingSecrets as error:
            raise unknown_in_payload(payload, error.names) from error
        except Rejected as error:
            if error.sqlstate == JOB_GONE:
                raise JobNotFound(job_id) from error
            raise
        return key

    async def skip(
        self,
        job_id: UUID,
        at: datetime,
        reason: str | None = None,
        *,
        tenant: int = DEFAULT_TENANT,
        by: str | None = None,
    ) -> Skip:
        """Skip the tick at this instant; the schedule continues after it."""

        async def change(connection: Connection, row: Row) -> Skip:
            await compute(_check_tick, row, at)
            skip = await add_skip(connection, row, at, reason, by)
            await announce(connection, [row["job"]])
            await record(connection, job_events.skipped(row, at, reason))
            return skip

        return await self._change(job_id, tenant, change)

    async def unskip(self, job_id: UUID, at: datetime, *, tenant: int = DEFAULT_TENANT) -> None:
        """Undo `skip`."""

        async def change(connection: Connection, row: Row) -> None:
            if at not in await skips_of(connection, row["job"]):
                raise NotFound(f"The tick {_text(at)} of {row['name']!r} is not marked to be skipped.")
            if row["last_tick"] is not None and at <= row["last_tick"]:
                raise Conflict(f"The tick {_text(at)} of {row['name']!r} has passed: trigger the job instead.")
            await remove_skip(connection, row, at)
            await announce(connection, [row["job"]])
            await record(connection, job_events.unskipped(row, at))

        await self._change(job_id, tenant, change)

    async def skips(self, job_id: UUID, *, tenant: int = DEFAULT_TENANT) -> list[Skip]:
        """The ticks of a job that are marked to be skipped, and those that were, as far back as history goes."""
        number = await self._store.jobs.number(job_id, tenant=tenant)
        if number is None:
            raise JobNotFound(job_id)
        return await self._store.skips.list(number)

    async def cancel_runs(self, job_id: UUID, *, tenant: int = DEFAULT_TENANT) -> CancelledOpenRuns:
        """Cancel all unfinished runs of a job, or as many that wait as one call may. Its schedule continues."""
        row = await self._store.jobs.to_change(tenant, job_id)

        async def work(connection: Connection) -> CancelledOpenRuns:
            owners, more = await cancel_open(connection, row["job"])
            if owners:
                await record(connection, job_events.cancelled(row, owners))
            stopping = [key for key, owner in owners.items() if owner is not None]
            return CancelledOpenRuns([key for key, owner in owners.items() if owner is None], stopping, more)

        done: CancelledOpenRuns = await self._database.transaction(PoolName.REQUEST, work)
        return done

    async def _change(self, job_id: UUID, tenant: int, change: ChangeVerb[Result]) -> Result:
        for _ in range(ATTEMPTS):
            row = await self._store.jobs.to_change(tenant, job_id)
            try:
                result: Result = await self._database.transaction(PoolName.REQUEST, partial(_with_row, change, row))
            except Moved:
                continue
            return result
        raise busy(row["name"])


async def _with_row(change: ChangeVerb[Result], row: Row, connection: Connection) -> Result:
    return await change(connection, row)


def _checked_payload(payload: object, max_bytes: int) -> object:
    document = plain({"payload": payload})
    check_text(document)
    check_size(document, max_bytes)
    return document["payload"]


def _check_until(until: datetime | None, now: datetime) -> None:
    if until is not None and until <= now:
        raise UsageError(
            f"until is {until:%Y-%m-%dT%H:%M:%SZ}, which is in the past: give a later time, or leave it out to pause "
            "until the job is resumed.",
            "/until",
        )


def _check_tick(row: Row, at: datetime) -> None:
    """Only a future tick can be skipped."""
    name, now = row["name"], row["now"]
    if row["status"] == "completed":
        raise Conflict(f"The job {name!r} is completed: it has no tick left to skip.")
    last = row["last_tick"]
    if at <= now or (last is not None and at <= last):
        raise UsageError(f"at is {_text(at)}, which is in the past: only a future tick can be skipped.", "/at")
    schedule = _schedule(row)
    if schedule.never:
        raise without_ticks(name)
    if schedule.delay is not None:
        raise ticks_unknown(name)
    if schedule.latest(at, at) != at:
        raise UsageError(f"at is {_text(at)}, which is not a tick of {name!r}: {_nearest(schedule, at, now)}.", "/at")


def _nearest(schedule: Schedule, at: datetime, now: datetime) -> str:
    before, after = schedule.latest(now, at), schedule.next_after(at)
    if before is None and after is None:
        return "it has no tick left"
    near = [tick for tick in (before, after) if tick is not None]
    return f"the nearest {'are' if len(near) > 1 else 'is'} {' and '.join(map(_text, near))}"


def _schedule(row: Row) -> Schedule:
    schedule = schedule_of_row(row)
    first = row["next_tick"]
    # The cursor of a one-off whose instant had passed may be at another instant than its definition says.
    return schedule.anchored(first) if schedule.kind == "once" and first is not None else schedule


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds" if moment.microsecond else "seconds").replace("+00:00", "Z")
