"""Many jobs in one call, all or none: registered anew, or made to be what they should be by their names.

Reading ten thousand jobs takes a quarter of a second on the loop that also fires, so it is done a few at a time, with
the loop's turn in between. Every item that is wrong is told, not only the first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import NamedTuple
from uuid import UUID

from uuid_utils.compat import uuid7

from detent.domain.documents import MAX_PAYLOAD_BYTES
from detent.domain.job import JobSpec
from detent.domain.registration import Prepared, Timings, prepare
from detent.errors import Conflict, ManyFaults, UsageError
from detent.store import sql
from detent.store.connection import Connection
from detent.store.db import Database, PoolName, Rejected, Row
from detent.store.job_rows import Change, canonical
from detent.store.job_writes import (
    NAME_INDEX,
    Moved,
    NameTaken,
    NewJob,
    Ownership,
    announce,
    insert,
    insert_on,
    revise,
)
from detent.store.jobs import DEFAULT_TENANT, TRIES
from detent.store.tenants import Room, room_for, use_room

AT_A_TIME = 64
MOST_FAULTS = 100


class Registered(NamedTuple):
    """What became of one item."""

    id: UUID
    name: str
    change: Change
    revision: int
    warnings: list[str]


class Plan(NamedTuple):
    """What there is to do, which jobs are as they should be, and how it will be told, item by item."""

    new: list[NewJob]
    changed: list[tuple[Prepared, Row]]
    same: list[Row]
    told: list[Registered]


class BatchStore:
    def __init__(self, database: Database, max_payload_bytes: int = MAX_PAYLOAD_BYTES) -> None:
        self._database = database
        self.max_payload_bytes = max_payload_bytes

    async def create(
        self,
        items: Sequence[JobSpec | UsageError],
        *,
        tenant: int = DEFAULT_TENANT,
        owner: str | None = None,
        by: str | None = None,
    ) -> list[Registered]:
        """Register jobs, all or none. An item may also be the fault that was found while reading it."""
        async with room_for(self._database, tenant, len(items), self.max_payload_bytes) as room:
            plan = await self._plan(items, {}, room)
            try:
                await insert(self._database, plan.new, Ownership(tenant, owner, room.now, by), room)
            except NameTaken as error:
                raise _taken(items, error) from error
        return plan.told

    async def upsert(
        self,
        items: Sequence[JobSpec | UsageError],
        *,
        tenant: int = DEFAULT_TENANT,
        owner: str | None = None,
        by: str | None = None,
    ) -> list[Registered]:
        """Make the jobs of these names be these, all or none: created, changed, or left alone when they are these
        already. What has no name is created."""
        for _ in range(TRIES):
            existing = await self._existing(items, tenant)
            new = len(items) - len(existing)
            try:
                async with room_for(self._database, tenant, new, self.max_payload_bytes) as room:
                    plan = await self._plan(items, existing, room)
                    whose = Ownership(tenant, owner, room.now, by)
                    await self._database.transaction(PoolName.REQUEST, partial(_write, plan, whose, room))
            except (Moved, NameTaken):
                continue  # somebody else was faster: compare again
            except Rejected as error:
                if error.constraint != NAME_INDEX:
                    raise
                continue
            return plan.told
        raise Conflict("These jobs are being changed by others at this moment: try again.")

    async def _existing(self, items: Sequence[JobSpec | UsageError], tenant: int) -> dict[str, Row]:
        names = [item.name for item in items if isinstance(item, JobSpec) and item.name is not None]
        rows = await self._database.fetch(PoolName.REQUEST, sql.job.READ_MANY_FOR_CHANGE, tenant, names)
        return {row["name"]: row for row in rows}

    async def _plan(self, items: Sequence[JobSpec | UsageError], existing: Mapping[str, Row], room: Room) -> Plan:
        planner = Planner(existing, room)
        for position, item in enumerate(items):
            if position % AT_A_TIME == 0:
                await asyncio.sleep(0)
            planner.take(position, item)
        planner.check()
        plan = planner.plan
        return plan._replace(changed=await self._really_changed(plan))

    async def _really_changed(self, plan: Plan) -> list[tuple[Prepared, Row]]:
        """Without those whose JSON the database only writes otherwise than it was sent; `told` is put right too."""
        if not plan.changed:
            return []
        before, after = zip(*((row["definition"], job.definition) for job, row in plan.changed), strict=True)
        rows = await self._database.fetch(PoolName.REQUEST, sql.revision.COMPARE_MANY, before, after)
        same = {row["position"] for row in rows}
        plan.same.extend(plan.changed[position - 1][1] for position in same)
        ids = {plan.changed[position - 1][0].job_id for position in same}
        for index, told in enumerate(plan.told):
            if told.id in ids:
                plan.told[index] = told._replace(change="unchanged", revision=told.revision - 1)
        return [change for position, change in enumerate(plan.changed, 1) if position not in same]


class Planner:
    """Takes the items one after another and remembers what is wrong with them."""

    def __init__(self, existing: Mapping[str, Row], room: Room) -> None:
        self.plan = Plan([], [], [], [])
        self._existing = existing
        self._numbers = iter(room.numbers)
        self._now = room.now
        self._max_payload_bytes = room.max_payload_bytes
        self._timings = Timings()
        self._seen: dict[str, int] = {}
        self._faults: list[UsageError] = []
        self._wrong = 0

    def take(self, position: int, item: JobSpec | UsageError) -> None:
        try:
            if isinstance(item, UsageError):
                raise item
            self._check_name(position, item.name)
            self._take(item)
        except UsageError as fault:
            self._wrong += 1
            if len(self._faults) < MOST_FAULTS:
                self._faults.append(UsageError(fault.message, f"/{position}{fault.pointer}"))

    def check(self) -> None:
        if not self._faults:
            return
        first = self._faults[0]
        what = "One of the jobs is wrong" if self._wrong == 1 else f"{self._wrong} of the jobs are wrong"
        told = "" if self._wrong <= MOST_FAULTS else f" The first {MOST_FAULTS} are told."
        raise ManyFaults(f"{what}, so none was registered; at {first.pointer}: {first.message}{told}", self._faults)

    def _check_name(self, position: int, name: str | None) -> None:
        if name is None:
            return
        earlier = self._seen.setdefault(name, position)
        if earlier != position:
            raise UsageError(f"The name {name!r} is that of the job at /{earlier} already: choose another.", "/name")

    def _take(self, spec: JobSpec) -> None:
        row = self._existing.get(spec.name) if spec.name is not None else None
        if row is None:
            job = self._prepare(spec, uuid7(), next(self._numbers), self._now)
            self.plan.new.append(NewJob(job, self._timings.place(job, self._now)))
            self._tell(job, "created", 1)
            return
        job = self._prepare(spec, row["id"], row["job"], row["created_at"])
        if canonical(row["definition"]) == canonical(job.definition):
            self.plan.same.append(row)
            self._tell(job, "unchanged", row["revision"])
        else:
            self.plan.changed.append((job, row))
            self._tell(job, "updated", row["revision"] + 1)

    def _prepare(self, spec: JobSpec, job_id: UUID, number: int, created_at: datetime) -> Prepared:
        return prepare(
            spec, job_id, number, created_at, max_payload_bytes=self._max_payload_bytes, timings=self._timings
        )

    def _tell(self, job: Prepared, change: Change, revision: int) -> None:
        self.plan.told.append(Registered(job.job_id, job.name, change, revision, job.warnings))


async def _write(plan: Plan, whose: Ownership, room: Room, connection: Connection) -> None:
    if plan.new:
        await insert_on(connection, plan.new, whose)
        await use_room(connection, room)
        await announce(connection, [new.job.number for new in plan.new])
    if plan.changed:
        await revise(connection, plan.changed, whose.owner, whose.by)
    adopted = [row["job"] for row in plan.same if whose.owner not in (None, row["owner"])]
    if adopted:
        await connection.fetch(sql.job.ADOPT.text, adopted, whose.owner)


def _taken(items: Sequence[JobSpec | UsageError], error: NameTaken) -> Conflict:
    faults = [
        UsageError(f"There is already a job named {item.name!r}: choose another name.", f"/{position}/name")
        for position, item in enumerate(items)
        if isinstance(item, JobSpec) and item.name in error.names
    ]
    return NamesTaken(error.message, faults[:MOST_FAULTS]) if faults else error


class NamesTaken(Conflict):
    """Names that jobs have already; `faults` tells which items they stand in."""

    def __init__(self, message: str, faults: Sequence[UsageError]) -> None:
        super().__init__(message)
        self.faults = faults
