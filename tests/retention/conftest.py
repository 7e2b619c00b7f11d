"""A database with one node, which retention and upkeep act for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from detent.store import Store
from detent.store.db import connect
from detent.store.limits import REQUEST_LIMITS
from tests.support.factories import add_node

NODE = 11


@pytest.fixture
async def look(look: Any) -> Any:
    await add_node(look, NODE)
    return look


@pytest.fixture
async def another(database_url: str) -> AsyncIterator[Any]:
    """One more connection, which may stay in a transaction for a minute."""
    connection = await connect(database_url, "detent", REQUEST_LIMITS._replace(idle=60))
    yield connection
    await connection.close()


@pytest.fixture
async def store(store: Store, look: Any) -> Store:
    """The store of the database that `look` sees, with its node."""
    return store
