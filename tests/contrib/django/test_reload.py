"""`manage.py detent worker` while a project is developed: what it says that it serves, and `--reload`."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.contrib.django.project import Project
from tests.support.waiting import until_sync

pytestmark = pytest.mark.system

EXTRA = """
    from detent.contrib.django import task

    @task({options})
    def version():
        return "{answer}"
"""


def write(folder: Path, answer: str, options: str = "") -> None:
    """In one step: half a file would be a change too."""
    made = folder / "new-extra"
    made.write_text(textwrap.dedent(EXTRA).format(answer=answer, options=options))
    made.replace(folder / "extra.py")


@pytest.fixture
def project(quiet_shop: Project) -> Project:
    """With tasks in a module of the working directory, which the worker imports."""
    quiet_shop.environ["TASK_OPTIONS"] = json.dumps({"modules": ["extra"]})
    quiet_shop.environ["PYTHONPATH"] += f":{quiet_shop.folder}"
    return quiet_shop


def log_of(project: Project) -> str:
    (log,) = project.folder.glob("*.log")
    return log.read_text()


def answer(project: Project) -> Any:
    return project.run("import extra\nanswer(finished(extra.version.enqueue()).return_value)")


def test_a_worker_says_which_tasks_it_serves_and_when_they_run(project: Project) -> None:
    write(project.folder, "first", 'cron="0 9 * * MON", timezone="Europe/Berlin"')
    with project.process("detent", "worker"):
        lines = [json.loads(line) for line in log_of(project).splitlines() if '"serving"' in line]
    (line,) = lines
    assert "extra.version (0 9 * * MON Europe/Berlin)" in line["jobs"]
    assert "orders.tasks.send_receipt (on demand)" in line["jobs"]


def test_a_change_is_served_by_the_next_process(project: Project) -> None:
    write(project.folder, "first")
    with project.process("detent", "worker", "--reload"):
        assert answer(project) == "first"
        write(project.folder, "second", "max_retries=3")
        until_sync(lambda: log_of(project).count("worker ready") == 2, 60, "the second process")
        assert answer(project) == "second"
        (project.folder / "extra.py").write_text("def broken(:\n")
        until_sync(lambda: "Waiting for the next change." in log_of(project), 60, "the supervisor to wait")
        assert "SyntaxError: invalid syntax" in log_of(project)
        write(project.folder, "third")
        until_sync(lambda: log_of(project).count("worker ready") == 3, 60, "the third process")
        assert answer(project) == "third"


def test_reload_is_for_workers_in_development(project: Project) -> None:
    assert "unrecognized arguments: --reload" in project.manage("detent", "scheduler", "--reload", code=2)
    refused = project.manage("detent", "worker", "--reload", code=1, DETENT_PRODUCTION="true")
    assert "--reload is for development, and production is on" in refused
