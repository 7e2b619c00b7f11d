"""The sender of offers: runs that a fire put into queues are offered to workers through the transport.

An offer takes the place of a notification only where the broker has acknowledged it. While the broker is away, or where
it does not acknowledge, runs are announced as without a transport; so workers always listen. Some runs are not claimed
by key: those of queues with limits, and of queues whose name several tenants use. They are announced too, because a
notification wakes every worker that could take a part of them, and a `QueueOffer` tells the programs that listen to the
broker alone. The same holds while programs wait for runs in the API.

A transport that cannot delay gets an offer when it is due; until then it is kept here, and lost with the process: the
scan (offer_scan.py) finds its run again.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from collections.abc import Iterable, Sequence
from itertools import count

from detent.domain.identity import milliseconds, run_id_text
from detent.domain.offer import Offer, QueueOffer, RunOffer
from detent.runtime.clock import DatabaseClock, monotonic
from detent.runtime.service import Loop
from detent.runtime.wakeups import Wakeups
from detent.scheduler.planning import tick_of
from detent.store.cursors import Cursor
from detent.telemetry.metrics import Metrics
from detent.transports.link import TransportLink
from detent.transports.transport import TransportAwayError
from detent.worker.queues.book import QueueBook

BATCH = 1000
# More than a broker takes in many seconds: beyond that, runs are announced instead.
MAX_WAITING = 100_000
MAX_KEPT = 100_000
# A queue is not named more often: whoever claims from it takes what it finds.
NAME_QUEUE_EVERY = 1.0
CHECK_EVERY = 1.0
# A broker that takes longer to acknowledge is not waited for with the announcement.
SLOW_SECONDS = 0.5
AWAY_PAUSE = 0.5
FINISH_SECONDS = 2.0


class OfferSender:
    def __init__(
        self, link: TransportLink, clock: DatabaseClock, *, book: QueueBook, wakeups: Wakeups, metrics: Metrics
    ) -> None:
        self.link = link
        self._clock = clock
        self._wakeups = wakeups
        self._metrics = metrics
        self._shared = SharedQueues(book)
        self._waiting: list[RunOffer] = []
        self._queues: dict[int, QueueOffer] = {}
        self._named: dict[int, float] = {}
        self._kept: list[tuple[float, int, Offer]] = []
        self._serial = count()
        self._programs_pull = False
        self.loop = Loop("offers", self.tick)
        wakeups.programs_pull.subscribe(self._set_programs_pull)

    def _set_programs_pull(self, pull: bool) -> None:
        self._programs_pull = pull

    def fired(self, runs: Iterable[tuple[Cursor, int]], token: int) -> None:
        """Runs that a fire put into their queues: their cursors before it, and their lanes."""
        if not self.link.up or len(self._waiting) >= MAX_WAITING:
            self._wakeups.runs_queued()
            return
        self._waiting += [_offer_of(cursor, lane, token) for cursor, lane in runs]
        self.loop.wake()

    def add(self, offers: Iterable[Offer]) -> None:
        """Offers that the scan has found. What is not due yet is kept, unless the transport does that."""
        now = self._clock.now()
        for offer in offers:
            if offer.due > now and not self.link.transport.delays:
                if len(self._kept) < MAX_KEPT:
                    heapq.heappush(self._kept, (offer.due.timestamp(), next(self._serial), offer))
            else:
                self._put(offer)
        self.loop.wake()

    def _put(self, offer: Offer) -> None:
        if isinstance(offer, RunOffer):
            self._waiting.append(offer)
        else:
            self._name(offer)

    def _name(self, offer: QueueOffer) -> None:
        known = self._queues.get(offer.queue)
        if known is None or (offer.due, -offer.priority) < (known.due, -known.priority):
            self._queues[offer.queue] = offer

    # --- the loop ---

    async def tick(self) -> float:
        if not await self.link.ensure():
            self._announce_all()
            return AWAY_PAUSE
        announce_at = monotonic() + SLOW_SECONDS
        self._take_due()
        while self._waiting:
            batch, self._waiting = self._waiting[:BATCH], self._waiting[BATCH:]
            await self._send_runs(batch)
            if self._waiting and monotonic() >= announce_at:  # a broker that is slow, batch by batch
                self._wakeups.runs_queued()
                announce_at = monotonic() + SLOW_SECONDS
            await self._send_queues()
            self._take_due()
        await self._send_queues()
        return self._pause()

    def _take_due(self) -> None:
        now = self._clock.seconds()
        while self._kept and self._kept[0][0] <= now:
            self._put(heapq.heappop(self._kept)[2])

    async def _send_runs(self, batch: Sequence[RunOffer]) -> None:
        shared = self._shared.numbers()
        by_key = batch if not shared else [offer for offer in batch if offer.queue not in shared]
        if len(by_key) < len(batch):
            for offer in batch:
                if offer.queue in shared:
                    self._name(QueueOffer(offer.queue, offer.priority, offer.due))
        if by_key:
            await self._send(by_key)
        if len(by_key) < len(batch) or self._programs_pull:
            self._wakeups.runs_queued()

    async def _send_queues(self) -> None:
        now = monotonic()
        due = [queue for queue in self._queues if now - self._named.get(queue, 0.0) >= NAME_QUEUE_EVERY]
        if due:
            self._named = {queue: at for queue, at in self._named.items() if now - at < NAME_QUEUE_EVERY}
            self._named.update(dict.fromkeys(due, now))
            await self._send([self._queues.pop(queue) for queue in due])

    async def _send(self, offers: Sequence[Offer]) -> None:
        try:
            await self._acknowledged(offers)
        except BaseException as error:
            # Whatever the broker has of them: they are offered twice at worst.
            self._announce_all(always=True)
            if not isinstance(error, TransportAwayError):
                raise
            self.link.away(error)
        else:
            self._metrics.offers_sent += len(offers)

    async def _acknowledged(self, offers: Sequence[Offer]) -> None:
        """While the broker takes long, runs are announced: these, and those that are fired meanwhile."""
        sending = asyncio.ensure_future(self.link.transport.send(offers))
        try:
            while not (await asyncio.wait((sending,), timeout=SLOW_SECONDS))[0]:
                self._wakeups.runs_queued()
            sending.result()
        finally:
            sending.cancel()

    def _announce_all(self, *, always: bool = False) -> None:
        """As without a transport. Offers that are not due yet are found again by the scan."""
        if self._waiting or always:
            self._wakeups.runs_queued()
        self._waiting.clear()
        self._queues.clear()
        self._kept.clear()

    def _pause(self) -> float:
        wait = CHECK_EVERY
        if self._kept:
            wait = min(wait, self._kept[0][0] - self._clock.seconds())
        if self._queues:
            first = min(self._named.get(queue, 0.0) for queue in self._queues)
            wait = min(wait, first + NAME_QUEUE_EVERY - monotonic())
        return max(wait, 0.001)

    async def close(self) -> None:
        """After the last fire: send what is left, or announce it. A broker that hangs is not waited for."""
        with contextlib.suppress(Exception):  # a pass that fails has announced what it was to send
            async with asyncio.timeout(FINISH_SECONDS):
                await self.loop.stop()
                await self.tick()
        await self.loop.abort()
        self._announce_all()


class SharedQueues:
    """The queues whose runs are not claimed by key: those with limits, and those whose name several tenants use, since
    a worker that serves the name has to share itself among them."""

    def __init__(self, book: QueueBook) -> None:
        self._book = book
        self._version = -1
        self._numbers: frozenset[int] = frozenset()

    def numbers(self) -> frozenset[int]:
        if self._version != self._book.version:
            self._version = self._book.version
            rows = self._book.rows.values()
            tenants: dict[str, set[int]] = {}
            for row in rows:
                if row.has_jobs:
                    tenants.setdefault(row.name, set()).add(row.tenant)
            self._numbers = frozenset(row.queue for row in rows if row.limits or len(tenants.get(row.name, ())) > 1)
        return self._numbers


def _offer_of(cursor: Cursor, lane: int, token: int) -> RunOffer:
    tick = tick_of(cursor)
    return RunOffer(
        queue=cursor.queue,
        job=cursor.job,
        lane=lane,
        scheduled_at=tick,
        serial=0,
        token=token,
        revision=cursor.revision,
        priority=cursor.priority,
        due=tick,
        run_id=run_id_text(cursor.job, milliseconds(tick), 0),
    )
