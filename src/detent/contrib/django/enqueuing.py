"""Enqueue on Django's connection, and register a task that detent does not know yet."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ImproperlyConfigured
from django.db import Error as DatabaseError
from django.db import connections, transaction
from django.utils import timezone

from detent.contrib.django import registry, sql
from detent.contrib.django.compat import InvalidTask
from detent.errors import DetentError

if TYPE_CHECKING:
    from detent.contrib.django.backend import DetentBackend

UNKNOWN_TASK = "42704"
NO_SCHEMA = ("3F000", "42883", "42P01")
REFUSED = "42501"
INVALID = "22"

# Tasks that this process has enqueued before, by database and schema. Their next enqueue needs no savepoint.
_known: set[tuple[object, ...]] = set()


def enqueue(backend: DetentBackend, task: Any, payload: Mapping[str, Any]) -> tuple[Any, datetime]:
    """The id of the new run, and when it was enqueued."""
    values = _values(backend, task, payload)
    where = _place(backend, task)
    try:
        if where in _known:
            return _execute(backend, values)
        return _first(backend, task, values, where)
    except DatabaseError as error:
        _known.discard(where)
        raise _readable(backend, task, error) from error


def _first(backend: DetentBackend, task: Any, values: Mapping[str, Any], where: tuple[object, ...]) -> tuple[Any, Any]:
    """With a savepoint, so that the transaction of the caller survives if detent does not know the task."""
    database = backend.settings.database
    try:
        with transaction.atomic(using=database):
            enqueued = _execute(backend, values)
    except DatabaseError as error:
        if state_of(error) != UNKNOWN_TASK or not backend.settings.register:
            raise
        _register(backend, task)
        with transaction.atomic(using=database):
            enqueued = _execute(backend, values)
    _known.add(where)
    return enqueued


def _register(backend: DetentBackend, task: Any) -> None:
    """On a connection of its own. It stays if the transaction of the caller is rolled back: a task without runs."""
    from detent.contrib.django.operations import sync

    definition = registry.find(backend.alias, task.module_path) or task
    try:
        sync(backend, [definition])
    except DetentError as error:
        raise ImproperlyConfigured(
            f"detent does not know the task {task.module_path} yet, and it cannot be registered now ({error}): run "
            "`manage.py detent sync` with a database role that may change detent's tables."
        ) from error


def _execute(backend: DetentBackend, values: Mapping[str, Any]) -> tuple[Any, Any]:
    with connections[backend.settings.database].cursor() as cursor:
        cursor.execute(sql.text_of(sql.ENQUEUE, backend.settings.schema), values)
        run, enqueued_at = cursor.fetchone()
    return run, enqueued_at


def _values(backend: DetentBackend, task: Any, payload: Mapping[str, Any]) -> dict[str, Any]:
    definition = registry.find(backend.alias, task.module_path) or task
    using = {name: value for name, value in _using(task).items() if value != _using(definition)[name]}
    document = {**payload, **({"using": using} if using else {})}
    return {
        "task": task.module_path,
        "payload": json.dumps(document, allow_nan=False),
        "at": _due(task.run_after),
        "priority": task.priority,
        "queue": using.get("queue_name"),
        "tenant": backend.settings.tenant,
    }


def _using(task: Any) -> dict[str, Any]:
    """What `using` may have changed: a result names its task with it."""
    due = None if task.run_after is None else _aware(task.run_after).isoformat()
    return {"priority": task.priority, "queue_name": task.queue_name, "run_after": due}


def _due(run_after: datetime | None) -> datetime | None:
    """A time in the past means now, however long ago it was."""
    if run_after is None or _aware(run_after) <= datetime.now(UTC):  # timezone.now() is naive without USE_TZ
        return None
    return _aware(run_after)


def _aware(moment: datetime) -> datetime:
    aware: datetime = timezone.make_aware(moment) if timezone.is_naive(moment) else moment
    return aware


def _place(backend: DetentBackend, task: Any) -> tuple[object, ...]:
    where, chosen = connections[backend.settings.database].settings_dict, backend.settings
    return where["HOST"], where["PORT"], where["NAME"], chosen.schema, chosen.tenant, task.module_path


def state_of(error: BaseException) -> str | None:
    """The SQLSTATE, from psycopg 3 or 2."""
    cause = error.__cause__
    state: str | None = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
    return state


def _readable(backend: DetentBackend, task: Any, error: BaseException) -> Any:
    state = state_of(error) or ""
    sentence = str(error).splitlines()[0] if str(error) else ""
    if state == UNKNOWN_TASK:
        return ImproperlyConfigured(f"detent does not know the task {task.module_path}: run `manage.py detent sync`.")
    if state in NO_SCHEMA:
        return ImproperlyConfigured(
            f"The database {backend.settings.database!r} has no schema {backend.settings.schema!r} of detent, or an "
            "old one: run `manage.py detent migrate`."
        )
    if state == REFUSED:
        return ImproperlyConfigured(f"{sentence} (the database role of Django needs this grant).")
    if state.startswith(INVALID):
        return InvalidTask(f"{task.module_path} cannot be enqueued: {sentence}.")
    return error
