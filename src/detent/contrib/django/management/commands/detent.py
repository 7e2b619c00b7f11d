"""`manage.py detent worker | serve | migrate | sync | check`."""

from __future__ import annotations

import os
from argparse import SUPPRESS, ArgumentParser
from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand, CommandError

from detent.errors import DetentError

if TYPE_CHECKING:
    from detent.contrib.django.backend import DetentBackend

ROLES = {
    "worker": (("worker",), "Start a worker that runs the tasks of this project."),
    "scheduler": (("scheduler",), "Start a scheduler, which fires the tasks with a schedule."),
    "serve": (("api", "scheduler", "worker"), "Start worker, scheduler and dashboard in one process."),
}
FLAGS = {
    "--concurrency": "Maximum runs at the same time. [100]",
    "--drain-seconds": "Time to finish current runs after SIGTERM. [30]",
    "--host": "Listen on this address. [127.0.0.1]",
    "--port": "Listen on this port. [8787, or the next free port]",
    "--metrics-port": "Serve /metrics, /livez and /readyz on this port.",
    "--log-format": "auto, json or pretty.",
    "--log-level": "debug, info, warning or error.",
}


class DetentCommand(BaseCommand):  # type: ignore[misc]  # Django has no types
    help = "Run and manage the tasks of this project with detent."

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="worker|scheduler|serve|migrate|sync|check")
        for verb, (_, text) in ROLES.items():
            node = verbs.add_parser(verb, help=text, description=text)
            self._add_node(node)
            if verb != "scheduler":
                self._add_reload(node)
        others = {
            "migrate": "Create or migrate detent's schema in the database of the backend.",
            "sync": "Register the tasks of this project with detent.",
            "check": "Check settings, schema and tasks.",
        }
        for verb, text in others.items():
            self._add_common(verbs.add_parser(verb, help=text, description=text))

    def _add_common(self, parser: Any) -> None:
        parser.add_argument("--backend", metavar="ALIAS", help="The backend in TASKS. [the only one on detent]")

    def _add_node(self, parser: Any) -> None:
        self._add_common(parser)
        parser.add_argument("--queue", action="append", metavar="NAME", help="Serve this queue; may be repeated. [all]")
        parser.add_argument("--migrate", action="store_true", default=None, help="Migrate detent's schema first.")
        for flag, text in FLAGS.items():
            parser.add_argument(flag, metavar="VALUE", help=text)

    def _add_reload(self, parser: Any) -> None:
        text = "For development: start again when Python files change. Needs detent[reload]."
        parser.add_argument("--reload", action="store_true", help=text)
        parser.add_argument("--reloaded", dest="supervisor", type=int, help=SUPPRESS)

    def handle(self, *args: Any, **options: Any) -> None:
        from detent.contrib.django.setup import backend_named, discover
        from detent.node.supervised import obey_supervisor

        try:
            backend = backend_named(options["backend"])
            if options.get("reload"):
                return self._supervise(backend, options)
            if options.get("supervisor"):
                obey_supervisor(options["supervisor"])
            discover(backend)
            verb = options["verb"]
            if verb in ROLES:
                self._start(backend, ROLES[verb][0], options)
            else:
                getattr(self, f"_{verb}")(backend)
        except DetentError as error:
            raise CommandError(str(error)) from error

    def _migrate(self, backend: DetentBackend) -> None:
        from detent.contrib.django.operations import migrate

        migrate(backend)
        self.stdout.write(f"The schema {backend.settings.schema!r} is up to date.")
        self._sync(backend)

    def _sync(self, backend: DetentBackend) -> None:
        from detent.contrib.django.operations import sync

        changes = sync(backend)
        for name, change in changes.items():
            self.stdout.write(f"{change:9}  {name}")
        if not changes:
            self.stdout.write("This project has no tasks: write them in the module tasks.py of an installed app.")

    def _check(self, backend: DetentBackend) -> None:
        from detent.contrib.django.checks import check_backend, check_schema

        problems = [*check_backend(backend), *check_schema(backend)]
        for problem in problems:
            self.stderr.write(str(problem))
        if problems:
            raise CommandError(f"{len(problems)} problem{'s' if len(problems) > 1 else ''}.")
        self.stdout.write("Settings, schema and tasks are in order.")

    def _supervise(self, backend: DetentBackend, options: dict[str, Any]) -> None:
        """The process that it starts imports the tasks: this one has to outlive code that cannot be imported."""
        from django.utils.autoreload import get_child_arguments

        from detent.contrib.django.setup import APP, node_settings, watched_folders
        from detent.node.reload import check_reload, supervise

        settings = node_settings(backend, {**_flags(options), "app": APP})
        check_reload(settings)
        supervise(settings, get_child_arguments(), watched_folders())

    def _start(self, backend: DetentBackend, roles: tuple[str, ...], options: dict[str, Any]) -> None:
        from django.db import connections

        from detent.contrib.django.operations import migrate, sync
        from detent.contrib.django.setup import APP, BACKEND, MAX_RESULT_BYTES, RESULT_BYTES, node_settings, queues_of
        from detent.node import process

        flags = {**_flags(options), "app": APP, "queues": tuple(options["queue"] or queues_of(backend))}
        if node_settings(backend).origins.get("max_result_bytes") == "default":
            flags["max_result_bytes"] = RESULT_BYTES  # results are values that a program reads, not notes for people
        settings = node_settings(backend, flags)
        os.environ[BACKEND] = backend.alias
        os.environ[MAX_RESULT_BYTES] = str(settings.max_result_bytes)
        if options["migrate"] or settings.migrate:
            migrate(backend)
        sync(backend)
        connections.close_all()  # the threads of the handlers have their own
        process.run(settings, roles, supervisor=options.get("supervisor"))


def _flags(options: dict[str, Any]) -> dict[str, Any]:
    names = [flag[2:].replace("-", "_") for flag in FLAGS]
    return {name: options[name] for name in names}


Command = DetentCommand  # the name that Django looks for
