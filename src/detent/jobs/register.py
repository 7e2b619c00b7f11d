"""Register and edit jobs, one at a time.

An edit is computed from the row that was read, and written only if generation and last tick are still the same;
otherwise it is computed again. So an edit cannot overtake a fire, no fire follows an outdated schedule, and no tick is
accounted for twice. A due tick that an edit removes is recorded as skipped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any
from uuid import UUID

import msgspec
from uuid_utils.compat import uuid7

from detent.contract.job import Job
from detent.domain.documents import MAX_PAYLOAD_BYTES
from detent.domain.job import JobSpec
from detent.domain.registration import PreparedJob, Timings, prepare
from detent.domain.registration_cost import is_costly, is_large
from detent.domain.schedule.steps import BatchSteps, CostlySchedule, Steps, batch_limit
from detent.errors import Conflict
from detent.jobs import job_events
from detent.jobs.edits import Change, Edit, Expected, canonical, edit_of, is_computed, patched
from detent.jobs.limits import busy, check_limits
from detent.jobs.moves import edited, new_jobs
from detent.jobs.older_nodes import check_versions
from detent.jobs.secret_faults import unknown_secret, unknown_secrets
from detent.jobs.target_check import TargetCheck
from detent.runtime.arithmetic import compute
from detent.store import Store
from detent.store.audit_log import record
from detent.store.connection import Connection
from detent.store.db import PoolName, Rejected, Row
from detent.store.job_rows import new_job
from detent.store.job_writes import (
    NAME_INDEX,
    CursorMove,
    Moved,
    NamesInUse,
    NewJob,
    Ownership,
    RevisedJob,
    announce,
    insert,
    move,
)
from detent.store.job_writes import revise as write_revisions
from detent.store.jobs import DEFAULT_TENANT
from detent.store.secrets import MissingSecrets
from detent.store.tenants import TenantQuota, payload_limit, reserved

ATTEMPTS = 10
ANYTHING = Expected()


class NameTaken(Conflict):
    """Another job has the name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"A job named {name!r} already exists: choose another name, or change or delete that job.")


class JobRegistration:
    def __init__(self, store: Store, targets: TargetCheck, max_payload_bytes: int = MAX_PAYLOAD_BYTES) -> None:
        self._store = store
        self._targets = targets
        self._database = store.database
        self._max_payload_bytes = max_payload_bytes

    async def add(
        self,
        specs: Sequence[JobSpec],
        *,
        tenant: int = DEFAULT_TENANT,
        owner: str | None = None,
        by: str | None = None,
    ) -> list[Job]:
        """Register jobs, all or none. `by`, here and below, names the person or program that makes the change."""
        if not specs:
            return []
        check_limits(specs)
        await check_versions(self._store, specs)
        rules = await self._targets.rules_for(tenant, specs)
        async with reserved(self._database, tenant, len(specs), self._max_payload_bytes) as quota:
            now = quota.now
            costly = any(is_costly(spec) or is_large(spec) for spec in specs)
            new = await compute(_prepare_new, specs, quota) if costly else _prepare_new(specs, quota)
            for each in new:
                rules.warn(each.job)
            try:
                event = job_events.created([each.job for each in new], tenant, owner)
                await insert(self._database, new, Ownership(tenant, owner, now, by), quota, event)
            except NamesInUse as error:
                raise NameTaken(error.first) from error
            except MissingSecrets as error:
                raise (
                    unknown_secret(specs[0], error.names) if len(specs) == 1 else unknown_secrets(specs, error.names)
                ) from error
        return [new_job(each.job, each.where, now, owner) for each in new]

    async def upsert(
        self,
        spec: JobSpec,
        *,
        tenant: int = DEFAULT_TENANT,
        owner: str | None = None,
        expected: Expected = ANYTHING,
        by: str | None = None,
    ) -> tuple[Job, Change]:
        """Create the job of this name, or change it to this definition if it differs."""
        for _ in range(ATTEMPTS):
            row = await self._store.jobs.named(tenant, spec.name) if spec.name else None
            expected.check(row)
            if row is None:
                try:
                    return (await self.add([spec], tenant=tenant, owner=owner, by=by))[0], "created"
                except NameTaken:
                    continue  # another client has just created it
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
        """Change some fields of a job; None resets one to its default."""
        for _ in range(ATTEMPTS):
            row = await self._store.jobs.to_change(tenant, job_id)
            expected.check(row)
            changed = await self._changed_to(patched(row, fields), row, None, by)
            if changed is not None:
                return changed
        raise busy(row["name"])

    async def replace(
        self, job_id: UUID, spec: JobSpec, *, tenant: int = DEFAULT_TENANT, by: str | None = None
    ) -> tuple[Job, Change]:
        """Replace the whole definition of a job, including its name."""
        for _ in range(ATTEMPTS):
            row = await self._store.jobs.to_change(tenant, job_id)
            changed = await self._changed_to(spec, row, None, by)
            if changed is not None:
                return changed
        raise busy(row["name"])

    async def _changed_to(
        self, spec: JobSpec, row: Row, owner: str | None, by: str | None
    ) -> tuple[Job, Change] | None:
        """None: the job changed meanwhile."""
        check_limits([spec])
        await check_versions(self._store, [spec])
        limit = await payload_limit(self._database, row["tenant"], self._max_payload_bytes)
        prepared = partial(
            prepare, spec, row["id"], row["job"], row["created_at"], tenant=row["tenant"], max_payload_bytes=limit
        )
        job = await compute(prepared) if is_costly(spec) or is_large(spec) else prepared()
        (await self._targets.rules_for(row["tenant"], [spec])).warn(job)
        change = await self._change_to(job, row, owner, by)
        if change is None:
            return None
        return msgspec.structs.replace(await self._store.jobs.by_number(job.number), warnings=job.warnings), change

    async def _change_to(self, job: PreparedJob, row: Row, owner: str | None, by: str | None) -> Change | None:
        if await self._is_same(job, row):
            if owner is not None and owner != row["owner"]:
                await self._store.jobs.adopt([row["job"]], owner, job_events.adopted(row, owner))
            return "unchanged"
        try:
            await self._database.transaction(PoolName.REQUEST, partial(_revise_one, job, row, owner, by))
        except Moved:
            return None
        except MissingSecrets as error:
            raise unknown_secret(job.spec, error.names) from error
        except Rejected as error:
            if error.constraint != NAME_INDEX:
                raise
            raise NameTaken(job.name) from error
        return "updated"

    async def _is_same(self, job: PreparedJob, row: Row) -> bool:
        before, after = row["definition"], job.definition
        if not is_computed(job, row):
            return False
        return canonical(before) == canonical(after) or await self._store.jobs.same_definition(before, after)


