"""Ticks of the ranges that run besides the cursor. No I/O."""

from __future__ import annotations

from datetime import datetime

from detent.domain.misfire import SHORTEST_STEP, MissedRange, split_by_day
from detent.domain.schedule import Schedule
from detent.store.catchups import DueCatchUp


def tick_after(schedule: Schedule, due: DueCatchUp) -> datetime | None:
    """The tick after the next one of a range, in its direction; None: the next one is the last."""
    schedule = schedule.anchored(due.next_tick)
    if due.descending:
        return schedule.latest(due.since, due.next_tick - SHORTEST_STEP)
    tick = schedule.next_after(due.next_tick)
    return tick if tick is not None and tick <= due.until else None


def dropped_ticks(schedule: Schedule, due: DueCatchUp, reason: str) -> list[MissedRange]:
    """What the ledger records for a range that is dropped. Ticks of a backfill need no entry."""
    if due.kind == "backfill":
        return []
    return split_by_day(schedule.anchored(due.next_tick), due.next_tick, due.until, reason)
