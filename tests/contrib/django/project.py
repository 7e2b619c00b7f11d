"""The example project as real processes, on a database of its own.

DETENT_TEST_DJANGO_PYTHON chooses the interpreter, and with it the version of Django.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.processes import environment
from tests.support.waiting import until_sync

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "django"
PYTHON = os.environ.get("DETENT_TEST_DJANGO_PYTHON", sys.executable)
READY = re.compile(r"listening on (http://\S+)|worker ready|Starting (?:[A-Z]+ )?development server at (\S+)/")

PRELUDE = """
import json, sys, time
import django
django.setup()
from django.db import connection, transaction
from django.utils import timezone
from orders.models import Order, Totals
from orders import tasks as orders
from tests.contrib.django.probe import tasks as probe
from detent.contrib.django import compat

def answer(value):
    sys.stdout.write(json.dumps(value, default=str))

def finished(result):
    deadline = time.monotonic() + 30
    while not result.is_finished:
        assert time.monotonic() < deadline, result
        time.sleep(0.02)
        result.refresh()
    return result

def runs():
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM detent.runs WHERE serial >= 201326592")
        return cursor.fetchone()[0]
"""


class Project:
    def __init__(self, url: str, folder: Path, **variables: str) -> None:
        self.url = url
        self.folder = folder
        self.notes = folder / "notes"
        self.notes.touch()
        self.environ = environment(
            folder,
            PYTHONPATH=os.pathsep.join((str(EXAMPLE), str(ROOT))),
            PYTHONUNBUFFERED="1",
            DJANGO_SETTINGS_MODULE="tests.contrib.django.project_settings",
            PROBE_NOTES=str(self.notes),
            DATABASE_URL=url,
            TOTALS_CRON="* * * * * *",
            **variables,
        )

    def manage(self, *arguments: str, code: int = 0, **variables: str) -> str:
        """What a command prints."""
        return self._run([PYTHON, str(EXAMPLE / "manage.py"), *arguments], code, variables)

    def run(self, script: str, **variables: str) -> Any:
        """What a script in the project gives to `answer`."""
        return json.loads(self._run([PYTHON, "-c", PRELUDE + script], 0, variables, apart=True))

    def _run(self, command: list[str], code: int, variables: dict[str, str], *, apart: bool = False) -> str:
        done = subprocess.run(
            command, cwd=self.folder, env={**self.environ, **variables}, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout if apart else done.stdout + done.stderr

    @contextmanager
    def process(self, *arguments: str, **variables: str) -> Iterator[str]:
        """A command that runs until the end of the block; its address, if it has one."""
        log = self.folder / f"{arguments[-1]}-{len(list(self.folder.iterdir()))}.log"
        with log.open("wb") as out:
            started = subprocess.Popen(
                [PYTHON, str(EXAMPLE / "manage.py"), *arguments],
                cwd=self.folder,
                env={**self.environ, **variables},
                stdout=out,
                stderr=out,
            )
        try:
            until_sync(lambda: READY.search(log.read_text()) or started.poll() is not None, 60, "the process")
            found = READY.search(log.read_text())
            assert found, log.read_text()
            yield found[1] or found[2] or ""
        finally:
            started.send_signal(signal.SIGINT if "runserver" in arguments else signal.SIGTERM)
            assert started.wait(60) in (0, -signal.SIGINT), log.read_text()

    def noted(self, *beginning: str) -> list[list[str]]:
        """The signals that were sent: name, task, status, attempts and process."""
        lines = [line.split() for line in self.notes.read_text().splitlines()]
        return [line for line in lines if tuple(line[: len(beginning)]) == beginning]
