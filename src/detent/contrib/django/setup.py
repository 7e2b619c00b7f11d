"""From Django's settings to a node: which backend, which tasks, which database."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from django.apps import apps
from django.db import connections
from django.utils.module_loading import autodiscover_modules

from detent.contrib.django import registry
from detent.contrib.django.compat import task_backends
from detent.errors import UsageError
from detent.settings.settings import Settings

if TYPE_CHECKING:
    from detent.contrib.django.backend import DetentBackend

APP = "detent.contrib.django.app:app"
# Handler processes get the choice of their node by these.
BACKEND = "DJANGO_DETENT_BACKEND"
MAX_RESULT_BYTES = "DJANGO_DETENT_MAX_RESULT_BYTES"
RESULT_BYTES = 1_048_576
_NOT_SETTINGS = ("DETENT_DEBUG", "DETENT_CONTEXT")
# What the driver of the node knows of the options of libpq.
_URL_OPTIONS = (
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "sslpassword",
    "sslcrl",
    "passfile",
    "target_session_attrs",
)


def detent_backends() -> dict[str, DetentBackend]:
    from detent.contrib.django.backend import DetentBackend

    return {alias: task_backends[alias] for alias in task_backends if isinstance(task_backends[alias], DetentBackend)}


def backend_named(alias: str | None = None) -> DetentBackend:
    """The backend of this alias, or the only one on detent."""
    found = detent_backends()
    if alias is not None and alias in found:
        return found[alias]
    if alias is not None:
        raise UsageError(f"TASKS has no backend {alias!r} on detent: {_choices(found)}.")
    if len(found) != 1:
        raise UsageError(f"TASKS has {len(found)} backends on detent: {_choices(found)}.")
    return next(iter(found.values()))


def _choices(found: Mapping[str, object]) -> str:
    if not found:
        return "give one of them the BACKEND detent.contrib.django.DetentBackend"
    return f"choose one with --backend, of {', '.join(sorted(found))}"


def discover(backend: DetentBackend) -> None:
    """Import the modules that define tasks."""
    autodiscover_modules("tasks")
    for name in backend.settings.modules:
        import_module(name)


def watched_folders() -> list[Path]:
    """For `--reload`: the working directory, and the folders of the project's apps that are elsewhere and not
    installed as packages."""
    here = Path.cwd()
    found = [here]
    for config in apps.get_app_configs():
        folder = Path(config.path).resolve()
        installed = {"site-packages", "dist-packages"} & set(folder.parts) or config.name.startswith("detent.")
        if not installed and not any(folder.is_relative_to(other) for other in found):
            found.append(folder)
    return found


def node_settings(backend: DetentBackend, flags: Mapping[str, object] | None = None) -> Settings:
    """The settings of a node: the database of Django, else flags, DETENT_* and detent.toml."""
    environ = {name: value for name, value in os.environ.items() if name not in _NOT_SETTINGS}
    chosen = {"database_url": url_of(backend.settings.database), "database_schema": backend.settings.schema}
    return Settings.load({**(flags or {}), **chosen}, environ)


def queues_of(backend: DetentBackend) -> tuple[str, ...]:
    """Every queue that a task of this backend may name."""
    return tuple(sorted({*backend.queues, *(task.queue_name for task in registry.tasks_of(backend.alias).values())}))


def url_of(alias: str) -> str:
    """The address of a database in DATABASES, as PostgreSQL writes it."""
    connection = connections[alias]
    if connection.vendor != "postgresql":
        raise UsageError(f"DATABASES[{alias!r}] is {connection.vendor}: detent needs PostgreSQL 15 or later.")
    return url_of_settings(alias, connection.settings_dict)


def url_of_settings(alias: str, given: Mapping[str, Any]) -> str:
    options = given.get("OPTIONS") or {}
    if options.get("service"):
        raise UsageError(
            f"DATABASES[{alias!r}] names a service of libpq, which detent cannot read: give NAME, HOST and USER."
        )
    query = {name: str(options[name]) for name in _URL_OPTIONS if options.get(name) is not None}
    host, port = str(given.get("HOST") or ""), str(given.get("PORT") or "")
    if host.startswith("/"):
        query = {"host": host, **({"port": port} if port else {}), **query}
        host = port = ""
    return (
        f"postgresql://{_login(given)}{_host(host)}{f':{port}' if port else ''}/{_part(given['NAME'])}{_query(query)}"
    )


def _login(given: Mapping[str, Any]) -> str:
    if not given.get("USER"):
        return ""
    password = f":{_part(given['PASSWORD'])}" if given.get("PASSWORD") else ""
    return f"{_part(given['USER'])}{password}@"


def _host(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _part(value: object) -> str:
    return quote(str(value), safe="")


def _query(query: Mapping[str, str]) -> str:
    return f"?{urlencode(query)}" if query else ""
