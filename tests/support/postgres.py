"""A real PostgreSQL for the tests of one process: its own server in its own temporary folder.

DETENT_TEST_POSTGRES chooses it: 18 (the default) and 16 come with the `embedded` extra, 15 is Debian's. Durability is
off, because no test of ours cuts the power. One database is migrated once; every test gets a copy of it. Tests reach
it as the product does, with a role that owns it and is not a superuser.
"""

from __future__ import annotations

import asyncio
import fcntl
import itertools
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import asyncpg
import pytest

from detent.store import grants, migrate
from detent.store.db import connect
from detent.store.embedded import EmbeddedServer
from detent.store.embedded_host import bundled_binaries
from detent.store.embedded_roles import DATABASE, MAINTENANCE, USER
from tests.support import guardian

SCHEMA = "detent"
TEMPLATE = "detent_template"
# Owns nothing, and has in every migrated database exactly what `store/grants.py` lists.
RUNTIME_ROLE = "detent_run"
# Requests take it on: it sees the rows of one tenant.
TENANT_ROLE = "detent_tenant"
ROOM_IN_MEMORY = 6 * 2**30
OPTIONS = {
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "64MB",
    # Plans and timings depend on what a test does, not on when a vacuum happens to come by.
    "autovacuum": "off",
}
DEBIAN_15 = Path("/usr/lib/postgresql/15/bin")

Result = TypeVar("Result")


def run_apart(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine in a loop and thread of its own, whatever loop the test itself is using."""
    results: list[Result] = []
    failures: list[BaseException] = []

    def target() -> None:
        try:
            results.append(asyncio.run(work))
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=target)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return results[0]


def as_runtime_role(url: str) -> str:
    return url.replace(f"//{USER}@", f"//{RUNTIME_ROLE}@", 1)


def as_tested(url: str) -> str:
    """With DETENT_TEST_ROLE=runtime, the store and the API reach the database of a test as a role that owns nothing."""
    return as_runtime_role(url) if os.environ.get("DETENT_TEST_ROLE") == "runtime" else url


class Postgres:
    """The running server; databases are made and dropped by name."""

    def __init__(self, server: EmbeddedServer) -> None:
        self.server = server
        self._numbers = itertools.count(1)

    def url(self, database: str) -> str:
        return self.server.url.replace(f"/{DATABASE}?", f"/{database}?", 1)

    def admin_url(self, database: str = MAINTENANCE) -> str:
        """As the superuser."""
        return self.server.admin_url.replace(f"/{MAINTENANCE}?", f"/{database}?", 1)

    async def execute(self, *statements: str) -> None:
        """As the superuser."""
        connection = await asyncpg.connect(self.admin_url())
        try:
            for statement in statements:
                await connection.execute(statement)
        finally:
            await connection.close()

    async def make_template(self) -> None:
        unprivileged = "NOINHERIT NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS"
        await self.execute(
            f"CREATE ROLE {RUNTIME_ROLE} LOGIN {unprivileged}",
            f"CREATE ROLE {TENANT_ROLE} NOLOGIN {unprivileged}",
            f"GRANT {TENANT_ROLE} TO {RUNTIME_ROLE}",
            f"CREATE DATABASE {TEMPLATE} OWNER {USER}",
        )
        connection = await connect(self.url(TEMPLATE), SCHEMA)
        try:
            await migrate.migrate(connection)
            await grants.give(connection, RUNTIME_ROLE, SCHEMA)
            await grants.raise_wall(connection, TENANT_ROLE, SCHEMA)
        finally:
            await connection.close()

    async def create(self, template: str = TEMPLATE) -> str:
        """The name of a new database: migrated, unless `template` is template0."""
        name = f"test_{next(self._numbers)}"
        await self.execute(f"CREATE DATABASE {name} OWNER {USER} TEMPLATE {template} STRATEGY file_copy")
        if template == TEMPLATE:
            await self._make_original(name)
        return name

    async def _make_original(self, name: str) -> None:
        """Make a copy of the template an original: otherwise it would be held as a suspected copy."""
        connection = await connect(self.url(name), SCHEMA)
        try:
            await connection.execute("UPDATE cluster c SET database_oid = w.database_oid FROM whereabouts w")
        finally:
            await connection.close()

    async def drop(self, name: str) -> None:
        await self.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    @asynccontextmanager
    async def database(self, template: str = TEMPLATE) -> AsyncIterator[str]:
        """The address of a database that lives as long as the block, for fixtures of any scope."""
        name = await self.create(template)
        try:
            yield self.url(name)
        finally:
            await self.drop(name)

    @contextmanager
    def database_apart(self, template: str = TEMPLATE) -> Iterator[str]:
        """As `database`, for code without an event loop."""
        name = run_apart(self.create(template))
        try:
            yield self.url(name)
        finally:
            run_apart(self.drop(name))


@contextmanager
def running_postgres() -> Iterator[Postgres]:
    folder = Path(tempfile.mkdtemp(prefix="detent-test-", dir=_in_memory()))
    folder.chmod(0o711)  # the server's user has to get through when root runs the tests
    server = EmbeddedServer(folder, bin_dir=chosen_binaries(), options=OPTIONS)
    try:
        run_apart(server.start())
        try:
            postgres = Postgres(server)
            run_apart(postgres.make_template())
            yield postgres
        finally:
            run_apart(server.stop())
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _in_memory() -> Path | None:
    """Where the many small databases of the tests are made twice as quickly; None: the usual place for such things."""
    place = guardian.in_memory()
    return place if place is not None and shutil.disk_usage(place).free > ROOM_IN_MEMORY else None


def chosen_binaries() -> Path:
    version = os.environ.get("DETENT_TEST_POSTGRES", "18")
    if version == "18":
        return bundled_binaries()
    if version == "16":
        return bundled_binaries().parent.parent / "pginstall" / "bin"
    if version == "15":
        return _debian_15()
    raise pytest.UsageError(f"DETENT_TEST_POSTGRES is {version!r}: give 15, 16 or 18.")


def _debian_15() -> Path:
    if not (DEBIAN_15 / "postgres").exists():
        if os.geteuid() == 0 and shutil.which("apt-get"):
            _install_debian_15()
        else:
            missing = f"PostgreSQL 15 is not in {DEBIAN_15}, and only root can install it"
            if os.environ.get("CI") == "true":
                pytest.fail(missing)
            pytest.skip(missing)
    return DEBIAN_15


def _install_debian_15() -> None:
    with (guardian.SHARED / "detent-test-apt.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one of the parallel test processes installs, the others wait
        if not (DEBIAN_15 / "postgres").exists():
            environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            for command in (["apt-get", "update"], ["apt-get", "install", "-y", "postgresql-15"]):
                subprocess.run(command, env=environ, check=True, stdout=subprocess.DEVNULL)
