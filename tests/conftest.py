"""Fixtures of all tests: a separate database for each test on a real PostgreSQL, and connections to it."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from tests.support import guardian
from tests.support.leftovers import fail_if_too_many

if TYPE_CHECKING:
    from detent.store import Store
    from tests.support.pgbouncer import PgBouncer
    from tests.support.postgres import Postgres


# How long an example takes says how busy the machine is.
hypothesis.settings.register_profile("detent", deadline=None)
hypothesis.settings.load_profile("detent")


def pytest_configure() -> None:
    """In each test process, before it starts anything. A shell starts background commands with SIGINT ignored: the
    processes of the tests would inherit that, and miss the Ctrl-C of the tests."""
    guardian.protect()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def watched_folders(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Processes that work in one of pytest's own folders belong to us, too."""
    guardian.watch(tmp_path_factory.getbasetemp())


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """After all else: a test that leaves too much behind fails, rather than one that comes much later."""
    yield
    fail_if_too_many()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """The server of this test process."""
    from tests.support.postgres import running_postgres  # here, so that tests without a database load none of it

    with running_postgres() as server:
        yield server


@pytest.fixture
def database_url(postgres: Postgres) -> Iterator[str]:
    """A migrated, empty database that is gone after the test."""
    with postgres.database_apart() as url:
        yield url


@pytest.fixture(scope="session")
def pgbouncer(postgres: Postgres) -> Iterator[PgBouncer]:
    """In front of the server of this test process."""
    from tests.support.pgbouncer import running_pgbouncer

    with running_pgbouncer(postgres.server.url) as bouncer:
        yield bouncer


@pytest.fixture
def pooled_url(pgbouncer: PgBouncer, database_url: str) -> str:
    """The database of `database_url`, reached through PgBouncer, with a role that has what it needs."""
    from tests.support.pgbouncer import prepare_role
    from tests.support.postgres import run_apart

    run_apart(prepare_role(database_url))
    return pgbouncer.url(database_url)


@pytest.fixture(scope="session")
def pooled() -> bool:
    """Whether sessions and processes are to reach their database through a pooler, where a test does not say."""
    return os.environ.get("DETENT_TEST_POOLER") == "1"


@pytest.fixture
def reach(request: pytest.FixtureRequest, pooled: bool) -> dict[str, Any]:
    """How a `Database` of this test is opened."""
    from tests.support.postgres import as_tested

    if pooled:
        return {"url": request.getfixturevalue("pooled_url"), "pooled": True}
    return {"url": as_tested(request.getfixturevalue("database_url"))}


@pytest.fixture
async def look(database_url: str) -> AsyncIterator[Any]:
    """A connection to the tables of the test's database, past any pooler."""
    from detent.store.db import connect
    from detent.store.limits import REQUEST_LIMITS

    connection = await connect(database_url, "detent", REQUEST_LIMITS)
    yield connection
    await connection.close()


@pytest.fixture
async def sql(database_url: str) -> AsyncIterator[Any]:
    """As `look`, without the limits that the product sets on its statements."""
    import asyncpg

    connection = await asyncpg.connect(database_url, server_settings={"search_path": "detent"})
    yield connection
    await connection.close()


@pytest.fixture
async def store(reach: dict[str, Any]) -> AsyncIterator[Store]:
    """The store of the test's database."""
    from detent.store import Database, Store

    database = Database(**reach)
    await database.open()
    yield Store(database)
    await database.close()


@pytest.fixture
def empty_database_url(postgres: Postgres) -> Iterator[str]:
    """A database without any schema of ours."""
    with postgres.database_apart("template0") as url:
        yield url
