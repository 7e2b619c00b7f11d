"""One node's scheduler: it loads upcoming ticks into a wheel, and passes due ticks to the fire.

Polling guarantees that no tick is missed; the wheel and notifications only make it faster. Every half window the next
window of cursors is loaded. Every `SWEEP_EVERY` seconds a sweep without a lower bound reads everything that should fire
before the next sweep, so that a registration that committed late, or whose notification was lost, is found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from datetime import datetime, timedelta
from itertools import islice

from detent.cluster.membership import Membership
from detent.domain.misfire import AUTOMATIC
from detent.runtime.clock import DatabaseClock, monotonic
from detent.runtime.service import Loop
from detent.runtime.wakeups import Wakeups
from detent.scheduler.catch_up import CatchUpReleaser
from detent.scheduler.catch_up_jobs import CatchUpJobs
from detent.scheduler.firing import Firing
from detent.scheduler.handoff import Handoff
from detent.scheduler.offering import OfferSender
from detent.scheduler.planning import TickPlanner
from detent.scheduler.set_aside import SetAside
from detent.scheduler.upcoming import UpcomingTicks
from detent.store import Store
from detent.telemetry.metrics import Metrics
from detent.worker.queues.book import QueueBook

SWEEP_EVERY = 10.0
SWEEP_SOON = 1.0
LONGEST_WITHOUT_SWEEP = 30.0
MANY_DUE = 10_000
SWEEP_AHEAD = timedelta(seconds=12)
# While a herd is fired, half a million ticks may wait: to count them all for a scrape would itself make them late.
MAX_COUNTED = 100_000
# Most cursors that one statement reads while others are due: each holds the event loop for 10 to 15 µs.
MAX_READ = 2_048
FULL_CHUNK = 16
FULL_LIMIT = 5_000
IDLE_PAUSE = 0.5
# While due ticks wait to be sent, every pass asks the fire this often whether it can send them.
UNSENT_PAUSE = 0.05
UNSENT_AFTER = timedelta(seconds=1)


class Scheduler:
    def __init__(
        self,
        store: Store,
        membership: Membership,
        clock: DatabaseClock,
        *,
        worker: Handoff | None,
        book: QueueBook,
        wakeups: Wakeups,
        metrics: Metrics,
        window_seconds: float,
        catch_up_rate: float | None = None,
        grace_seconds: int | None = None,
        offers: OfferSender | None = None,
    ) -> None:
        """`worker`: that of this node; None where it has none. `grace_seconds`: for jobs that set none. `offers`: what
        offers runs to workers through a transport; None: PostgreSQL is the queue."""
        self._store = store
        self._membership = membership
        self._clock = clock
        self._window = timedelta(seconds=window_seconds)
        self._ticks = UpcomingTicks(clock, wakeups, self._window)
        self._partitions: list[int] = []
        self._loaded_until: datetime | None = None
        self._load_next = 0.0
        self._sweep_next = 0.0
        self._swept_at = 0.0
        self._overfull = False
        self._held = False
        self._changed: set[int] = set()
        self.loop = Loop("scheduler", self.tick)
        self.aside = SetAside(store, membership)
        catch_ups = CatchUpJobs(metrics, wakeups)
        self.firing = Firing(
            store, membership, clock, ticks=self._ticks, aside=self.aside, catch_ups=catch_ups,
            planner=TickPlanner(AUTOMATIC if grace_seconds is None else grace_seconds),
            worker=worker, offers=offers, book=book, wakeups=wakeups, metrics=metrics,
        )  # fmt: skip
        self.releaser = CatchUpReleaser(
            store, membership, clock, live=self.firing, jobs=catch_ups, aside=self.aside,
            wakeups=wakeups, metrics=metrics, rate=catch_up_rate,
        )  # fmt: skip
        wakeups.cursors_moved.subscribe(self.loop.wake)
        wakeups.jobs_changed.subscribe(self.jobs_changed)
        wakeups.hold_changed.subscribe(self._hold_changed)

    def lead(self, partitions: Collection[int]) -> None:
        """The partitions this node leads now; the cursors of new ones are loaded at the next pass."""
        before, led = frozenset(self._partitions), frozenset(partitions)
        self._partitions = sorted(led)
        self._ticks.lead(led)
        self.releaser.lead(self._partitions)
        if not before >= led:
            self._load_everything()
            self.loop.wake()

    async def stop_leading(self, partitions: Collection[int]) -> None:
        """Stop firing these partitions, and wait for the fires in progress."""
        self.lead([number for number in self._partitions if number not in partitions])
        await self.firing.finish(partitions)

    def jobs_changed(self, jobs: set[int] | None) -> None:
        """These jobs changed, or (None) some did. Best effort: a sweep finds changes too."""
        if not self._partitions:
            return  # the next leader loads everything
        if jobs is None:
            self._sweep_next = 0.0
        else:
            self._changed |= jobs
        self.releaser.read_soon()
        self.loop.wake()

    def _hold_changed(self) -> None:
        self.jobs_changed(None)

    async def tick(self) -> float:
        if not self._partitions or not self._membership.trusted:
            return IDLE_PAUSE
        if self._membership.held:
            self._held = True
            return IDLE_PAUSE
        if self._held:  # ticks that fell into the hold are late or missed, by each job's own rule
            self._held = False
            self._load_everything()
        self._offer_due()
        await self._read_changes()
        await self._look_ahead()
        self._offer_due()
        return self._pause()

    def _load_everything(self) -> None:
        self._load_next = self._sweep_next = 0.0
        self._loaded_until = None

    async def _read_changes(self) -> None:
        changed, again = self._changed, self._ticks.to_read
        if not (changed or again):
            return
        self._changed, self._ticks.to_read = set(), {}
        try:
            found = await self._store.cursors.load(sorted(changed | again.keys()))
        except BaseException:
            self._changed |= changed
            self._ticks.to_read = again | self._ticks.to_read
            raise
        self._ticks.admit_again(found, again)

    async def _look_ahead(self) -> None:
        if monotonic() >= self._sweep_next and self._sweep_may_wait():
            self._sweep_next = monotonic() + SWEEP_SOON
        if monotonic() >= self._sweep_next:
            self._swept_at = monotonic()
            await self._load(None, self._clock.now() + SWEEP_AHEAD)
            self._sweep_next = monotonic() + (SWEEP_EVERY if not self._overfull else SWEEP_SOON)
        if monotonic() >= self._load_next:
            upper = self._clock.now() + self._window
            await self._load(self._loaded_until, upper)
            self._loaded_until = upper
            self._load_next = monotonic() + self._window.total_seconds() / 2

    def _sweep_may_wait(self) -> bool:
        """While very many ticks are due, a sweep would read them all once more and delay the fire. A registration that
        committed late, which is what the sweep is for, can wait until there are fewer, up to a limit."""
        many = self.firing.waiting_ticks > MANY_DUE
        return many and monotonic() - self._swept_at < LONGEST_WITHOUT_SWEEP

    async def _load(self, lower: datetime | None, upper: datetime) -> None:
        """One statement for all partitions; those with more cursors than it returns are read again, a few at a time and
        then one by one, so that no load holds the loop for long: ticks that are due meanwhile must not wait. Cursors
        beyond the last limit are left to the next sweep, which then comes soon."""
        full = self._partitions
        for step in (len(full), FULL_CHUNK):
            parts = [full[start : start + step] for start in range(0, len(full), max(step, 1))]
            full = [
                partition
                for some in parts
                for partition in await self._load_some(some, lower, upper, max(MAX_READ // len(some), 1))
            ]
        overfull = [await self._load_some([partition], lower, upper, FULL_LIMIT) for partition in full]
        self._overfull = any(overfull)

    async def _load_some(self, partitions: list[int], lower: datetime | None, upper: datetime, limit: int) -> list[int]:
        """The partitions that may hold more than the limit."""
        cursors = await self._store.cursors.window(partitions, lower, upper, limit)
        counts: Counter[int] = Counter(cursor.partition for cursor in cursors)
        self._ticks.admit(cursors)
        self._offer_due()
        if lower is None:
            self.firing.prefetch(cursors)
        return [partition for partition, count in counts.items() if count >= limit]

    def _offer_due(self) -> None:
        now = self._clock.milliseconds()
        if self._membership.held:
            return  # checked after the time was read: a heartbeat reports a hold before it reports a new time
        due = self._ticks.take_due(now)
        if due:
            self.firing.offer(due)
        elif self.firing.behind:
            self.firing.pump()

    def unsent(self) -> tuple[int, float]:
        """How many ticks this node has held for longer than a second since they were due, and for how long the oldest:
        in the wheel, where a pass should have found them, or on their way."""
        now = self._clock.now()
        before = now - UNSENT_AFTER
        in_wheel, first = self._ticks.overdue_in_wheel(before)
        held = [
            cursor.fire_at
            for cursor in self._ticks.to_be_tried_again()
            if cursor.fire_at is not None and cursor.fire_at < before and not self.firing.waits_for_lane(cursor.job)
        ]
        held += islice(self.firing.unsent(before), MAX_COUNTED)
        oldest = min([*held, *([first] if first is not None else [])], default=now)
        return in_wheel + len(held), (now - oldest).total_seconds()

    def _pause(self) -> float:
        if self._ticks.to_read:
            return 0.0
        wait = min(self._sweep_next, self._load_next) - monotonic()
        if self.firing.behind:
            wait = min(wait, UNSENT_PAUSE)
        next_due = self._ticks.next_due()
        if next_due is not None:
            wait = min(wait, (next_due - self._clock.seconds() * 1000) / 1000)
        return max(wait, 0.0005)
