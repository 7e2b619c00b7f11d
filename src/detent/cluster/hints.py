"""Notifications between nodes as hints. The polls of scheduler and worker are the guarantee; a hint only saves the
wait.

Sending is coalesced: however many batches fire, a queue is announced at most once in `GATHER` seconds, because NOTIFY
takes a lock that all committing transactions share.
"""

from __future__ import annotations

import asyncio
import random

from detent.runtime.service import Loop, backoff
from detent.runtime.wakeups import Wakeups
from detent.store import Store
from detent.store.listen import hearing
from detent.store.upkeep import JOBS_CHANNEL, RUNS_CHANNEL
from detent.telemetry.log import logger

log = logger("hints")

GATHER = 0.05


class Hints:
    def __init__(self, store: Store, wakeups: Wakeups) -> None:
        self._store = store
        self._wakeups = wakeups
        self._hearing = hearing(store.database, {JOBS_CHANNEL: self._on_jobs, RUNS_CHANNEL: self._on_runs})
        self._announcement: asyncio.Task[None] | None = None
        self._unannounced = False
        self._closed = False
        self.loop = Loop("hints", self.tick)
        wakeups.runs_queued.subscribe(self.announce_runs)
        wakeups.runs_given_back.subscribe(self.announce_runs)

    async def tick(self) -> float:
        """Listen. If the connection was lost, hints may have been missed: every part reads everything again."""
        if await self._hearing.ensure():
            self._wakeups.jobs_changed(None)
            self._wakeups.runs_ready()
            self._wakeups.runs_enqueued(None)
            self._wakeups.runs_cancelled()
            self._wakeups.share_changed()
            self._wakeups.hold_changed()
        return self._hearing.every * random.uniform(0.9, 1.0)

    def announce_runs(self) -> None:
        """Notify other nodes that runs are ready, soon and once. Runs that become ready while a notification is being
        sent are announced again: other nodes may have claimed before they were there."""
        self._unannounced = True
        if self._announcement is None or self._announcement.done():
            self._announcement = asyncio.create_task(self._announce())

    async def announce_share(self) -> None:
        """Notify other nodes, at once, that a node joins, leaves or has released partitions."""
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
            self._wakeups.jobs_changed({int(number) for number in payload.split(",")})
        except ValueError:
            self._wakeups.jobs_changed(None)

    def _on_runs(self, payload: str) -> None:
        match payload:
            case "cancel":
                self._wakeups.runs_cancelled()
            case "share":
                self._wakeups.share_changed()
            case "hold":
                self._wakeups.hold_changed()
            case "queues":
                self._wakeups.queues_changed()
            case _:
                kind, _, job = payload.partition(":")
                if kind == "task" and job.isdecimal():
                    self._wakeups.runs_enqueued(int(job))
                else:
                    self._wakeups.runs_ready()

    async def close(self) -> None:
        self._closed = True
        if self._announcement is not None:
            await asyncio.gather(self._announcement, return_exceptions=True)
        await self._hearing.close()
