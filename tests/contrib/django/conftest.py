"""The example project on a database that Django and detent have migrated."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contrib.django.project import Project
from tests.support.postgres import Postgres


@pytest.fixture(scope="module")
def shop(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """With worker, scheduler and API in a process of `manage.py detent serve`."""
    with postgres.database_apart() as url:
        project = Project(url, tmp_path_factory.mktemp("shop"))
        project.manage("migrate", "-v", "0")
        with project.process("detent", "serve", "--queue", "default", "--queue", "mail", "--port", "0") as address:
            project.environ["API"] = address
            yield project


@pytest.fixture
def quiet_shop(postgres: Postgres, tmp_path: Path) -> Iterator[Project]:
    """Without a worker."""
    with postgres.database_apart() as url:
        project = Project(url, tmp_path)
        project.manage("migrate", "-v", "0")
        yield project
