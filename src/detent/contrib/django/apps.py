"""The Django app: checks, the registration of tasks after `manage.py migrate`, and the admin's pages."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.core import checks
from django.db import connections
from django.db.models.signals import post_migrate

from detent.domain.counts import plural
from detent.errors import DetentError


class DetentConfig(AppConfig):  # type: ignore[misc]  # Django has no types
    name = "detent.contrib.django"
    label = "detent"
    verbose_name = "detent"

    def ready(self) -> None:
        from detent.contrib.django.checks import check_databases

        checks.register(check_databases, checks.Tags.database)
        post_migrate.connect(register_tasks, sender=self)


def register_tasks(using: str, verbosity: int = 1, stdout: Any = None, **_: Any) -> None:
    """Register the tasks of the backends whose database was migrated, if detent's schema is there. A failure does not
    fail `migrate`: the worker registers them too."""
    from detent.contrib.django.operations import migrate, sync
    from detent.contrib.django.setup import detent_backends, discover

    for backend in detent_backends().values():
        if backend.settings.database != using or connections[using].vendor != "postgresql":
            continue
        try:
            if backend.settings.migrate:
                migrate(backend)
            elif not has_schema(backend):
                continue
            discover(backend)
            changes = sync(backend)
        except DetentError as error:
            if stdout is not None:
                stdout.write(f"  Tasks are not registered with detent: {error}\n")
            continue
        if stdout is not None and verbosity > 1:
            stdout.write(f"  Registered {plural(len(changes), 'task')} with detent\n")


def has_schema(backend: Any) -> bool:
    with connections[backend.settings.database].cursor() as cursor:
        cursor.execute("SELECT to_regclass(%s) IS NOT NULL", [f"{backend.settings.schema}.jobs"])
        (there,) = cursor.fetchone()
    return bool(there)
