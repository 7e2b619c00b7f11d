"""Fixtures for everybody: a database of one's own on a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from postgres import Postgres


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """The server of this test process."""
    from postgres import running_postgres  # here, so that tests without a database load none of it

    with running_postgres() as server:
        yield server


@pytest.fixture
def database_url(postgres: Postgres) -> Iterator[str]:
    """A migrated, empty database that is gone after the test."""
    with postgres.database_apart() as url:
        yield url


@pytest.fixture
def empty_database_url(postgres: Postgres) -> Iterator[str]:
    """A database without any schema of ours."""
    with postgres.database_apart("template0") as url:
        yield url
