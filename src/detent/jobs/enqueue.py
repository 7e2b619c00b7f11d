"""Enqueue runs of a task, or of any other job: one, or up to ten thousand, all or none.

Checking ten thousand runs takes a tenth of a second on the loop that also fires, so it yields to the loop every few
runs. The first hundred wrong ones are reported.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import UUID

import msgspec

from detent.contract.task import EnqueuedRun
from detent.domain.documents import MAX_PAYLOAD_BYTES
from detent.domain.identity import node_name
from detent.domain.job import JobSpec
from detent.domain.on_demand import NewRun, written_run
from detent.domain.payload_schema import check_payload
from detent.domain.refusal import nearest, pointer_to
from detent.domain.roles import JobLimits, described
from detent.errors import Conflict, ManyFaults, NotAuthorised, NotFound, UsageError
from detent.jobs.secret_faults import payload_secrets, unknown_in_payload
from detent.runtime.arithmetic import compute
from detent.store import Store
from detent.store.connection import Connection
from detent.store.db import PoolName, Rejected
from detent.store.job_limits import current_limits
from detent.store.jobs import DEFAULT_TENANT
from detent.store.secrets import MissingSecrets, keep
from detent.store.tasks import JOB_GONE, EnqueueTarget, enqueue

AT_A_TIME = 128
LARGE_BYTES = 4096
MAX_FAULTS = 100
REFUSED_BY_FUNCTION = "22023"


class RunEnqueuing:
    def __init__(self, store: Store, max_payload_bytes: int = MAX_PAYLOAD_BYTES) -> None:
        self._store = store
        self._max_payload_bytes = max_payload_bytes

    async def enqueue_one(
        self,
        run: NewRun,
        *,
        job_id: UUID | None = None,
        name: str | None = None,
        tenant: int = DEFAULT_TENANT,
        may_refer: bool = True,
    ) -> EnqueuedRun:
        """Enqueue a run of the job of this id, or of this name. `may_refer`: whether its payload may refer to
        secrets."""
        target = await self._target(job_id, name, tenant)
        checked = CheckedRuns(target, self._max_payload_bytes, may_refer=may_refer)
        checked.take(run)
        if target.definition is not None:
            await compute(check_payload, _spec_of(target.definition), run.payload)
        (enqueued,) = await self._write(checked, tenant, ())
        return enqueued

    async def enqueue_many(
        self,
        runs: Sequence[NewRun | UsageError],
        *,
        job_id: UUID | None = None,
        name: str | None = None,
        tenant: int = DEFAULT_TENANT,
        may_refer: bool = True,
    ) -> list[EnqueuedRun]:
        """As `enqueue_one`, for several, all or none; pointers begin with /runs. An item may also be the fault that was
        found while it was read."""
        target = await self._target(job_id, name, tenant)
        checked = CheckedRuns(target, self._max_payload_bytes, may_refer=may_refer)
        faults: list[UsageError] = []
        size = 0
        # In the thread of computations: the check of one payload may take a few hundredths of a second.
        mismatches = {} if target.definition is None else await compute(_mismatches, target.definition, runs)
        for position, run in enumerate(runs):
            if position % AT_A_TIME == 0 or size > LARGE_BYTES:
                await asyncio.sleep(0)
            try:
                size = checked.take(mismatches.get(position, run))
            except UsageError as fault:
                faults.append(UsageError(fault.message, pointer_to("runs", position) + fault.pointer))
                if len(faults) == MAX_FAULTS:
                    break
        if faults:
            raise _refused(faults)
        return await self._write(checked, tenant, ("runs",))

    async def _unknown(self, job_id: UUID | None, name: str | None, tenant: int) -> NotFound:
        near = None if name is None else nearest(name, await self._store.jobs.names_near(name, tenant=tenant))
        advice = "list the jobs to see their names." if near is None else f"did you mean {near!r}?"
        return NotFound(f"There is no task or job {name or str(job_id)!r}: {advice}")

    async def _target(self, job_id: UUID | None, name: str | None, tenant: int) -> EnqueueTarget:
        target = await self._store.tasks.target(tenant, job_id=job_id, name=name)
        if target is None:
            raise await self._unknown(job_id, name, tenant)
        if target.older is not None:
            raise Conflict(
                f"Runs cannot be enqueued while the node {node_name(target.older)} (version {target.older_version}) is "
                "in the cluster: upgrade all nodes first."
            )
        return target

    async def _write(self, checked: CheckedRuns, tenant: int, path: tuple[str, ...]) -> list[EnqueuedRun]:
        async def write(connection: Connection) -> list[EnqueuedRun]:
            await keep(connection, tenant, checked.secrets)
            return await enqueue(connection, checked.target.job, checked.document())

        try:
            enqueued: list[EnqueuedRun] = await self._store.database.transaction(PoolName.REQUEST, write)
        except MissingSecrets as error:
            raise checked.unknown_secret(error, path) from error
        except Rejected as error:
            if error.sqlstate == JOB_GONE:
                raise NotFound(f"The job {checked.target.name!r} was deleted.") from error
            if error.sqlstate != REFUSED_BY_FUNCTION:
                raise
            raise UsageError(f"{error.message}.") from error
        return enqueued


class CheckedRuns:
    """Runs that may be enqueued, as they are written."""

    def __init__(self, target: EnqueueTarget, max_payload_bytes: int, *, may_refer: bool) -> None:
        self.target = target
        self.secrets: set[str] = set()
        self._max_payload_bytes = min(max_payload_bytes, target.max_payload_bytes or max_payload_bytes)
        self._limits: JobLimits | None = current_limits()
        self._may_refer = may_refer
        self._written: list[bytes] = []
        self._referring: list[tuple[int, object]] = []

    def take(self, run: NewRun | UsageError) -> int:
        """Returns its size in bytes."""
        if isinstance(run, UsageError):
            raise run
        written = written_run(run, self.target.now, self._max_payload_bytes)
        if run.queue is not None:
            self._check_queue(run.queue)
        if b'"secret"' in written:
            found = payload_secrets(run.payload, allowed=self._may_refer)
            self.secrets.update(found)
            if found:
                self._referring.append((len(self._written), run.payload))
        self._written.append(written)
        return len(written)

    def document(self) -> str:
        return (b"[" + b",".join(self._written) + b"]").decode()

    def unknown_secret(self, error: MissingSecrets, path: tuple[str, ...]) -> UsageError:
        """The fault of the first run that refers to a missing secret."""
        for position, payload in self._referring:
            if error.names & set(payload_secrets(payload, allowed=True)):
                fault = unknown_in_payload(payload, error.names)
                return UsageError(fault.message, (pointer_to(*path, position) if path else "") + fault.pointer)
        raise error

    def _check_queue(self, queue: str) -> None:
        if self._limits is None or any(limit.includes(queue, self.target.tags) for limit in self._limits):
            return
        raise NotAuthorised(
            f"The run would wait in the queue {queue!r}, and your roles are limited to {described(self._limits)}: "
            "leave queue out."
        )


def _spec_of(definition: str) -> JobSpec:
    return msgspec.json.decode(definition, type=JobSpec)


def _mismatches(definition: str, runs: Sequence[NewRun | UsageError]) -> dict[int, UsageError]:
    """The first payloads that do not match the schema of their job, by position."""
    spec, found = _spec_of(definition), dict[int, UsageError]()
    for position, run in enumerate(runs):
        try:
            if isinstance(run, NewRun):
                check_payload(spec, run.payload)
        except UsageError as fault:
            found[position] = fault
            if len(found) == MAX_FAULTS:
                break
    return found


def _refused(faults: list[UsageError]) -> ManyFaults:
    first = faults[0]
    if len(faults) == MAX_FAULTS:
        what = f"At least {MAX_FAULTS} of the runs are wrong"
    else:
        what = "One of the runs is wrong" if len(faults) == 1 else f"{len(faults)} of the runs are wrong"
    return ManyFaults(f"{what}, so none was enqueued; at {first.pointer}: {first.message}", faults)
