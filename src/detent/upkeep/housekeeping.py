"""The small chores that any scheduling node does for the whole cluster, a few seconds apart: history partitions ahead
of time, pulled runs whose lease ran out, the chain of the audit log, and rows that are no longer needed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta

from detent.jobs import JobOperations
from detent.runtime.clock import DatabaseClock
from detent.runtime.service import Loop, do_each
from detent.runtime.wakeups import Wakeups
from detent.scheduler.lifecycle import LifecycleLoop
from detent.store import Store
from detent.store.audit_log import CHAINED_AT_ONCE
from detent.store.db import LockTimeout
from detent.store.requests import PURGE_BATCH
from detent.store.web_sessions import PURGE_BATCH as SESSIONS_BATCH
from detent.telemetry.log import logger
from detent.telemetry.metrics import Metrics
from detent.upkeep.expectations import ExpectationWatch
from detent.worker.pull import sweep

log = logger("node")

UPKEEP_EVERY = 5.0
HISTORY_EVERY_PASSES = 360
HISTORY_DAYS_AHEAD = 7


async def make_history_days(store: Store) -> None:
    """Before the first fire: after a long outage the days since have no partition, and their ticks could not be
    written. If a lock prevents this (an ANALYZE of history is enough), a settle adds its own day, and housekeeping
    tries again."""
    try:
        await store.upkeep.make_history_days(HISTORY_DAYS_AHEAD)
    except LockTimeout as error:
        log.warning("history partitions for the days ahead are not created yet", error=str(error))


class Housekeeping:
    def __init__(
        self,
        store: Store,
        jobs: JobOperations,
        clock: DatabaseClock,
        *,
        lifecycle: LifecycleLoop,
        expectations: ExpectationWatch,
        wakeups: Wakeups,
        metrics: Metrics,
    ) -> None:
        self._store = store
        self._jobs = jobs
        self._clock = clock
        self._lifecycle = lifecycle
        self._expectations = expectations
        self._wakeups = wakeups
        self._metrics = metrics
        self._passes = 0
        self.loop = Loop("upkeep", self.tick)

    async def tick(self) -> float:
        parts: list[Callable[[], Awaitable[object]]] = [self._do_what_is_due]
        if self._passes % HISTORY_EVERY_PASSES == 0:
            parts += [
                lambda: self._store.upkeep.make_history_days(HISTORY_DAYS_AHEAD),
                lambda: self._store.cluster.purge_elections(self._clock.now()),
                lambda: self._store.cluster.purge_nodes(self._clock.now()),
                self._store.secrets.purge,
            ]
        await do_each(parts)
        self._passes += 1  # not before: a part that failed is done by the next pass, not in half an hour
        return UPKEEP_EVERY

    async def _do_what_is_due(self) -> None:
        due = await self._store.upkeep.due(self._clock.now(), timedelta(seconds=UPKEEP_EVERY))
        if due.pauses:
            self._lifecycle.loop.wake()
        if due.catchups:
            self._wakeups.catch_ups_added()
        self._expectations.needed = due.expectations
        parts: list[Callable[[], Awaitable[object]]] = []
        if due.leases or due.waiting:
            parts.append(lambda: sweep(self._store, self._jobs, self._metrics))
        if due.ended:
            parts += [self._end_deleted, self._complete_jobs]
        if due.backlog:
            parts.append(self._end_waiting_of_deleted)
        if due.requests:
            parts.append(self._purge_requests)
        if due.changes:
            parts.append(self._store.upkeep.purge_changes)
        if due.sessions:
            parts.append(self._purge_sessions)
        if due.events:
            parts.append(self._chain_events)
        await do_each(parts)

    async def _end_deleted(self) -> None:
        while await self._store.upkeep.end_deleted():
            pass

    async def _end_waiting_of_deleted(self) -> None:
        while await self._store.tasks.end_of_deleted_jobs():
            pass

    async def _complete_jobs(self) -> None:
        while await self._store.upkeep.complete_jobs():
            pass

    async def _chain_events(self) -> None:
        while await self._store.audit_log.extend_chain() >= CHAINED_AT_ONCE:
            pass

    async def _purge_requests(self) -> None:
        while await self._store.requests.purge(self._clock.now()) >= PURGE_BATCH:
            pass

    async def _purge_sessions(self) -> None:
        while await self._store.web_sessions.purge(self._clock.now()) >= SESSIONS_BATCH:
            pass
