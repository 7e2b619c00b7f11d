"""Jobs: what people register, change, pause, trigger and delete.

A change is computed from what was read and then compared with it: generation and last tick must still be the same,
or it is computed again. So no change overtakes a fire, no fire follows a schedule that is gone, and no tick that was
accounted for comes back. A tick that is due and given up by a change is in the ledger as skipped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

import msgspec
from msgspec import UNSET
from uuid_utils.compat import uuid7

from detent.contract.job import Job, OnResume
from detent.domain.documents import MAX_PAYLOAD_BYTES, check_size, check_text, encode_json, plain
from detent.domain.identity import MANUAL, RunKey
from detent.domain.job import JobSpec
from detent.domain.registration import Prepared, Timings, prepare
from detent.errors import Conflict, NotFound, UsageError
from detent.store import sql
from detent.store.connection import Connection
from detent.store.db import Database, PoolName, Rejected, Row
from detent.store.job_moves import resumed, stopped
from detent.store.job_rows import Change, Expected, canonical, job_of, new_job, patched
from detent.store.job_search import JobSearch, find
from detent.store.job_writes import NAME_INDEX, Moved, NameTaken, NewJob, Ownership, announce, insert, move, revise
from detent.store.live import make_way
from detent.store.tenants import payload_limit, room_for
from detent.store.upkeep import RUNS_CHANNEL

DEFAULT_TENANT = 1
TRIES = 10
EVERYTHING = JobSearch()
ANYTHING = Expected()

JobPage = tuple[list[Job], int | None]
Names = list[str]


class JobStore:
    def __init__(self, database: Database, max_payload_bytes: int = MAX_PAYLOAD_BYTES) -> None:
        self._database = database
        self.max_payload_bytes = max_payload_bytes

    # -- register

    async def add(
        self,
        specs: Sequence[JobSpec],
        *,
        tenant: int = DEFAULT_TENANT,
        owner: str | None = None,
        by: str | None = None,
    ) -> list[Job]:
        """Register jobs, all or none. `by`, here and below, is who says so, for people."""
        if not specs:
            return []
        async with room_for(self._database, tenant, len(specs), self.max_payload_bytes) as room:
            now, timings = room.now, Timings()
            jobs = [
                prepare(spec, uuid7(), number, now, max_payload_bytes=room.max_payload_bytes, timings=timings)
                for spec, number in zip(specs, room.numbers, strict=True)
            ]
            new = [NewJob(job, timings.place(job, now)) for job in jobs]
            await insert(self._database, new, Ownership(tenant, owner, now, by), room)
        return [new_job(job, where, now, owner) for job, where in new]

    async def upsert(
        self,
        spec: JobSpec,
        *,
        tenant: int = DEFAULT_TENANT,
        owner: str | None = None,
        expected: Expected = ANYTHING,
        by: str | None = None,
    ) -> tuple[Job, Change]:
        """Make the job of this name be this: create it, change it, or leave it alone when it is this already."""
        for _ in range(TRIES):
            row = await self._read(tenant, name=spec.name) if spec.name else None
            expected.check(row)
            if row is None:
                try:
                    return (await self.add([spec], tenant=tenant, owner=owner, by=by))[0], "created"
                except Conflict:
                    continue  # somebody else has just created it
            changed = await self._changed_to(spec, row, owner, by)
            if changed is not None:
                return changed
        raise busy(spec.name or "")

    async def patch(
        self,
        job_id: UUID,
        fields: Mapping[str, Any],
        *,
        tenant: int = DEFAULT_TENANT,
        expected: Expected = ANYTHING,
        by: str | None = None,
    ) -> tuple[Job, Change]:
        """Change some fields of a job; None puts one back to its default."""
        for _ in range(TRIES):
            row = await self.existing(tenant, job_id)
            expected.check(row)
            changed = await self._changed_to(patched(row, fields), row, None, by)
            if changed is not None:
                return changed
        raise busy(row["name"])

    async def become(
        self, job_id: UUID, spec: JobSpec, *, tenant: int = DEFAULT_TENANT, by: str | None = None
    ) -> tuple[Job, Change]:
        """Make a job be this, its name included."""
        for _ in range(TRIES):
            row = await self.existing(tenant, job_id)
            changed = await self._changed_to(spec, row, None, by)
            if changed is not None:
                return changed
        raise busy(row["name"])

    async def _changed_to(
        self, spec: JobSpec, row: Row, owner: str | None, by: str | None
    ) -> tuple[Job, Change] | None:
        limit = await payload_limit(self._database, row["tenant"], self.max_payload_bytes)
        job = prepare(spec, row["id"], row["job"], row["created_at"], max_payload_bytes=limit, timings=Timings())
        change = await self._change_to(job, row, owner, by)
        if change is None:
            return None
        return msgspec.structs.replace(await self._one(job.number), warnings=job.warnings), change

    async def _change_to(self, job: Prepared, row: Row, owner: str | None, by: str | None) -> Change | None:
        """None: the job was changed meanwhile."""
        if await self._is_same(job, row):
            if owner is not None and owner != row["owner"]:
                await self._database.fetch(PoolName.REQUEST, sql.job.ADOPT, [row["job"]], owner)
            return "unchanged"
        try:
            await self._database.transaction(PoolName.REQUEST, lambda c: revise(c, [(job, row)], owner, by))
        except Moved:
            return None
        except Rejected as error:
            if error.constraint != NAME_INDEX:
                raise
            raise NameTaken([job.name]) from error
        return "updated"

    async def _is_same(self, job: Prepared, row: Row) -> bool:
        # As documents, so that a field that is newer than the row counts as its default; and as JSON, because the
        # database may write a number otherwise than it was sent.
        if canonical(row["definition"]) == canonical(job.definition):
            return True
        found = await self._database.fetch(PoolName.REQUEST, sql.revision.COMPARE, row["definition"], job.definition)
        return bool(found[0]["same"])

    # -- read

    async def get(self, job_id: UUID, *, tenant: int = DEFAULT_TENANT) -> Job | None:
        """The job of this id; one that was deleted too, with that status."""
        return await self._by_number(await self.number(job_id, tenant=tenant))

    async def find(self, name: str, *, tenant: int = DEFAULT_TENANT) -> Job | None:
        """The job that has this name now."""
        rows = await self._database.fetch(PoolName.REQUEST, sql.job.FIND, tenant, None, name)
        return await self._by_number(rows[0]["job"] if rows else None)

    async def id_of(self, name: str, *, tenant: int = DEFAULT_TENANT) -> UUID | None:
        rows = await self._database.fetch(PoolName.REQUEST, sql.job.FIND, tenant, None, name)
        return rows[0]["id"] if rows else None

    async def number(self, job_id: UUID, *, tenant: int = DEFAULT_TENANT) -> int | None:
        rows = await self._database.fetch(PoolName.REQUEST, sql.job.FIND, tenant, job_id, None)
        return rows[0]["job"] if rows else None

    async def list(
        self,
        search: JobSearch = EVERYTHING,
        *,
        after: int = 0,
        limit: int = 50,
        tenant: int = DEFAULT_TENANT,
    ) -> JobPage:
        """Jobs in the order of their creation, and what to pass as `after` for more, which may be there although the
        page is not full, and is None only at the end."""
        async with self._database.connection(PoolName.REQUEST) as connection, connection.transaction(readonly=True):
            await connection.fetch(sql.database.LIMIT_READER.text)
            numbers, following = await find(connection, tenant, search, after, limit)
            rows = await connection.fetch(sql.job.READ.text, numbers) if numbers else []
        return [job_of(row) for row in rows], following

    async def owned(self, owner: str, *, tenant: int = DEFAULT_TENANT) -> Names:
        """The names of the jobs that this app registered in its code."""
        return [row["name"] for row in await self._database.fetch(PoolName.REQUEST, sql.job.LIST_OWNED, tenant, owner)]

    # -- change

    async def pause(
        self,
        job_id: UUID,
        reason: str | None = None,
        *,
        until: datetime | None = None,
        on_resume: OnResume | None = None,
        tenant: int = DEFAULT_TENANT,
        by: str | None = None,
    ) -> Job:
        """No ticks until somebody resumes it, or until a time. `on_resume`: what then becomes of the ticks between,
        which are skipped if nothing is said. What is left out stays as it is when the job is paused already."""

        async def change(connection: Connection, row: Row) -> None:
            if row["status"] == "completed":
                raise Conflict(f"The job {row['name']!r} is completed: it has no tick left to pause.")
            _check_until(until, row["now"])
            if row["status"] == "active":
                await move(connection, [await asyncio.to_thread(stopped, row, "paused")], by)
                await announce(connection, [row["job"]])
            if not await connection.fetch(sql.job.ANNOTATE_PAUSE.text, row["job"], reason, until, on_resume):
                raise Moved

        return await self._one(await self._change(job_id, tenant, change))

    async def resume(
        self,
        job_id: UUID,
        *,
        on_resume: OnResume | None = None,
        tenant: int = DEFAULT_TENANT,
        by: str | None = None,
    ) -> Job:
        """Go on with the next tick to come. Those of the pause are skipped or run, as the pause said, or this."""

        async def change(connection: Connection, row: Row) -> None:
            if row["status"] == "completed":
                raise Conflict(f"The job {row['name']!r} is completed: it has no tick left to go on with.")
            if row["status"] == "active":
                return
            await move(connection, [await asyncio.to_thread(resumed, row, on_resume or row["on_resume"])], by)
            await announce(connection, [row["job"]])

        return await self._one(await self._change(job_id, tenant, change))

    async def delete(
        self, job_id: UUID, *, tenant: int = DEFAULT_TENANT, expected: Expected = ANYTHING, by: str | None = None
    ) -> None:
        """No more ticks, and the name is free again. Runs under way go on, those that wait are cancelled; history
        stays."""

        async def change(connection: Connection, row: Row) -> None:
            expected.check(row)
            await move(connection, [await asyncio.to_thread(stopped, row, "deleted")], by)
            await connection.fetch(sql.run.END_OF_DELETED_JOBS.text, [row["job"]])
            await announce(connection, [row["job"]])

        await self._change(job_id, tenant, change)

    async def trigger(self, job_id: UUID, payload: object = UNSET, *, tenant: int = DEFAULT_TENANT) -> RunKey:
        """Run the job now, beside its schedule, with a payload of its own if one is given. Where no lane is free, the
        run it names is `skipped: overlap`."""
        if payload is not UNSET:
            limit = await payload_limit(self._database, tenant, self.max_payload_bytes)
            payload = _checked_payload(payload, limit)

        async def change(connection: Connection, row: Row) -> RunKey:
            await connection.fetch(sql.run.LOCK_JOB.text, row["job"])
            made = await connection.fetch(sql.run.TRIGGER.text, row["job"], MANUAL)
            if not made:
                raise missing(job_id)
            run = made[0]
            if payload is not UNSET:
                await connection.fetch(sql.run.STORE_PAYLOAD.text, run["job"], run["at"], encode_json(payload))
            if run["lane"] is not None:
                await connection.fetch(sql.feed.NOTIFY.text, RUNS_CHANNEL, str(run["queue"]))
                await make_way(connection, run)
            return RunKey(run["job"], run["at"], run["serial"])

        row = await self.existing(tenant, job_id)
        key: RunKey = await self._database.transaction(PoolName.REQUEST, lambda c: change(c, row))
        return key

    async def _change(self, job_id: UUID, tenant: int, change: Callable[[Connection, Row], Awaitable[None]]) -> int:
        for _ in range(TRIES):
            row = await self.existing(tenant, job_id)
            try:
                await self._database.transaction(PoolName.REQUEST, partial(_with_row, change, row))
            except Moved:
                continue
            return int(row["job"])
        raise busy(row["name"])

    async def existing(self, tenant: int, job_id: UUID) -> Row:
        row = await self._read(tenant, job_id=job_id)
        if row is None:
            raise missing(job_id)
        return row

    async def _read(self, tenant: int, job_id: UUID | None = None, name: str | None = None) -> Row | None:
        rows = await self._database.fetch(PoolName.REQUEST, sql.job.READ_FOR_CHANGE, tenant, job_id, name)
        return rows[0] if rows else None

    async def _one(self, number: int) -> Job:
        return job_of((await self._database.fetch(PoolName.REQUEST, sql.job.READ, [number]))[0])

    async def _by_number(self, number: int | None) -> Job | None:
        return None if number is None else await self._one(number)


def missing(job_id: UUID) -> NotFound:
    return NotFound(f"There is no job {job_id}: list the jobs to see those there are.")


def busy(name: str) -> Conflict:
    return Conflict(f"The job {name!r} is being changed by others at this moment: try again.")


def _checked_payload(payload: object, max_bytes: int) -> object:
    document = plain({"payload": payload})
    check_text(document)
    check_size(document, max_bytes)
    return document["payload"]


def _check_until(until: datetime | None, now: datetime) -> None:
    if until is not None and until <= now:
        raise UsageError(
            f"until is {until:%Y-%m-%dT%H:%M:%SZ}, which is past: give a later time, or leave it out to pause until "
            "somebody resumes the job.",
            "/until",
        )


async def _with_row(change: Callable[[Connection, Row], Awaitable[None]], row: Row, connection: Connection) -> None:
    await change(connection, row)
