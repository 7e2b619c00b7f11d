"""`manage.py check`: what would make the first enqueue fail."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from django.core import checks
from django.db import connections
from django.utils.module_loading import import_string

from detent.contrib.django import registry
from detent.contrib.django.compat import Task

if TYPE_CHECKING:
    from detent.contrib.django.backend import DetentBackend


def check_backend(backend: DetentBackend) -> Iterable[Any]:
    """Without a query: Django asks for the database only with `check --database`."""
    alias, chosen = f"TASKS[{backend.alias!r}]", backend.settings
    if chosen.database not in connections:
        yield checks.Error(
            f"{alias} names the database {chosen.database!r}, which DATABASES does not have.", id="detent.E001"
        )
        return
    if connections[chosen.database].vendor != "postgresql":
        yield checks.Error(
            f"{alias} uses the database {chosen.database!r}, which is not PostgreSQL.",
            hint="detent needs PostgreSQL 15 or later: name another database in OPTIONS['database'].",
            id="detent.E002",
        )
    for name, task in registry.tasks_of(backend.alias).items():
        if not _importable(name):
            yield checks.Error(
                f"The task {name} cannot be imported by its name, so a worker cannot find it.",
                hint=f"Bind the result of @task to the name {task.func.__name__!r} in its module.",
                id="detent.E003",
            )


def _importable(name: str) -> bool:
    try:
        return isinstance(import_string(name), Task)
    except ImportError:
        return False


def check_databases(databases: Iterable[str] | None = None, **_: Any) -> Iterable[Any]:
    """With queries, where Django permits them. A warning: Django makes these checks before `migrate` too, which has to
    go on where detent's schema is still to be made."""
    from detent.contrib.django.setup import detent_backends

    for backend in detent_backends().values():
        if (
            backend.settings.database in (databases or ())
            and connections[backend.settings.database].vendor == "postgresql"
        ):
            yield from check_schema(backend)


def check_schema(backend: DetentBackend) -> Iterable[Any]:
    if backend.settings.migrate:
        return  # `manage.py migrate` makes it
    from detent.contrib.django.operations import with_store
    from detent.errors import DetentError
    from detent.store import Store

    async def nothing(store: Store, tenant: int) -> None:
        return None

    try:
        with_store(backend, nothing)
    except DetentError as error:
        yield checks.Warning(
            f"TASKS[{backend.alias!r}]: {error}",
            hint="`manage.py detent migrate` creates or migrates detent's schema.",
            id="detent.W001",
        )
