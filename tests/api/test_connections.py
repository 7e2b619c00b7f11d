"""A server all of whose connections are in use: requests wait for pooled connections, and node and workers go on."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from detent.errors import DetentError
from detent.store import Database, db, migrate, sql
from detent.store.db import PoolName
from detent.store.embedded import EmbeddedServer
from tests.api.api_server import Readiness, serving
from tests.support.postgres import OPTIONS, SCHEMA, chosen_binaries, run_apart
from tests.support.waiting import until

AT_ONCE = 10
JOB = {"schedule": "every 1h", "target": {"type": "http", "url": "http://127.0.0.1:9/"}}


@pytest.fixture(scope="module")
def small_server() -> Iterator[EmbeddedServer]:
    """A migrated database on a server that takes few connections."""
    folder = Path(tempfile.mkdtemp(prefix="detent-test-"))
    folder.chmod(0o711)
    options = {**OPTIONS, "max_connections": "12", "superuser_reserved_connections": "0", "shared_buffers": "16MB"}
    options |= {"reserved_connections": "0", "max_wal_senders": "0"}
    server = EmbeddedServer(folder, bin_dir=chosen_binaries(), options=options)

    async def migrated() -> None:
        await server.start()
        connection = await db.connect(server.url, SCHEMA)
        await migrate.migrate(connection)
        await connection.close()

    try:
        run_apart(migrated())
        yield server
    finally:
        run_apart(server.stop())
        shutil.rmtree(folder, ignore_errors=True)


@asynccontextmanager
async def all_others_taken(url: str) -> AsyncIterator[list[Any]]:
    """Every connection that the server still has is used by another client."""
    others: list[Any] = []
    try:
        with pytest.raises(asyncpg.TooManyConnectionsError):
            while True:
                others.append(await asyncpg.connect(url))
        yield others
    finally:
        for other in others:
            await other.close()


async def test_requests_wait_for_pooled_connections_where_the_server_has_no_more(small_server: EmbeddedServer) -> None:
    async with serving(small_server.url, Readiness({})) as api, all_others_taken(small_server.url):
        for _ in range(5):
            answers = await asyncio.gather(*(api.ask("GET", "/api/v1/jobs") for _ in range(AT_ONCE)))
            assert [answer.status for answer in answers] == [200] * AT_ONCE
        made = await asyncio.gather(*(api.ask("POST", "/api/v1/jobs", json=JOB) for _ in range(AT_ONCE)))
        assert [answer.status for answer in made] == [201] * AT_ONCE


@pytest.mark.parametrize("pool", [PoolName.FIRE, PoolName.WORK, PoolName.REQUEST])
async def test_statements_wait_for_pooled_connections_where_the_server_has_no_more(
    small_server: EmbeddedServer, pool: PoolName
) -> None:
    database = Database(small_server.url)
    await database.open()
    async with all_others_taken(small_server.url):
        found = await asyncio.gather(*(database.fetch(pool, sql.database.CLOCK) for _ in range(AT_ONCE)))
    assert len(found) == AT_ONCE
    await database.close()


async def test_without_any_connection_a_request_is_answered_in_the_end_and_the_next_one_is_served(
    small_server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(db, "CONNECTION_SECONDS", 0.3)
    async with serving(small_server.url, Readiness({})) as api, all_others_taken(small_server.url) as others:
        pid = await others[0].fetchval("SELECT pg_backend_pid()")
        ended = await others[0].fetchval(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE application_name = 'detent' AND pid <> $1",
            pid,
        )
        for _ in range(ended):
            others.append(await until(lambda: connected(small_server.url)))
        problem = await api.problem("GET", "/api/v1/jobs", 503)
        assert problem["detail"] == "The database cannot serve this request at the moment: try again."
        answer = await api.ask("GET", "/api/v1/jobs")
        assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
        await others.pop().close()
        await until(lambda: is_served(api))


async def connected(url: str) -> Any:
    try:
        return await asyncpg.connect(url)
    except asyncpg.TooManyConnectionsError:
        return None


async def is_served(api: Any) -> bool:
    answer = await api.ask("GET", "/api/v1/jobs")
    return bool(answer.status == 200)


async def test_an_argument_that_cannot_be_encoded_leaves_nothing_behind_on_its_connection(database_url: str) -> None:
    """The driver leaves the statement's transaction open then, in which no isolation level can be asked for."""
    database = Database(database_url)
    await database.open()
    for number in range(8):
        with pytest.raises(DetentError):
            await database.fetch(PoolName.REQUEST, sql.tenant.READ_JOB_QUOTA, 2**31 + number)
        async with (
            database.connection(PoolName.REQUEST) as connection,
            connection.transaction(isolation="repeatable_read"),
        ):
            assert await connection.fetchval("SELECT 1") == 1
    await database.close()
