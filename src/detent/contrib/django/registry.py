"""The tasks of each backend that this process has imported, and the detent job that stands for each.

A backend sees every task when it is created, because Django asks it to validate the task. Backends exist once per
thread, so the registry belongs to the module.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from uuid_utils.compat import uuid7

from detent.contrib.django.compat import InvalidTask, normalize_json
from detent.contrib.django.options import BackendOptions
from detent.domain.registration import prepare, read_document
from detent.errors import UsageError
from detent.sdk.fields import documented, schedule_of

# Django says nothing about retries, and a function that was written for it may not bear one.
DEFAULT_FIELDS: Mapping[str, Any] = {"max_retries": 0}
OF_TASK = {"queue": "queue_name=", "priority": "priority= of the task", "timezone": "timezone= of the task"}

_tasks: dict[str, dict[str, Any]] = {}


def add(alias: str, task: Any, options: BackendOptions) -> None:
    """Remember a task when it is defined. Copies that `using` makes are of the same function, and change nothing."""
    known = _tasks.setdefault(alias, {})
    before = known.get(task.module_path)
    if before is not None and before.func is task.func:
        return
    _check(task, options)
    known[task.module_path] = task


def tasks_of(alias: str) -> dict[str, Any]:
    return dict(_tasks.get(alias, {}))


def find(alias: str, name: str) -> Any | None:
    return _tasks.get(alias, {}).get(name)


def document_of(task: Any, options: BackendOptions) -> dict[str, Any]:
    """The detent job of a task: one without a schedule, unless the task has one."""
    fields = {**DEFAULT_FIELDS, **options.job, **getattr(task, "job", {})}
    isolate = fields.pop("isolate", "thread")
    return {
        "name": task.module_path,
        "target": {"type": "python", "function": reference_of(task), **_chosen("isolate", isolate, "thread")},
        "queue": task.queue_name,
        "priority": task.priority,
        "payload": {"args": [], "kwargs": normalize_json(dict(getattr(task, "call_with", {})))},
        **_schedule(task),
        **documented(fields),
    }


def reference_of(task: Any) -> str:
    return f"{task.func.__module__}:{task.func.__qualname__}"


def _chosen(name: str, value: object, default: object) -> dict[str, object]:
    return {} if value == default else {name: value}


def _schedule(task: Any) -> dict[str, Any]:
    forms = {name: value for name in ("cron", "every") if (value := getattr(task, name, None)) is not None}
    if not forms:
        return {}
    zone = getattr(task, "timezone", None)
    return {"schedule": schedule_of(forms), **({} if zone is None else {"timezone": zone})}


def _check(task: Any, options: BackendOptions) -> None:
    """At the definition, so that a mistake in it fails the import and not the first enqueue."""
    for name, instead in OF_TASK.items():
        if name in getattr(task, "job", {}) or name in options.job:
            raise InvalidTask(f"{task.module_path}: {name!r} is not taken from the fields of a job: use {instead}.")
    try:
        prepare(read_document(document_of(task, options)), uuid7(), 1, datetime.now(UTC))
    except UsageError as error:
        raise InvalidTask(f"{task.module_path}: {error.message}") from error
    except (TypeError, ValueError) as error:
        raise InvalidTask(f"{task.module_path}: call_with has no JSON form ({error}).") from error
    if _schedule(task):
        _check_call(task)
    elif getattr(task, "timezone", None) or getattr(task, "call_with", None):
        raise InvalidTask(f"{task.module_path}: timezone and call_with need a schedule: give cron= or every=.")


def _check_call(task: Any) -> None:
    """A tick has no caller who could give arguments."""
    context = (None,) if task.takes_context else ()
    try:
        inspect.signature(task.func).bind(*context, **task.call_with)
    except TypeError as error:
        raise InvalidTask(
            f"{task.module_path} has a schedule and cannot be called on it ({error}): give its parameters defaults, or "
            "values with call_with={...}."
        ) from error
