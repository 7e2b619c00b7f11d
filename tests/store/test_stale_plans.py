"""A migration under a running node changes what its prepared statements return: its transactions are repeated."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from detent.store import Store
from detent.store.connection import Connection
from detent.store.db import PoolName
from detent.store.requests import StoredAnswer

READ = "SELECT * FROM changing"


@pytest.fixture(autouse=True)
async def changing(look: Any) -> AsyncIterator[None]:
    await look.execute("CREATE TABLE changing AS SELECT 1::smallint AS lane")
    yield
    await look.execute("DROP TABLE changing")


async def read(connection: Connection) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in await connection.fetch(READ)]


async def test_a_transaction_with_an_outdated_statement_is_repeated(verbs: Store, look: Any) -> None:
    assert await verbs.database.transaction(PoolName.WORK, read) == [(1,)]
    await look.execute("ALTER TABLE changing ALTER COLUMN lane TYPE integer, ADD COLUMN payload text")
    assert await verbs.database.transaction(PoolName.WORK, read) == [(1, None)]


async def test_a_request_with_an_outdated_statement_is_done_again_and_once(verbs: Store, look: Any) -> None:
    async def work() -> StoredAnswer:
        rows = await verbs.database.transaction(PoolName.REQUEST, read)
        return StoredAnswer(200, {}, str(rows).encode())

    async def ask(key: str) -> tuple[StoredAnswer, bool]:
        return await verbs.requests.once(key, b"d" * 32, work, tenant=1, idle=timedelta(seconds=2))

    assert (await ask("before"))[0].body == b"[(1,)]"
    await look.execute("ALTER TABLE changing ALTER COLUMN lane TYPE integer, ADD COLUMN payload text")
    assert (await ask("after"))[0].body == b"[(1, None)]"
    assert await look.fetchval("SELECT count(*) FROM requests") == 2
