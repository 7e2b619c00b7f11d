"""The server's own limits: below half of a lease, whatever that is, so that a node that is stopped does not block its
successor."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from detent.store import Database, Store
from detent.store.db import OutcomeUnknown, PoolName, connect
from detent.store.limits import REQUEST_LIMITS, StatementLimits, pool_limits
from tests.support.factories import add_node

LIMITS = ("lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout", "transaction_timeout")
TTL = 1.0


@pytest.mark.parametrize("ttl", [0.5, 1.5, 5.0, 60.0, 300.0])
def test_what_a_node_does_is_limited_to_less_than_half_of_its_lease(ttl: float) -> None:
    limits = pool_limits(ttl)
    for pool in (PoolName.FIRE, PoolName.WORK, PoolName.FAILOVER):
        found = limits[pool]
        assert found.transaction is not None
        assert 0 < found.lock <= found.statement == found.idle < found.transaction < ttl / 2
        assert found.answer > found.transaction
    assert limits[PoolName.FIRE].lock == 0.1
    assert limits[PoolName.REQUEST] is REQUEST_LIMITS


def test_the_limits_of_the_usual_lease_are_as_documented() -> None:
    assert pool_limits(5.0)[PoolName.WORK] == StatementLimits(
        lock=2.0, statement=2.0, idle=2.0, transaction=2.4, answer=4.0
    )


@pytest.fixture
async def short(shared_url: str, look: Any) -> AsyncIterator[Store]:
    """The store of a node with a short lease."""
    database = Database(shared_url, ttl=TTL)
    await database.open()
    yield Store(database)
    await database.close()


@pytest.mark.parametrize("pool", [PoolName.FIRE, PoolName.WORK, PoolName.FAILOVER, PoolName.REQUEST])
async def test_every_connection_has_the_limits_of_its_pool(short: Store, pool: PoolName) -> None:
    limits = short.database.limits[pool]
    wanted = dict(zip(LIMITS, (limits.lock, limits.statement, limits.idle, limits.transaction or 0), strict=True))
    async with short.database.connection(pool) as connection:
        rows = await connection.fetch(
            "SELECT name, setting::integer AS ms FROM pg_settings WHERE name = ANY ($1)", LIMITS
        )
    assert {row["name"]: row["ms"] for row in rows} == {row["name"]: wanted[row["name"]] * 1000 for row in rows}


async def test_a_node_that_is_paused_inside_a_transaction_does_not_block_its_eviction(short: Store, look: Any) -> None:
    await add_node(look, 1)
    with pytest.raises(OutcomeUnknown):
        async with short.database.connection(PoolName.FIRE) as paused, paused.transaction():
            await paused.fetch("SELECT FROM nodes WHERE node = 1 FOR KEY SHARE")
            # Waits for the lock above, which only the server takes away.
            await look.execute("UPDATE nodes SET evicted = true WHERE node = 1")
            await paused.fetch("SELECT 1")
    assert await look.fetchval("SELECT evicted FROM nodes WHERE node = 1")


async def test_a_connection_of_its_own_is_limited_too(shared_url: str) -> None:
    connection = await connect(shared_url, "detent", pool_limits(TTL)[PoolName.WORK])
    try:
        assert await connection.fetchval("SHOW statement_timeout") == "400ms"
        assert await connection.fetchval("SHOW idle_in_transaction_session_timeout") == "400ms"
    finally:
        await connection.close()
