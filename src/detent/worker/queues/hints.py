"""Notifications as hints. The polls of scheduler and worker are the guarantee; a hint only spares the wait.

Sending is coalesced: however many batches fire, a queue is announced at most once in `GATHER` seconds, because NOTIFY
takes a lock that all committing transactions share.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from detent.runtime.service import backoff
from detent.store import Store
from detent.store.listen import hearing
from detent.store.upkeep import JOBS_CHANNEL, RUNS_CHANNEL
from detent.telemetry.log import logger

log = logger("hints")

GATHER = 0.05


class Hints:
    def __init__(
        self,
        store: Store,
        jobs_changed: Callable[[set[int] | None], None],
        runs_ready: Callable[[], None],
        runs_cancelled: Callable[[], None],
        share_changed: Callable[[], None],
        hold_changed: Callable[[], None],
        queues_changed: Callable[[], None],
    ) -> None:
        self._store = store
        self._jobs_changed = jobs_changed
        self._runs_ready = runs_ready
        self._runs_cancelled = runs_cancelled
        self._share_changed = share_changed
        self._hold_changed = hold_changed
        self._queues_changed = queues_changed
        self._hearing = hearing(store.database, {JOBS_CHANNEL: self._on_jobs, RUNS_CHANNEL: self._on_runs})
        self._announcement: asyncio.Task[None] | None = None
        self._unannounced = False
        self._closed = False

    async def tick(self) -> float:
        """Listen, again if the connection was lost; whatever was said meanwhile is found by looking at everything."""
        if await self._hearing.ensure():
            self._jobs_changed(None)
            self._runs_ready()
            self._runs_cancelled()
            self._share_changed()
            self._hold_changed()
        return self._hearing.every * random.uniform(0.9, 1.0)

    def announce_runs(self) -> None:
        """Notify other nodes that runs are ready, soon and once. What becomes ready while a notification is being sent
        is announced again: the other nodes may have looked before it was there."""
        self._unannounced = True
        if self._announcement is None or self._announcement.done():
            self._announcement = asyncio.create_task(self._announce())

    async def announce_share(self) -> None:
        """Tell other nodes, at once, that somebody came, goes or gave something up."""
        await self._send("share")

    async def _announce(self) -> None:
        """A notification that fails is retried: until the next poll, no other node would claim these runs."""
        failures = 0
        while self._unannounced:
            await asyncio.sleep(backoff(failures) if failures else GATHER)
            self._unannounced = False
            if await self._send("ready"):
                failures = 0
            elif not self._closed:
                failures += 1
                self._unannounced = True

    async def _send(self, payload: str) -> bool:
        try:
            await self._store.upkeep.wake(RUNS_CHANNEL, payload)
        except Exception as error:
            log.info("hint not sent", error=str(error))
            return False
        return True

    def _on_jobs(self, payload: str) -> None:
        try:
            self._jobs_changed({int(number) for number in payload.split(",")})
        except ValueError:
            self._jobs_changed(None)

    def _on_runs(self, payload: str) -> None:
        match payload:
            case "cancel":
                self._runs_cancelled()
            case "share":
                self._share_changed()
            case "hold":
                self._hold_changed()
            case "queues":
                self._queues_changed()
            case _:
                self._runs_ready()

    async def close(self) -> None:
        self._closed = True
        if self._announcement is not None:
            await asyncio.gather(self._announcement, return_exceptions=True)
        await self._hearing.close()