def _prepare_new(specs: Sequence[JobSpec], quota: TenantQuota) -> list[NewJob]:
    timings = Timings(BatchSteps(len(specs)))
    bounds: dict[str, int] = {"tenant": quota.tenant, "max_payload_bytes": quota.max_payload_bytes}
    jobs = [
        prepare(spec, uuid7(), number, quota.now, timings=timings, **bounds)
        for spec, number in zip(specs, quota.numbers, strict=True)
    ]
    return new_jobs([(job, timings.place(job, quota.now)) for job in jobs], quota.now)


async def _revise_one(job: PreparedJob, row: Row, owner: str | None, by: str | None, connection: Connection) -> None:
    await revise(connection, [(job, row)], owner, by)
    await record(connection, job_events.updated(job, row, owner))


async def revise(
    connection: Connection, changes: Sequence[tuple[PreparedJob, Row]], owner: str | None, by: str | None
) -> None:
    """Write new revisions of jobs, and move the cursors of those whose schedule changed; or raise Moved."""
    edits = await compute(lambda: [edit_of(job, row) for job, row in changes])
    revised = [
        RevisedJob(job, row, edit.grace, edit.runs_left) for (job, row), edit in zip(changes, edits, strict=True)
    ]
    await write_revisions(connection, revised, owner, by)
    await move(connection, await compute(_moves, changes, edits), by)
    await announce(connection, [job.number for job, _ in changes])


def _moves(changes: Sequence[tuple[PreparedJob, Row]], edits: Sequence[Edit]) -> list[CursorMove]:
    """A single job is never refused for what the ticks of its pause cost, or it could not be changed at all; a batch
    can be sent in parts."""
    steps = Steps() if len(changes) == 1 else Steps(batch_limit(len(changes)))
    try:
        moves = [edited(job, row, edit, steps) for (job, row), edit in zip(changes, edits, strict=True)]
    except CostlySchedule as error:
        raise CostlySchedule(
            f"Counting the ticks that these jobs did not run needs more than {steps.limit:,.0f} steps: "
            "send the batch in parts."
        ) from error
    return [each for each in moves if each is not None]
