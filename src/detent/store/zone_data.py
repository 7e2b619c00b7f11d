"""A new release of the zone data: next ticks that it moves are moved, and the span of ticks of every job in a zone says
by which release it was computed, since ticks of the past cannot be computed again by data that is gone.

A tick that is due stays due. One that is to come is computed again behind the last one that fired; a local time that
has fired does not fire again because the clock is now said to show it later.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial

from detent.domain.misfire import AUTOMATIC
from detent.domain.registration import Place
from detent.domain.schedule import Schedule
from detent.errors import UsageError
from detent.store import sql
from detent.store.connection import Connection
from detent.store.db import Database, PoolName, Row
from detent.store.job_moves import Move, end_of, schedule_of_row, span_of
from detent.store.job_rows import NOWHERE
from detent.store.job_writes import Moved, announce, move
from detent.telemetry.log import logger

log = logger("jobs")

AT_ONCE = 500
ITSELF = "detent"


class ZoneDataStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def renew(self, release: str) -> int:
        """Look at all jobs again if none has by this release; how many next ticks have moved."""
        seen = (await self._database.fetch(PoolName.REQUEST, sql.zone_data.READ))[0]["tzdata"]
        if seen is not None and seen >= release:
            return 0
        moved, behind = 0, 0
        while rows := await self._database.fetch(
            PoolName.REQUEST, sql.zone_data.LIST_OUTDATED_JOBS, release, behind, AT_ONCE
        ):
            moved += await self._renew_some(rows, release)
            behind = rows[-1]["job"]
        await self._database.fetch(PoolName.REQUEST, sql.zone_data.RECORD, release)
        if moved:
            log.info("next ticks moved by new zone data", jobs=moved, release=release)
        return moved

    async def _renew_some(self, rows: Sequence[Row], release: str) -> int:
        moves = [each for each in map(_move_of, rows) if each is not None]
        changed = {each.row["job"] for each in moves}
        same = [(row["job"], row["generation"], end_of(row)) for row in rows if row["job"] not in changed]
        if same:
            await self._database.fetch(PoolName.REQUEST, sql.ledger.RENEW_SPANS, *zip(*same, strict=True), release)
        count = 0
        for each in moves:
            try:
                await self._database.transaction(PoolName.REQUEST, partial(_move, each))
                count += 1
            except Moved:  # it has fired or was changed meanwhile, by somebody with data of their own
                log.info("a job was left as it is", job=each.row["name"])
        return count


async def _move(each: Move, connection: Connection) -> None:
    await move(connection, [each], ITSELF)
    await announce(connection, [each.row["job"]])


def _move_of(row: Row) -> Move | None:
    """None: its next tick is what it was."""
    try:
        schedule = schedule_of_row(row)
    except UsageError:
        return None
    end, former = end_of(row), row["next_tick"]
    if former is None or former <= end:
        return None
    tick = next_by_new_data(schedule, end, row["last_tick"], former)
    if tick == former:
        return None
    where = NOWHERE if tick is None else Place(tick, tick + schedule.jitter(row["job"], tick), AUTOMATIC)
    return Move(row, where, "active", "zone data", end, span_of(schedule, end, "zone data", tick))


def next_by_new_data(
    schedule: Schedule, now: datetime, last_tick: datetime | None, former: datetime
) -> datetime | None:
    """The next tick after `now`. Where the data moves a fixed local time to later, the one that fired last seems to be
    still to come: it is nearer to that than to the tick which was to be next, and is left out."""
    tick = schedule.next_after(now)
    resolver = getattr(schedule.ticks, "resolver", None)
    if tick is None or last_tick is None or resolver is None or resolver.real_time:
        return tick
    repeats = last_tick < tick < former and tick - last_tick < former - tick
    return schedule.next_after(tick) if repeats else tick
