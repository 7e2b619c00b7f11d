"""What transports offer: runs that wait, and the claim of those that a worker was offered."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from detent.domain.identity import milliseconds, run_id_text
from detent.domain.offer import RunOffer
from detent.domain.run import Claim
from detent.store import sql
from detent.store.db import Database, PoolName, Row
from detent.store.live_runs import claims_of


class OfferStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def claim(self, node: int, incarnation: int, offers: Sequence[RunOffer]) -> list[Claim]:
        """Those of the offered runs that still wait as they were offered."""
        columns = zip(*((o.job, o.lane, o.scheduled_at, o.serial, o.token) for o in offers), strict=True)
        arguments = (node, incarnation, *columns)
        return claims_of(await self._database.fetch_guarded(PoolName.WORK, sql.run.CLAIM_OFFERED, "", "W2", *arguments))

    async def waiting(self, ahead: timedelta, of_each: int, limit: int) -> list[RunOffer]:
        """Runs that are ready, or will be within `ahead`: the first `of_each` queue and priority, and up to `limit`."""
        rows = await self._database.fetch(PoolName.WORK, sql.run.LIST_READY, ahead, of_each, limit)
        return [_offer_of(row) for row in rows]


def _offer_of(row: Row) -> RunOffer:
    return RunOffer(
        queue=row["queue"],
        job=row["job"],
        lane=row["lane"],
        scheduled_at=row["scheduled_at"],
        serial=row["serial"],
        token=row["token"],
        revision=row["revision"],
        priority=row["priority"],
        due=row["not_before"],
        run_id=run_id_text(row["job"], milliseconds(row["scheduled_at"]), row["serial"]),
    )
