"""The heads of the backlog that a worker remembers: where on-demand runs wait, and when the first of each is due.

Their times are kept on the clock of this process, from the seconds that the database gave with them. A head that is due
and gave nothing pauses, longer each time: another worker has its runs locked, or enough of them are in `live_runs`.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from detent.runtime.clock import monotonic
from detent.store import Store
from detent.store.db import PoolName
from detent.store.tasks import Place, TaskHead

# If there are any; else half as often, which is when the worker claims in any case.
READ_EVERY = 5.0
# After reading all heads, this many times as long without reading all of them again.
READ_SHARE = 20
CHEAP_READ = 0.01
AFTER_HINT = (0.004, 0.03, 0.2)
# Heads of one statement.
MAX_HEADS = 200
# More changed jobs than this: read all heads.
MAX_CHANGED = 1000
# Statements of one claim: where runs with and without concurrency keys alternate by priority.
MAX_BANDS = 4
SHORTEST_PAUSE = 0.002
LONGEST_PAUSE = 1.0

HeadKey = tuple[int, int, bool, int]


class TaskHeads:
    def __init__(self, store: Store, pool: PoolName) -> None:
        self._store = store
        self._pool = pool
        self.known: dict[HeadKey, TaskHead] = {}
        self._due: dict[HeadKey, float] = {}
        self._pauses: dict[HeadKey, tuple[float, float]] = {}
        self._turns: dict[HeadKey, float] = {}
        self.stale: set[int] = set()
        """Jobs whose heads are to be read again."""
        self._reads: list[float] = []
        self._next_read = 0.0
        self._earliest_read = 0.0
        self._read_seconds = 0.0
        self._queues: list[int] | None = []
        self.laned_jobs: frozenset[int] = frozenset()
        self.any_keyed = False

    # --- reading them ---

    def hint(self, job: int | None) -> None:
        if job is None:
            self._next_read = 0.0
            return
        self.stale.add(job)
        now = monotonic()
        # The next of these reads stays: hints that keep coming must not put it off.
        self._reads = [*self._reads[:1], *(now + later for later in AFTER_HINT)]

    def changed(self, jobs: Collection[int] | None) -> None:
        if jobs is None or len(jobs) > MAX_CHANGED:
            self._next_read = 0.0
        else:
            self.stale |= set(jobs)

    async def refresh(self, queues: Sequence[int] | None, *, fresh: bool = False) -> set[int]:
        """Read those that may have changed; returns their jobs. `fresh`: read all, if that is not expensive."""
        wanted = None if queues is None else sorted(queues)
        if wanted != self._queues:
            self._queues, self._next_read = wanted, 0.0
        now = monotonic()
        follow_up = bool(self._reads) and self._reads[0] <= now
        cheap = fresh and self._read_seconds <= CHEAP_READ
        if now >= self._next_read or cheap or (follow_up and now >= self._earliest_read):
            return await self._read_all()
        return await self._read_stale() if self.stale else set()

    async def _read_all(self) -> set[int]:
        began = monotonic()
        stale, self.stale = self.stale, set()
        try:
            served = self._queues is None or bool(self._queues)
            heads = await self._store.tasks.heads(self._queues, pool=self._pool) if served else []
        except BaseException:
            self.stale |= stale
            self._next_read = 0.0
            raise
        ended = monotonic()
        self._reads = [at for at in self._reads if at > began]
        self._read_seconds = ended - began
        self._earliest_read = ended + READ_SHARE * self._read_seconds
        self._next_read = max(ended + (READ_EVERY if heads else 2 * READ_EVERY), self._earliest_read)
        jobs = {key[0] for key in self.known} | {head.job for head in heads}
        self.known, self._due = {}, {}
        self._keep(heads, ended)
        self._pauses = {key: pause for key, pause in self._pauses.items() if key in self.known}
        self._turns = {key: at for key, at in self._turns.items() if key in self.known}
        return jobs

    async def _read_stale(self) -> set[int]:
        jobs, self.stale = self.stale, set()
        try:
            heads = await self._store.tasks.heads(self._queues, sorted(jobs), pool=self._pool)
        except BaseException:
            self.stale |= jobs
            raise
        for key in [key for key in self.known if key[0] in jobs]:
            del self.known[key], self._due[key]
        self._keep(heads, monotonic())
        return jobs

    def _keep(self, heads: Iterable[TaskHead], now: float) -> None:
        for head in heads:
            key = key_of_head(head)
            self.known[key] = head
            self._due[key] = now + head.wait
        self.laned_jobs = frozenset(head.job for head in self.known.values() if head.laned)
        self.any_keyed = any(head.keyed for head in self.known.values())

    # --- what they say ---

    def ready(self, *, laned: bool = False, paused: bool = False) -> list[TaskHead]:
        """Those that are due: of tasks, or `laned`; `paused`: also those that pause."""
        now = monotonic()
        due, pauses = self._due, {} if paused or laned else self._pauses
        return [
            head
            for key, head in self.known.items()
            if head.laned is laned and due[key] <= now and (not pauses or pauses.get(key, (0.0,))[0] <= now)
        ]

    def wait(self, tried_lanes: Collection[HeadKey]) -> float:
        """Seconds until one is due or one is to be read."""
        if self.stale:
            return 0.0
        first = self._next_read
        if self._reads:
            first = min(first, max(self._reads[0], self._earliest_read))
        for key, at in self._due.items():
            if at < first and key in self._pauses:
                at = max(at, self._pauses[key][0])
            if at < first and key not in tried_lanes:
                first = at
        return first - monotonic()

    def chosen(self, heads: list[TaskHead], *, evenly: bool) -> list[TaskHead]:
        """The heads of a claim: those with the highest priority, and among these the ones that have waited longest for
        a claim. `evenly`: whatever their priority is."""

        def turn(head: TaskHead) -> tuple[int, float]:
            return 0 if evenly else -head.priority, self._turns.get(key_of_head(head), 0.0)

        return sorted(heads, key=turn)[:MAX_HEADS]

    def chosen_fairly(
        self, heads: Iterable[TaskHead], tenant_of: Callable[[int], object], *, evenly: bool
    ) -> list[TaskHead]:
        """The heads of a release: of each tenant those that its claim would take first, and one of each in turn."""
        of_tenants: defaultdict[object, list[TaskHead]] = defaultdict(list)
        for head in heads:
            of_tenants[tenant_of(head.queue)].append(head)
        lines = [self.chosen(some, evenly=evenly) for some in of_tenants.values()]
        random.shuffle(lines)
        longest = max(map(len, lines), default=0)
        return [line[turn] for turn in range(longest) for line in lines if turn < len(line)][:MAX_HEADS]

    # --- the result of a claim or a release ---

    def claimed(
        self,
        heads: Iterable[TaskHead],
        counts: Counter[Place],
        each: int,
        *,
        put_off: Collection[Place] = (),
        full: bool,
    ) -> None:
        """A claim took so many runs of these jobs and queues, and `each` of a head at most. A head that gave fewer has
        nothing else that is ready, and is read again for the time of its next run; one that gave nothing pauses, unless
        the claim was `full` before. Where runs were put off, others may be ready behind them."""
        now = monotonic()
        for head in heads:
            key, count = key_of_head(head), counts[head.job, head.queue]
            if (head.job, head.queue) in put_off:
                self._turns[key] = now
                self._pauses.pop(key, None)
                continue
            if count:
                self._turns[key] = now
                self._pauses.pop(key, None)
            elif full:
                continue
            else:
                self._pause(key, now)
            if count < each:
                self._forget(key)

    def released(
        self, heads: Iterable[TaskHead], counts: Counter[Place], most: int, *, put_off: Collection[Place] = ()
    ) -> None:
        """As `claimed`, for a release of `most` runs of a head at most. Where a head gives nothing, others of its queue
        mostly wait in `live_runs` already: then it is read again when its pause is over."""
        now = monotonic()
        for head in heads:
            key, count = key_of_head(head), counts[head.job, head.queue]
            self._turns[key] = now
            if (head.job, head.queue) in put_off:
                self._pauses.pop(key, None)
                continue
            if count:
                self._pauses.pop(key, None)
            elif self._pauses.get(key, (0.0, 0.0))[0] <= now:
                self._pause(key, now)
            else:
                continue
            if count < most:
                self._forget(key)

    def _pause(self, key: HeadKey, now: float) -> None:
        pause = min(max(2 * self._pauses.get(key, (0.0, 0.0))[1], SHORTEST_PAUSE), LONGEST_PAUSE)
        self._pauses[key] = now + pause, pause

    def _forget(self, key: HeadKey) -> None:
        self.known.pop(key, None)
        self._due.pop(key, None)
        self.stale.add(key[0])


def key_of_head(head: TaskHead) -> HeadKey:
    return head.job, head.queue, head.keyed, head.priority


def in_bands(heads: Sequence[TaskHead], *, evenly: bool) -> Iterator[list[TaskHead]]:
    """The parts of a claim, in their order: each is claimed by one statement. Runs with and without concurrency keys
    have their own statements, and so have the highest priorities, so that tasks of one priority share the capacity.
    Where both kinds have the same priority, either may be first."""
    kinds = [True, False] if random.random() < 0.5 else [False, True]
    left = list(heads)
    for _ in range(0 if evenly else MAX_BANDS - len(kinds)):
        if left:
            first = min(left, key=lambda head: (-head.priority, kinds.index(head.keyed)))
            band = [head for head in left if (head.priority, head.keyed) == (first.priority, first.keyed)]
            left = [head for head in left if (head.priority, head.keyed) != (first.priority, first.keyed)]
            yield band
    left.sort(key=lambda head: -head.priority)
    for keyed in (left[0].keyed, not left[0].keyed) if left and not evenly else kinds:
        some = [head for head in left if head.keyed is keyed]
        if some:
            yield some
