"""Django: a backend of `django.tasks` on detent, and `manage.py detent`.

`detent.contrib.django` is a Django app and the home of the backend. Each name is imported on first use: Django imports
the package before its settings and models are ready.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from detent.contrib.django.backend import DetentBackend
    from detent.contrib.django.definition import DetentTask, task
    from detent.contrib.django.exceptions import TaskCancelled

__all__ = ["DetentBackend", "DetentTask", "TaskCancelled", "task"]

_DEFINED_IN = {
    "DetentBackend": "detent.contrib.django.backend",
    "DetentTask": "detent.contrib.django.definition",
    "TaskCancelled": "detent.contrib.django.exceptions",
    "task": "detent.contrib.django.definition",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _DEFINED_IN:
        raise AttributeError(f"module 'detent.contrib.django' has no attribute {name!r}")
    return getattr(import_module(_DEFINED_IN[name]), name)
