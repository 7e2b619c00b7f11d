"""For tests of the verbs: one database per module, emptied before each test, and a way to look at its tables."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from detent.store import Database, Store
from detent.store.db import connect
from detent.store.limits import REQUEST_LIMITS

if TYPE_CHECKING:
    from tests.support.postgres import Postgres

EMPTY = """
DELETE FROM live_runs; DELETE FROM backlog; DELETE FROM unique_keys; DELETE FROM key_places; DELETE FROM key_rates;
DELETE FROM run_history; DELETE FROM attempts; DELETE FROM cursors; DELETE FROM nodes;
DELETE FROM job_revisions; DELETE FROM segments; DELETE FROM skips; DELETE FROM run_payloads;
DELETE FROM catchups; DELETE FROM requests; DELETE FROM jobs; DELETE FROM queues WHERE queue > 1;
UPDATE partitions SET holder = NULL, term = 0, taken_at = NULL, nomination = 0 WHERE term <> 0 OR holder IS NOT NULL;
DELETE FROM set_aside; DELETE FROM elections; DELETE FROM former_nodes; DELETE FROM node_take_overs;
DELETE FROM changes; DELETE FROM sessions; DELETE FROM job_reservations; UPDATE tenant_jobs SET jobs = 0;
UPDATE cluster SET held_at = NULL, held_by = NULL, held_reason = NULL, resumed_at = NULL;
"""


@pytest.fixture(scope="module")
def shared_url(postgres: Postgres) -> Iterator[str]:
    with postgres.database_apart() as url:
        yield url


@pytest.fixture
async def look(shared_url: str) -> AsyncIterator[Any]:
    """A connection beside the store's, to an empty database."""
    connection = await connect(shared_url, "detent", REQUEST_LIMITS)
    await connection.execute(EMPTY)
    yield connection
    await connection.close()


@pytest.fixture
async def another(shared_url: str) -> AsyncIterator[Any]:
    """One more connection, to hold locks with."""
    connection = await connect(shared_url, "detent", REQUEST_LIMITS)
    yield connection
    await connection.close()


@pytest.fixture
async def verbs(shared_url: str, look: Any) -> AsyncIterator[Store]:
    """The store of the database that `look` sees."""
    database = Database(shared_url)
    await database.open()
    yield Store(database)
    await database.close()
