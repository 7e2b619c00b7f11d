"""Fixed delay: a tick that counts from the end of the run before.

No statement that ends a run knows about it. Its cursor stands on the next *look*, which comes before the earliest
possible tick. A look reads, in one statement, whether a run of the job is unfinished and when the last one ended:

    a run is unfinished    the cursor moves on by another look
    the last one ended     the cursor moves to that end plus the delay, which is the tick
    that is where it is    the tick fires as any other, by compare-and-set; the cursor moves to the look after it

A look comes no later than one delay after the one before. So a run that was unfinished at a look, and has ended by the
next one, ended less than a delay ago: its tick is still to come, and is exact. However a run ends (settled, dead,
cancelled, rescued, reported by a callback or a pull worker), its end is in the tables, and there is always a cursor
with a time: no wake-up can be lost, whoever is killed when.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from detent.domain.delay_rules import look_after
from detent.domain.schedule import Schedule
from detent.scheduler.planning import tick_of
from detent.scheduler.upcoming import UpcomingTicks
from detent.store.cursors import Advance, Cursor, CursorStore, DelayLook


async def ready(
    store: CursorStore,
    node: int,
    ticks: UpcomingTicks,
    planned: Sequence[Advance],
    schedules: Mapping[int, Schedule],
) -> list[Advance]:
    """The advances whose tick may fire now. The other cursors are moved: they wait for the end of a run, or for their
    delay after it. Cursors that are locked stay in flight, so that they are read again after the batch."""
    moved, busy = await store.look_at_delays(node, [_look(item.cursor, schedules) for item in planned])
    waiting = [item.cursor for item in planned if item.cursor.job in moved]
    for cursor in waiting:
        ticks.in_flight.pop(cursor.job, None)
    ticks.moved(cursor._replace(next_tick=moved[cursor.job], fire_at=moved[cursor.job]) for cursor in waiting)
    return [item for item in planned if item.cursor.job not in moved and item.cursor.job not in busy]


def _look(cursor: Cursor, schedules: Mapping[int, Schedule]) -> DelayLook:
    schedule = schedules[cursor.schedule]
    assert schedule.delay is not None
    ends = schedule.bounds()[1]
    until = None if ends is None else datetime.fromisoformat(ends)
    return DelayLook(cursor.job, tick_of(cursor), cursor.generation, schedule.delay, look_after(schedule.delay), until)
