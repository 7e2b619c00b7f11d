"""What operators do with runs: cancel them, and run finished ones again."""

from __future__ import annotations

from uuid import UUID

import msgspec
from msgspec import UNSET

from detent.domain.audit_event import of_runs
from detent.domain.identity import RunKey, run_id
from detent.domain.job import JobSpec
from detent.domain.payload_schema import check_payload
from detent.domain.states import FINAL, RunStatus
from detent.errors import Conflict, RunNotFound, UsageError
from detent.runtime.arithmetic import compute
from detent.store import Store
from detent.store.audit_log import record
from detent.store.connection import Connection
from detent.store.db import PoolName
from detent.store.jobs import DEFAULT_TENANT, number_of
from detent.store.reruns import rerun
from detent.store.runs import cancel, status_on
from detent.store.tasks import read_to_rerun, rerun_on_demand


class RunCommands:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._database = store.database

    async def cancel(self, key: RunKey, *, tenant: int = DEFAULT_TENANT) -> RunStatus:
        """CANCELLED: it had not started. RUNNING: its worker was asked to stop it."""
        status: RunStatus = await self._database.transaction(PoolName.REQUEST, lambda c: _cancel(c, key, tenant))
        return status

    async def retry(self, key: RunKey, *, tenant: int = DEFAULT_TENANT) -> RunKey:
        """Run a finished run again, now."""
        again: RunKey = await self._database.transaction(PoolName.REQUEST, lambda c: _retry(c, key, tenant))
        return again

    async def retry_latest(self, job_id: UUID, *, tenant: int = DEFAULT_TENANT) -> RunKey:
        """Run the newest finished run of a job again, now."""
        latest = await self._store.reruns.latest_finished(await number_of(self._database, job_id, tenant))
        if latest is None:
            raise Conflict(f"The job {job_id} has no finished run to run again: trigger it instead.")
        return await self.retry(latest, tenant=tenant)


async def _cancel(connection: Connection, key: RunKey, tenant: int) -> RunStatus:
    status = await cancel(connection, key, tenant)
    if status is not None:
        await record(connection, of_runs("run.cancel", tenant, [key]))
        return status
    status = await status_on(connection, key, tenant)
    if status is None:
        raise RunNotFound(run_id(key))
    if status is not RunStatus.CANCELLED:
        raise Conflict(f"The run {run_id(key)} is already {status}: it can no longer be cancelled.")
    return status


async def _retry(connection: Connection, key: RunKey, tenant: int) -> RunKey:
    status = await status_on(connection, key, tenant)
    if status is None:
        raise RunNotFound(run_id(key))
    if status not in FINAL:
        raise Conflict(f"The run {run_id(key)} is still {status}: wait until it has ended, or cancel it first.")
    if key.on_demand:
        return await _enqueue_again(connection, key, tenant)
    created = await rerun(connection, key)
    if created["status"] == "deleted":
        raise Conflict(f"The job {created['name']!r} is deleted: its runs cannot be run again.")
    if created["serial"] is None:
        raise Conflict(
            f"Not started: the job {created['name']!r} already has its maximum of unfinished runs. Wait until one has "
            "ended, or cancel one."
        )
    again = key._replace(serial=created["serial"])
    await record(connection, of_runs("run.retry", tenant, [key], {"again": str(run_id(again))}))
    return again


async def _enqueue_again(connection: Connection, key: RunKey, tenant: int) -> RunKey:
    definition, payload = await read_to_rerun(connection, key)
    if definition is not None:
        await compute(_check_again, key, definition, payload)
    again = await rerun_on_demand(connection, key)
    if again is None:
        raise Conflict(f"The job of the run {run_id(key)} is deleted: its runs cannot be run again.")
    await record(connection, of_runs("run.retry", tenant, [key], {"again": str(run_id(again))}))
    return again


def _check_again(key: RunKey, definition: str, payload: str | None) -> None:
    """The schema of the job may be newer than the run."""
    spec = msgspec.json.decode(definition, type=JobSpec)
    try:
        check_payload(spec, UNSET if payload is None else msgspec.json.decode(payload))
    except UsageError as fault:
        raise Conflict(
            f"The run {run_id(key)} cannot be run again, because its job has another payload_schema now: "
            f"{fault.message}"
        ) from fault
