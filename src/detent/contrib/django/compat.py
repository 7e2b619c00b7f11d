"""`django.tasks` of Django 6, or `django_tasks`, its backport: the names that both have, from the one that is there.

Neither of them is typed in a way that describes both, so the names are of the type Any.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import django

from detent.errors import UsageError

MODULE = "django.tasks" if django.VERSION >= (6, 0) else "django_tasks"


def _imported(name: str) -> Any:
    try:
        return import_module(f"{MODULE}{name}")
    except ModuleNotFoundError as error:
        if error.name != "django_tasks":
            raise
        raise UsageError(
            f"Django {django.get_version()} has no tasks of its own: install django-tasks, or Django 6."
        ) from error


_tasks = _imported("")
_base = _imported(".base")
_exceptions = _imported(".exceptions")
_signals = _imported(".signals")

BaseTaskBackend: Any = _imported(".backends.base").BaseTaskBackend
Task: Any = _base.Task
TaskContext: Any = _base.TaskContext
TaskError: Any = _base.TaskError
TaskResult: Any = _base.TaskResult
TaskResultStatus: Any = _base.TaskResultStatus
task_backends: Any = _tasks.task_backends
DEFAULT_BACKEND: str = _tasks.DEFAULT_TASK_BACKEND_ALIAS
DEFAULT_QUEUE: str = _tasks.DEFAULT_TASK_QUEUE_NAME
DEFAULT_PRIORITY: int = _base.DEFAULT_TASK_PRIORITY
task_enqueued: Any = _signals.task_enqueued
task_started: Any = _signals.task_started
task_finished: Any = _signals.task_finished
TaskException: Any = _exceptions.TaskException
TaskResultDoesNotExist: Any = _exceptions.TaskResultDoesNotExist
# Django dropped the ending that the backport has.
InvalidTask: Any = getattr(_exceptions, "InvalidTask", None) or _exceptions.InvalidTaskError
InvalidTaskBackend: Any = getattr(_exceptions, "InvalidTaskBackend", None) or _exceptions.InvalidTaskBackendError


def normalize_json(value: object) -> Any:
    """As JSON would return it; raises TypeError or ValueError for what has no JSON form."""
    module = import_module("django.utils.json" if MODULE == "django.tasks" else "django_tasks.utils")
    return module.normalize_json(value)
