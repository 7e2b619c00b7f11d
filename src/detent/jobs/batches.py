"""Many jobs in one call, all or none: created, or created and changed by name.

Reading ten thousand jobs takes a quarter of a second on the loop that also fires, so it yields to the loop every few
items; items whose ticks may be costly to compute are read in a thread, within a number of steps for all of them. The
first hundred wrong items are reported; after them nothing is examined.
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
from detent.domain.registration import CursorPlace, PreparedJob, Timings, prepare
from detent.domain.registration_cost import is_costly, is_large
from detent.domain.schedule.steps import BatchSteps
from detent.errors import Conflict, ManyFaults, UsageError
from detent.jobs import job_events
from detent.jobs.edits import Change, canonical, is_computed
from detent.jobs.limits import check_limits
from detent.jobs.moves import new_jobs
from detent.jobs.older_nodes import check_versions
from detent.jobs.register import ATTEMPTS, NameTaken, revise
from detent.jobs.secret_faults import unknown_secrets
from detent.jobs.target_check import TargetCheck, TenantRules
from detent.runtime.arithmetic import compute
from detent.store import Store
from detent.store.audit_log import record
from detent.store.connection import Connection
from detent.store.db import PoolName, Rejected, Row
from detent.store.job_limits import current_limits
from detent.store.job_writes import NAME_INDEX, Moved, NamesInUse, Ownership, adopt, announce, insert, insert_on
from detent.store.jobs import DEFAULT_TENANT
from detent.store.secrets import MissingSecrets
from detent.store.tenants import TenantQuota, reserved, use_quota

AT_A_TIME = 64
MAX_FAULTS = 100


class RegisteredJob(NamedTuple):
    """The result for one item."""

    id: UUID
    name: str
    change: Change
    revision: int
    warnings: list[str]
    active: bool = True


class BatchPlan(NamedTuple):
    """Jobs to create, to change and to leave unchanged, and the result for each item."""

    new: list[tuple[PreparedJob, CursorPlace]]
    changed: list[tuple[PreparedJob, Row]]
    same: list[Row]
    results: list[RegisteredJob]


class JobBatches:
    def __init__(self, store: Store, targets: TargetCheck, max_payload_bytes: int = MAX_PAYLOAD_BYTES) -> None:
        self._store = store
        self._targets = targets
        self._database = store.database
        self._max_payload_bytes = max_payload_bytes

    async def create(
        self,
        items: Sequence[JobSpec | UsageError],
        *,
        tenant: int = DEFAULT_TENANT,
        owner: str | None = None,
        by: str | None = None,
    ) -> list[RegisteredJob]:
        """Create jobs, all or none. An item may also be the fault that was found while it was read."""
        check_limits(items)
        await check_versions(self._store, items)
        rules = await self._targets.rules_for(tenant, items)
        async with reserved(self._database, tenant, len(items), self._max_payload_bytes) as quota:
            plan = await self._plan(items, {}, quota, rules)
            new = new_jobs(plan.new, quota.now)
            try:
                event = job_events.created([job for job, _ in plan.new], tenant, owner)
                await insert(self._database, new, Ownership(tenant, owner, quota.now, by), quota, event)
            except NamesInUse as error:
                raise _taken(items, error) from error
            except MissingSecrets as error:
                raise unknown_secrets(items, error.names) from error
        return plan.results

    async def upsert(
        self,
        items: Sequence[JobSpec | UsageError],
        *,
        tenant: int = DEFAULT_TENANT,
        owner: str | None = None,
        by: str | None = None,
    ) -> list[RegisteredJob]:
        """Create the jobs, or change those whose names exist where they differ, all or none. An item without a name is
        created."""
        check_limits(items)
        await check_versions(self._store, items)
        rules = await self._targets.rules_for(tenant, items)
        for _ in range(ATTEMPTS):
            existing = await self._existing(items, tenant)
            new = len(items) - len(existing)
            try:
                async with reserved(self._database, tenant, new, self._max_payload_bytes) as quota:
                    plan = await self._plan(items, existing, quota, rules)
                    whose = Ownership(tenant, owner, quota.now, by)
                    await self._database.transaction(PoolName.REQUEST, partial(_write, plan, whose, quota))
            except (Moved, NamesInUse):
                continue  # another request was faster: compare again
            except MissingSecrets as error:
                raise unknown_secrets(items, error.names) from error
            except Rejected as error:
                if error.constraint != NAME_INDEX:
                    raise
                continue
            return plan.results
        raise _busy()

    async def _existing(self, items: Sequence[JobSpec | UsageError], tenant: int) -> dict[str, Row]:
        names = [item.name for item in items if isinstance(item, JobSpec) and item.name is not None]
        return await self._store.jobs.all_named(tenant, names)

    async def _plan(
        self,
        items: Sequence[JobSpec | UsageError],
        existing: Mapping[str, Row],
        quota: TenantQuota,
        rules: TenantRules,
    ) -> BatchPlan:
        planner = BatchPlanner(existing, quota, rules, len(items))
        for start in range(0, len(items), AT_A_TIME):
            some = items[start : start + AT_A_TIME]
            specs = [item for item in some if isinstance(item, JobSpec)]
            if any(map(is_large, specs)):
                for position, item in enumerate(some, start):
                    await compute(planner.take, position, item)
            elif any(map(is_costly, specs)):
                await compute(planner.take_some, start, some)
            else:
                await asyncio.sleep(0)
                planner.take_some(start, some)
        planner.check()
        plan = planner.plan
        return plan._replace(changed=await self._really_changed(plan))

    async def _really_changed(self, plan: BatchPlan) -> list[tuple[PreparedJob, Row]]:
        """Without those that are equal as JSON, whose results become `unchanged`."""
        if not plan.changed:
            return []
        before, after = zip(*((row["definition"], job.definition) for job, row in plan.changed), strict=True)
        equal = await self._store.jobs.same_definitions(before, after)
        same = {position for position in equal if is_computed(*plan.changed[position - 1])}
        plan.same.extend(plan.changed[position - 1][1] for position in same)
        ids = {plan.changed[position - 1][0].job_id for position in same}
        for index, result in enumerate(plan.results):
            if result.id in ids:
                plan.results[index] = result._replace(change="unchanged", revision=result.revision - 1)
        return [change for position, change in enumerate(plan.changed, 1) if position not in same]


class BatchPlanner:
    """Reads the items one after another and collects their faults."""

    def __init__(self, existing: Mapping[str, Row], quota: TenantQuota, rules: TenantRules, rows: int) -> None:
        self.plan = BatchPlan([], [], [], [])
        self._existing = existing
        self._rules = rules
        self._numbers = iter(quota.numbers)
        self._now = quota.now
        self._bounds: dict[str, int] = {"tenant": quota.tenant, "max_payload_bytes": quota.max_payload_bytes}
        self._timings = Timings(BatchSteps(rows))
        self._seen: dict[str, int] = {}
        self._faults: list[UsageError] = []
        self._wrong = 0

    def take_some(self, start: int, items: Sequence[JobSpec | UsageError]) -> None:
        for position, item in enumerate(items, start):
            self.take(position, item)

    def take(self, position: int, item: JobSpec | UsageError) -> None:
        if self._wrong > MAX_FAULTS:
            return  # nothing will be registered, and no further fault is listed
        try:
            if isinstance(item, UsageError):
                raise item
            self._check_name(position, item.name)
            self._take(item)
        except UsageError as fault:
            self._wrong += 1
            if len(self._faults) < MAX_FAULTS:
                self._faults.append(UsageError(fault.message, f"/{position}{fault.pointer}"))

    def check(self) -> None:
        if not self._faults:
            return
        first = self._faults[0]
        what = "One of the jobs is wrong" if self._wrong == 1 else f"{self._wrong} of the jobs are wrong"
        listed = ""
        if self._wrong > MAX_FAULTS:
            what, listed = f"More than {MAX_FAULTS} of the jobs are wrong", f" The first {MAX_FAULTS} are listed."
        raise ManyFaults(f"{what}, so none was registered; at {first.pointer}: {first.message}{listed}", self._faults)

    def _check_name(self, position: int, name: str | None) -> None:
        if name is None:
            return
        earlier = self._seen.setdefault(name, position)
        if earlier != position:
            raise UsageError(f"The job at /{earlier} already has the name {name!r}: choose another.", "/name")

    def _take(self, spec: JobSpec) -> None:
        row = self._existing.get(spec.name) if spec.name is not None else None
        if row is None:
            job = self._prepare(spec, uuid7(), next(self._numbers), self._now)
            self.plan.new.append((job, self._timings.place(job, self._now)))
            self._add_result(job, "created", 1)
            return
        job = self._prepare(spec, row["id"], row["job"], row["created_at"])
        if is_computed(job, row) and canonical(row["definition"]) == canonical(job.definition):
            self.plan.same.append(row)
            self._add_result(job, "unchanged", row["revision"])
        else:
            self.plan.changed.append((job, row))
            self._add_result(job, "updated", row["revision"] + 1, active=row["status"] != "paused")

    def _prepare(self, spec: JobSpec, job_id: UUID, number: int, created_at: datetime) -> PreparedJob:
        job = prepare(spec, job_id, number, created_at, timings=self._timings, **self._bounds)
        self._rules.warn(job)
        return job

    def _add_result(self, job: PreparedJob, change: Change, revision: int, *, active: bool = True) -> None:
        self.plan.results.append(RegisteredJob(job.job_id, job.name, change, revision, job.warnings, active))


async def _write(plan: BatchPlan, whose: Ownership, quota: TenantQuota, connection: Connection) -> None:
    if plan.new:
        await insert_on(connection, new_jobs(plan.new, whose.now), whose)
        await use_quota(connection, quota)
        await announce(connection, [job.number for job, _ in plan.new])
    if plan.changed:
        await revise(connection, plan.changed, whose.owner, whose.by)
    adopted = [row for row in plan.same if whose.owner not in (None, row["owner"])]
    if adopted and whose.owner is not None:
        await adopt(connection, [row["job"] for row in adopted], whose.owner)
    if plan.new or plan.changed or adopted:
        new = [job for job, _ in plan.new]
        await record(connection, job_events.registered(new, plan.changed, adopted, whose.tenant))


def _busy() -> Conflict:
    beyond = "" if current_limits() is None else ", or some are beyond the limits of your roles"
    return Conflict(f"These jobs are being changed by other requests{beyond}: try again.")


def _taken(items: Sequence[JobSpec | UsageError], error: NamesInUse) -> Conflict:
    faults = [
        UsageError(f"A job named {item.name!r} already exists: choose another name.", f"/{position}/name")
        for position, item in enumerate(items)
        if isinstance(item, JobSpec) and item.name in error.names
    ]
    taken = NameTaken(error.first)
    return BatchNamesTaken(taken.message, faults[:MAX_FAULTS]) if faults else taken


class BatchNamesTaken(Conflict):
    """Other jobs have some of the names; `faults` points at those items."""

    def __init__(self, message: str, faults: Sequence[UsageError]) -> None:
        super().__init__(message)
        self.faults = faults
