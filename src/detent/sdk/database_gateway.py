"""The way into a cluster through its database.

An application's role may only enqueue, by the SQL functions that were granted to it. What else a gateway does needs the
role of the nodes: without it, the error says to use the API.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar
from uuid import UUID

from detent.contract.job import Job
from detent.contract.run import Run
from detent.contract.task import EnqueuedRun
from detent.domain.audit_event import Actor
from detent.domain.identity import decode_run_id
from detent.domain.on_demand import NewRun
from detent.errors import NotAuthorised, NotFound, RunNotFound, TenantNotFound, UsageError
from detent.jobs import JobOperations
from detent.sdk.gateway import not_registered
from detent.store import Store
from detent.store.audit_log import acting
from detent.store.caller_connections import documents_of
from detent.store.db import Database, NotPermitted, Rejected
from detent.store.limits import PoolName
from detent.store.tasks import JOB_GONE

POOLS = {PoolName.REQUEST: (5, 60.0), PoolName.SEPARATE: (2, 60.0)}


class DatabaseGateway:
    in_memory: ClassVar[bool] = False

    def __init__(self, url: str, schema: str, tenant: str, *, pooled: bool = False) -> None:
        self._database = Database(url, schema, pooled=pooled, pools=POOLS)
        self._store = Store(self._database)
        self._name = tenant
        self._tenant: int | None = None
        self._opening: asyncio.Task[None] | None = None

    async def enqueue(self, task: str, runs: Sequence[NewRun]) -> list[EnqueuedRun]:
        await self._open()
        try:
            return await self._store.tasks.enqueue_as_caller(task, documents_of(runs), self._name)
        except Rejected as error:
            if error.sqlstate == JOB_GONE:
                raise not_registered(task) from error
            raise UsageError(f"{error.message}.") from error
        except NotPermitted as error:
            raise NotAuthorised(f"{error.message}.") from error

    async def run(self, run_id: UUID) -> Run:
        key = decode_run_id(run_id)
        async with self._as_node() as tenant:
            run = None if key is None else await self._store.runs.get(key, tenant=tenant)
        if run is None:
            raise RunNotFound(run_id)
        return run

    async def cancel(self, run_id: UUID) -> None:
        key = decode_run_id(run_id)
        if key is None:
            raise RunNotFound(run_id)
        async with self._as_node() as tenant:
            await JobOperations(self._store).runs.cancel(key, tenant=tenant)

    async def upsert(self, document: dict[str, Any]) -> Job:
        from detent.domain.registration import read_document

        spec = read_document(document)
        async with self._as_node() as tenant:
            with acting(Actor("app", name=self._name)):
                job, _ = await JobOperations(self._store).registration.upsert(spec, tenant=tenant, by="app")
        return job

    async def close(self) -> None:
        self._opening = None
        await self._database.close()

    async def _open(self) -> None:
        """Once, whichever of several callers is first; after a failure, again."""
        if self._opening is None or (self._opening.done() and self._opening.exception() is not None):
            self._opening = asyncio.ensure_future(self._database.open())
        await asyncio.shield(self._opening)

    @asynccontextmanager
    async def _as_node(self) -> AsyncIterator[int]:
        """The number of the tenant, for statements that need the role of a node."""
        await self._open()
        try:
            if self._tenant is None:
                self._tenant = await self._store.tenants.number(self._name)
            if self._tenant is None:
                raise TenantNotFound(self._name)
            yield self._tenant
        except NotPermitted as error:
            raise NotAuthorised(
                "This database role may only enqueue: give the app the address and a key of the API "
                "(Detent(url='https://…', key=…)) to read or cancel runs and to schedule jobs."
            ) from error


class NodeGateway(DatabaseGateway):
    """The way of a node's own handlers: the role of a node enqueues as the API does. The functions for applications may
    not be granted to it."""

    async def enqueue(self, task: str, runs: Sequence[NewRun]) -> list[EnqueuedRun]:
        async with self._as_node() as tenant:
            try:
                return await JobOperations(self._store).enqueuing.enqueue_many(runs, name=task, tenant=tenant)
            except NotFound as error:
                raise not_registered(task) from error
