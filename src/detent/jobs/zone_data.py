"""A new release of the zone data moves next ticks. The span of ticks of every job in a zone records the release by
which it was computed, because past ticks cannot be computed again from data that is gone.

A job with tzdata_policy `refuse` is left alone if its zone has other rules by the new release: no node with these rules
fires it, and it is set aside where it is due (`domain/schedule/zones.py`), until an operator accepts them.

A due tick stays due. A future tick is computed again after the last one that fired. A local time that has fired does
not fire again because the new data moves it to later.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial

import msgspec

from detent.domain.job import JobSpec
from detent.domain.misfire import AUTOMATIC
from detent.domain.registration import CursorPlace
from detent.domain.schedule import Schedule
from detent.domain.schedule.zones import has_rules
from detent.errors import UsageError
from detent.jobs.edits import NOWHERE
from detent.jobs.moves import end_of, schedule_of_row, span_of
from detent.store import Store
from detent.store.connection import Connection
from detent.store.db import PoolName, Row
from detent.store.job_writes import CursorMove, Moved, announce, move
from detent.telemetry.log import logger

log = logger("jobs")

AT_ONCE = 500
ITSELF = "detent"
MAX_NAMED = 20


class ZoneDataRenewal:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def renew(self, release: str) -> int:
        """Compute all jobs again unless a node has done so with this release; how many next ticks moved."""
        zone_data = self._store.zone_data
        seen = await zone_data.seen()
        if seen is not None and seen >= release:
            return 0
        moved, behind = 0, 0
        while rows := await zone_data.older(release, behind, AT_ONCE):
            moved += await self._renew_some(rows, release)
            behind = rows[-1]["job"]
        await zone_data.mark_seen(release, moved)
        if moved:
            log.info("next ticks moved by new zone data", jobs=moved, release=release)
        return moved

    async def _renew_some(self, rows: Sequence[Row], release: str) -> int:
        refused = {row["job"] for row in rows if _refuses(row)}
        if refused:
            names = [row["name"] for row in rows if row["job"] in refused]
            log.warning("jobs refuse the new rules of their zones", jobs=names[:MAX_NAMED], release=release)
            rows = [row for row in rows if row["job"] not in refused]
        moves = [each for each in map(_move_of, rows) if each is not None]
        changed = {each.row["job"] for each in moves}
        same = [(row["job"], row["generation"], end_of(row)) for row in rows if row["job"] not in changed]
        if same:
            await self._store.zone_data.renew_spans(same, release)
        count = 0
        for each in moves:
            try:
                await self._store.database.transaction(PoolName.REQUEST, partial(_move, each))
                count += 1
            except Moved:  # it has fired or was changed meanwhile, by a node with its own data
                log.info("job not changed: it has fired or was edited", job=each.row["name"])
        return count


def _refuses(row: Row) -> bool:
    """Whether it is a job with tzdata_policy `refuse` whose zone has other rules now."""
    if row["zone_rules"] is None:
        return False
    return not has_rules(msgspec.json.decode(row["definition"], type=JobSpec).timezone, row["zone_rules"])


async def _move(each: CursorMove, connection: Connection) -> None:
    await move(connection, [each], ITSELF)
    await announce(connection, [each.row["job"]])


def _move_of(row: Row) -> CursorMove | None:
    """None: its next tick does not change."""
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
    where = NOWHERE if tick is None else CursorPlace(tick, tick + schedule.jitter(row["job"], tick), AUTOMATIC)
    return CursorMove(row, where, "active", "zone data", end, span_of(schedule, end, "zone data", tick))


def next_by_new_data(
    schedule: Schedule, now: datetime, last_tick: datetime | None, former: datetime
) -> datetime | None:
    """The next tick after `now`. If the data moves a fixed local time to later, the tick that fired last appears again:
    it is nearer to that one than to the former next tick, and is left out."""
    tick = schedule.next_after(now)
    if tick is None or last_tick is None or not schedule.at_fixed_local_time(tick):
        return tick
    repeats = last_tick < tick < former and tick - last_tick < former - tick
    return schedule.next_after(tick) if repeats else tick
