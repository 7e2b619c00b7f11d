"""Tokens of the tenants' requests: one row for each tenant, from which every node takes some at a time."""

from __future__ import annotations

from typing import NamedTuple

from detent.store import sql
from detent.store.db import Database, PoolName

# A request waits for this statement; later than that it is answered without it.
TAKE_SECONDS = 2.0


class GrantedTokens(NamedTuple):
    """What a node got, and what is left for all."""

    granted: int
    left: float


class RequestBudgetStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def take(self, tenant: int, wanted: int, per_second: float, size: float) -> GrantedTokens:
        """Take up to `wanted` tokens of a tenant, whose bucket has this rate and size."""
        (row,) = await self._database.fetch_within(
            TAKE_SECONDS, PoolName.REQUEST, sql.request_budget.TAKE, tenant, float(wanted), per_second, size
        )
        return GrantedTokens(int(row["granted"]), row["tokens"])
