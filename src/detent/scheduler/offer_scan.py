"""The scan: runs that became ready without a fire of this node are found, and offered.

A retry that is due, a run that was rescued, given back, promoted, admitted, released or re-driven, and whatever a
broker has lost: all of them are rows of `live_runs` that wait. The node that leads partition 0 reads them every second,
and soon after a hint: those that are ready, and those that will be within a minute where the transport can delay. It
remembers what it has offered, and offers again what still waits after half a minute. The memory saves work and nothing
else: with a new leader, or after the broker was away, it is empty, and runs are offered twice. A broker that comes and
goes (`link.py`) does not empty it.

A tick that was fired a moment ago was offered by its fire, perhaps on another node: the scan leaves it alone until it
has waited for `FIRED_SECONDS`. Where more runs wait in a queue than it reads, it names the queue: then workers claim
from it as without a transport.

On-demand runs wait in the backlog, from which they are not claimed by key. The scan names their queues.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from detent.cluster.membership import Membership
from detent.domain.identity import COUNTER
from detent.domain.offer import Offer, QueueOffer, RunOffer
from detent.runtime.clock import DatabaseClock, monotonic
from detent.runtime.service import Loop
from detent.runtime.wakeups import Wakeups
from detent.scheduler.offering import OfferSender
from detent.store import Store

SCAN_EVERY = 1.0
# After a hint, when workers that heard it, too, have claimed what they can; and not much more often.
AFTER_HINT = 0.1
SCAN_SOON = 0.5
OF_EACH = 200
LIMIT = 2000
AHEAD = timedelta(seconds=60)
# Where the sender has to keep what is not due yet.
SHORT_AHEAD = timedelta(seconds=5)
OFFER_AGAIN = timedelta(seconds=30)
FIRED_SECONDS = timedelta(seconds=2)
MAX_REMEMBERED = 100_000
# All places where on-demand runs wait are read this often; and this many times as long as it took lies between.
HEADS_EVERY = 10.0
HEADS_SHARE = 20
MAX_JOBS = 1000
IDLE_PAUSE = 0.5

Offered = tuple[int, datetime, int, int, datetime]


class OfferScan:
    def __init__(
        self,
        store: Store,
        membership: Membership,
        clock: DatabaseClock,
        sender: OfferSender,
        *,
        leads: Callable[[], bool],
        wakeups: Wakeups,
    ) -> None:
        """`leads`: whether this node leads partition 0."""
        self._store = store
        self._membership = membership
        self._clock = clock
        self._sender = sender
        self._link = sender.link
        self._leads = leads
        self._memory: dict[Offered, datetime] = {}
        self._opened = -1
        self._enqueued: set[int] = set()
        self._read_again: set[int] = set()
        self._heads_next = 0.0
        self._next = 0.0
        self._read_at = 0.0
        self.loop = Loop("scan for offers", self.tick)
        for event in (wakeups.runs_ready, wakeups.runs_given_back, wakeups.runs_queued):
            event.subscribe(self._hint)
        wakeups.runs_enqueued.subscribe(self._hint_of_job)

    def _hint(self) -> None:
        self._next = min(self._next, max(monotonic() + AFTER_HINT, self._read_at + SCAN_SOON))
        self.loop.wake()

    def _hint_of_job(self, job: int | None) -> None:
        if job is None or len(self._enqueued) >= MAX_JOBS:
            self._heads_next = 0.0
        else:
            self._enqueued.add(job)
        self._hint()

    async def tick(self) -> float:
        leads = self._leads() and self._membership.trusted
        if not leads or not self._link.up:
            if not leads:  # if the broker was away, a new value of `opened` clears the memory below
                self._memory.clear()
            self._enqueued.clear()
            return IDLE_PAUSE
        if self._opened != self._link.opened:
            self._opened, self._heads_next = self._link.opened, 0.0
            self._memory.clear()
        now = monotonic()
        if now < self._next:
            return self._next - now
        self._read_at, self._next = now, now + SCAN_EVERY  # set before the reads: a hint during them is not lost
        await self._scan_runs()
        await self._scan_on_demand()
        return max(self._next - monotonic(), 0.0)

    # --- runs that are claimed by key ---

    async def _scan_runs(self) -> None:
        ahead = AHEAD if self._link.transport.delays else SHORT_AHEAD
        found = await self._store.offers.waiting(ahead, OF_EACH, LIMIT)
        now = self._clock.now()
        deep = [place for place, number in Counter((o.queue, o.priority) for o in found).items() if number >= OF_EACH]
        offers: list[Offer] = [QueueOffer(queue, priority, now) for queue, priority in deep]
        offers += self._not_offered_yet(found, now)
        if offers:
            self._sender.add(offers)

    def _not_offered_yet(self, found: Iterable[RunOffer], now: datetime) -> Iterable[RunOffer]:
        """Those that are to be offered now, which are remembered from here on."""
        fresh = []
        kept: dict[Offered, datetime] = {}
        for offer in found:
            if _just_fired(offer, now):
                continue
            key = (offer.job, offer.scheduled_at, offer.serial, offer.token, offer.due)
            again = self._memory.get(key)
            if again is None or now >= again:
                again = max(now, offer.due) + OFFER_AGAIN
                fresh.append(offer)
            kept[key] = again
        self._remember(kept, now)
        return fresh

    def _remember(self, kept: dict[Offered, datetime], now: datetime) -> None:
        """What a scan did not read may wait all the same: there may be more than it reads."""
        for key, again in self._memory.items():
            if again > now and len(kept) < MAX_REMEMBERED:
                kept.setdefault(key, again)
        self._memory = kept

    # --- on-demand runs ---

    async def _scan_on_demand(self) -> None:
        """After a hint the heads of its job, and now and then all of them."""
        began = monotonic()
        # Twice: of enqueues that commit together one sends the hint.
        jobs, self._read_again, self._enqueued = self._enqueued | self._read_again, self._enqueued, set()
        if began >= self._heads_next:
            heads = await self._store.tasks.heads(None)
            self._heads_next = began + max(HEADS_EVERY, HEADS_SHARE * (monotonic() - began))
        elif jobs:
            heads = await self._store.tasks.heads(None, sorted(jobs))
        else:
            return
        now = self._clock.now()
        soon = now + (AHEAD if self._link.transport.delays else SHORT_AHEAD)
        self._sender.add(
            QueueOffer(head.queue, head.priority, max(head.not_before, now))
            for head in heads
            if head.not_before <= soon
        )


def _just_fired(offer: RunOffer, now: datetime) -> bool:
    """A tick that no worker has claimed yet, due a moment ago."""
    return offer.serial == 0 and offer.token & COUNTER == 1 and now - FIRED_SECONDS < offer.due <= now
