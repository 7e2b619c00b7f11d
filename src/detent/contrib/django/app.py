"""The app that `manage.py detent worker` starts: `detent.contrib.django.app:app`, with a function for each task.

A handler process imports it too, and has no settings of Django yet then.
"""

from __future__ import annotations

import os

import django
from django.apps import apps

from detent.contrib.django.setup import BACKEND, MAX_RESULT_BYTES, backend_named, discover
from detent.sdk.app import Detent


def _app() -> Detent:
    from detent.contrib.django import registry
    from detent.contrib.django.handlers import TaskHandler

    backend = backend_named(os.environ.get(BACKEND))
    discover(backend)
    limit = int(os.environ.get(MAX_RESULT_BYTES, 16_384))
    made = Detent("detent.contrib.django.app:app")
    for task in registry.tasks_of(backend.alias).values():
        made.function(registry.reference_of(task))(TaskHandler(backend, task, limit).function)
        made.known_jobs.append(registry.document_of(task, backend.settings))
    return made


if not apps.ready:
    django.setup()

app = _app()
