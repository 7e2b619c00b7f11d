"""Figures for the dashboard: one node aggregates runs into minutes and counts jobs, with a small delay.

Each pass reads only what ended since the last one, so its cost follows the work done. Counting jobs reads all of them;
the more there are, the less often they are counted.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from detent.runtime.clock import monotonic
from detent.store import Store
from detent.store.tallies import TallyMark
from detent.telemetry.metrics import LATENESS

TASK = "tally"
TURN = timedelta(seconds=30)
EVERY = timedelta(seconds=4)
PASS_SECONDS = 5.0
IDLE_SECONDS = 30.0
STRETCHES_A_PASS = 10
MINUTE = timedelta(minutes=1)
AMENDED_EVERY = 300.0
AMENDED_BACK = timedelta(minutes=20)
COUNT_AT_MOST_EVERY = timedelta(seconds=10)
COUNT_SHARE = 200  # counting may take a two hundredth of the time


class Tally:
    def __init__(self, store: Store, node: int, done: Callable[[], int]) -> None:
        """`done` returns how much this node has fired and started so far. While that does not change, passes are rare,
        and the work of other nodes is counted a little later."""
        self._store = store
        self._node = node
        self._done = done
        self._seen = -1
        self._look_next = 0.0
        self._amend_next = 0.0
        self._count_pause = COUNT_AT_MOST_EVERY

    async def tick(self) -> float:
        done = self._done()
        if done == self._seen and monotonic() < self._look_next:
            return PASS_SECONDS
        if done == self._seen:
            self._look_next = monotonic() + IDLE_SECONDS
        self._seen = done
        if await self._store.retention.take_turn(TASK, self._node, TURN, EVERY):
            await self.work()
            await self._store.retention.end_turn(TASK, self._node)
        return PASS_SECONDS

    async def work(self) -> None:
        mark = await self._fold()
        if monotonic() >= self._amend_next:
            self._amend_next = monotonic() + AMENDED_EVERY
            end = mark.folded_until.replace(second=0, microsecond=0)
            await self._store.tallies.amend(end - AMENDED_BACK, end - MINUTE, mark, LATENESS)
            await self._store.tallies.purge()
        if mark.count_age >= self._count_pause:
            began = monotonic()
            await self._store.tallies.count_jobs()
            took = timedelta(seconds=monotonic() - began)
            self._count_pause = max(COUNT_AT_MOST_EVERY, took * COUNT_SHARE)

    async def _fold(self) -> TallyMark:
        """Aggregate up to now, or as far as one pass may go."""
        for _ in range(STRETCHES_A_PASS):
            mark = await self._store.tallies.mark()
            if await self._store.tallies.fold(mark, LATENESS) >= mark.foldable:
                break
        return mark
