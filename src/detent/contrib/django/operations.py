"""What needs detent's own connection: migrate, register tasks, cancel and retry runs.

Each call opens the store, works and closes it, on a loop in a thread of its own: the caller may be in a thread of
Django that has a loop. It is for commands and pages of operators; enqueues and results use Django's connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from detent.contrib.django import registry
from detent.contrib.django.setup import node_settings
from detent.domain.audit_event import Actor
from detent.domain.registration import read_document
from detent.errors import UsageError
from detent.jobs import JobOperations
from detent.node.database import opened_store, prepare_database
from detent.store import Store
from detent.store.audit_log import acting

if TYPE_CHECKING:
    from detent.contrib.django.backend import DetentBackend

Result = TypeVar("Result")


def blocking(work: Coroutine[Any, Any, Result]) -> Result:
    with ThreadPoolExecutor(1, "detent-django") as pool:
        return pool.submit(asyncio.run, work).result()


def with_store(backend: DetentBackend, work: Callable[[Store, int], Awaitable[Result]], actor: str = "") -> Result:
    """`work` gets the store and the number of the backend's tenant. `actor`: who makes a change."""

    async def opened() -> Result:
        settings = node_settings(backend)
        assert settings.database_url is not None
        await prepare_database(settings.database_url, settings.database_schema, migrate=False, pooled=settings.pooled)
        async with opened_store(settings.database_url, settings) as store:
            tenant = await store.tenants.number(backend.settings.tenant)
            if tenant is None:
                raise UsageError(
                    f"There is no tenant {backend.settings.tenant!r}: create it with "
                    f"`detent tenant create {backend.settings.tenant}`."
                )
            with acting(Actor("app", name=actor or owner_of(backend))):
                return await work(store, tenant)

    return blocking(opened())


def owner_of(backend: DetentBackend) -> str:
    return f"django:{backend.alias}"


def migrate(backend: DetentBackend) -> None:
    settings = node_settings(backend)
    assert settings.database_url is not None
    blocking(prepare_database(settings.database_url, settings.database_schema, migrate=True, pooled=settings.pooled))


def sync(backend: DetentBackend, tasks: Iterable[Any] | None = None) -> dict[str, str]:
    """Create or update the job of each task; without `tasks`, of all that are imported. Returns what changed."""
    chosen = list(registry.tasks_of(backend.alias).values() if tasks is None else tasks)
    documents = [registry.document_of(task, backend.settings) for task in chosen]
    owner = owner_of(backend)

    async def register(store: Store, tenant: int) -> dict[str, str]:
        jobs = JobOperations(store)
        changes = {}
        for document in documents:
            spec = read_document(document)
            _, changes[document["name"]] = await jobs.registration.upsert(spec, tenant=tenant, owner=owner, by=owner)
        return {str(name): str(change) for name, change in changes.items()}

    return with_store(backend, register) if documents else {}
