"""Jobs whose tick this node cannot fire: a schedule that it cannot read, a row that a constraint refuses.

They wait alone, so that the other jobs of their batch fire. Each is tried again after a while, since the cause may be
gone (a restored row, a full disk, a leader of a newer version), and is recorded in the database, so that every node,
`detent doctor`, the dashboard and an alert can name it. The sweep offers the job again: no timer is needed.
"""

from __future__ import annotations

from typing import NamedTuple

from detent.cluster.membership import Membership
from detent.errors import DetentError
from detent.runtime.clock import monotonic
from detent.runtime.service import Loop
from detent.store import Store
from detent.store.catchups import DueCatchUp
from detent.store.cursors import Cursor
from detent.store.set_aside import Unfired, UnfiredKind
from detent.telemetry.log import logger

log = logger("firing")

FIRST_WAIT = 60.0
LONGEST_WAIT = 600.0
WRITTEN_AT_ONCE = 500
PASS_EVERY = 60.0
LONGEST_WHY = 1_000


class SetAsideWait(NamedTuple):
    """What was tried, and when it may be tried again."""

    tick: object
    generation: int
    tries: int
    again_at: float


class SetAside:
    def __init__(self, store: Store, membership: Membership) -> None:
        self._store = store
        self._membership = membership
        self._waiting: dict[tuple[int, UnfiredKind], SetAsideWait] = {}
        self._unwritten: dict[tuple[int, UnfiredKind], Unfired] = {}
        self.loop = Loop("set aside", self.tick)

    def __len__(self) -> int:
        return len(self._waiting)

    def holds(self, cursor: Cursor, *, now: float | None = None) -> bool:
        """Whether this tick was set aside and is not to be tried yet."""
        return self._holds((cursor.job, "tick"), cursor.next_tick, cursor.generation, now)

    def holds_range(self, due: DueCatchUp, *, now: float | None = None) -> bool:
        return self._holds((due.job, "catch-up"), due.next_tick, due.generation, now)

    def add(self, cursor: Cursor, error: Exception, *, now: float | None = None) -> None:
        assert cursor.next_tick is not None
        self._add(Unfired(cursor.job, "tick", cursor.next_tick, cursor.generation, _sentence(error)), now)

    def add_range(self, due: DueCatchUp, error: Exception, *, now: float | None = None) -> None:
        self._add(Unfired(due.job, "catch-up", due.next_tick, due.generation, _sentence(error)), now)

    def _holds(self, key: tuple[int, UnfiredKind], tick: object, generation: int, now: float | None) -> bool:
        waiting = self._waiting.get(key)
        if waiting is None:
            return False
        if (waiting.tick, waiting.generation) != (tick, generation):
            del self._waiting[key]
            return False
        return (monotonic() if now is None else now) < waiting.again_at

    def _add(self, unfired: Unfired, now: float | None) -> None:
        key = unfired.job, unfired.kind
        before = self._waiting.get(key)
        same = before is not None and (before.tick, before.generation) == (unfired.tick, unfired.generation)
        tries = before.tries + 1 if before is not None and same else 1
        wait = min(FIRST_WAIT * 2.0 ** min(tries - 1, 10), LONGEST_WAIT)
        now = monotonic() if now is None else now
        self._waiting[key] = SetAsideWait(unfired.tick, unfired.generation, tries, now + wait)
        self._unwritten[key] = unfired
        if tries == 1:
            log.error(
                "set aside: its tick cannot be fired", job_number=unfired.job, kind=unfired.kind, error=unfired.why
            )
        self.loop.wake()

    async def tick(self) -> float:
        self.drop_old(monotonic())
        while self._unwritten and self._membership.trusted:
            batch = dict(list(self._unwritten.items())[:WRITTEN_AT_ONCE])
            await self._store.set_aside.add(self._membership.node, list(batch.values()))
            for key, unfired in batch.items():
                if self._unwritten.get(key) is unfired:
                    del self._unwritten[key]
        return PASS_EVERY

    def drop_old(self, now: float) -> None:
        """Jobs that were not offered again: deleted, or led by another node."""
        old = [key for key, waiting in self._waiting.items() if waiting.again_at + LONGEST_WAIT < now]
        for key in old:
            del self._waiting[key]
            self._unwritten.pop(key, None)


def _sentence(error: Exception) -> str:
    text = error.message if isinstance(error, DetentError) else str(error) or repr(error)
    return text.replace("\x00", "")[:LONGEST_WHY]
