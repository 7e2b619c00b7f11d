"""Ticks as the fire takes them, without the rest of their cursors."""

from __future__ import annotations

from datetime import datetime

from detent.store.cursors import Advance, Cursor


def advance_of(
    job: int, tick: datetime, generation: int, next_tick: datetime | None, fire_at: datetime | None = None
) -> Advance:
    """Of a cursor that must be at (tick, generation) and moves to `next_tick`; `fire_at`: if that is another time."""
    cursor = Cursor(job, tick, tick, generation, False, 1, 1, 1, -1, 0, 5, 1, False)
    return Advance(cursor, next_tick, next_tick if fire_at is None else fire_at)
