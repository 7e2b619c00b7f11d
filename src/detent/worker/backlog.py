"""Where on-demand runs wait, as a worker knows it, and how it takes them from there.

A worker remembers the *heads*: the jobs, queues and priorities that have runs waiting, each with the time of the first.
Hints name the job of a new run; then only its heads are read. Of enqueues that commit together one sends the hint, so
the worker reads again shortly after each hint. All heads are read every few seconds: that is the guarantee, a hint only
saves the wait. With thousands of tasks that takes longer, and the worker does it more rarely.

Where one tenant is served without limits, a claim takes runs from the backlog directly. Otherwise, and where ticks wait
too, runs are *released* first: they become pending runs in `live_runs`, and compete there by priority, share and limit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime

from detent.domain.run import Claim
from detent.runtime.clock import monotonic
from detent.store import Store
from detent.store.db import PoolName
from detent.store.tasks import ConcurrencyKey, TaskHead
from detent.telemetry.log import logger

log = logger("worker")

READ_EVERY = 5.0
# After reading all heads, this many times as long without reading all of them again.
READ_SHARE = 20
AFTER_HINT = (0.004, 0.03, 0.2)
# Heads of one claim.
MAX_HEADS = 200
SWEEP_EVERY = 10.0
SWEEP_PAGE = 500
FIRST_KEY: ConcurrencyKey = (0, "")
# A head that is due and gave nothing is locked by another claim, or not due yet by the database's clock.
SHORTEST_PAUSE = 0.002
LONGEST_PAUSE = 1.0

HeadKey = tuple[int, int, bool, int]


class TaskBacklog:
    def __init__(self, store: Store, *, pool: PoolName = PoolName.WORK) -> None:
        self._store = store
        self._pool = pool
        self._heads: dict[HeadKey, TaskHead] = {}
        self._pauses: dict[HeadKey, tuple[float, float]] = {}
        self._claimed: dict[HeadKey, float] = {}
        self._hinted: set[int] = set()
        self._reads: list[float] = []
        self._next_read = 0.0
        self._earliest_read = 0.0
        self._freed: set[ConcurrencyKey] = set()
        self._freed_jobs: set[int] = set()
        self._untried_lanes = False
        self._next_sweep = 0.0
        self._swept_to = FIRST_KEY
        self._queues: list[int] = []
        self.laned_jobs: frozenset[int] = frozenset()
        """Jobs with a schedule that have on-demand runs waiting for a lane."""

    # --- what wakes it ---

    def hint(self, job: int | None) -> None:
        """A run of this job was enqueued; None: hints may have been lost."""
        if job is None:
            self._next_read = 0.0
            return
        self._hinted.add(job)
        now = monotonic()
        # The next of these reads stays: hints that keep coming must not put it off.
        self._reads = [*self._reads[:1], *(now + later for later in AFTER_HINT)]

    def returned(self, job: int) -> None:
        """A run of this job is in the backlog again, for a retry."""
        self._hinted.add(job)

    def ended(self, claim: Claim) -> bool:
        """A run has ended. Returns whether another one may have waited for its concurrency key, or for its lane."""
        if claim.concurrency_key is not None:
            self._freed.add((claim.job, claim.concurrency_key))
        if claim.job in self.laned_jobs:
            self._freed_jobs.add(claim.job)
        return claim.concurrency_key is not None or claim.job in self.laned_jobs

    # --- what it knows ---

    async def refresh(self, queues: Sequence[int]) -> None:
        """Read the heads that may have changed, and make runs ready whose concurrency key has a free place."""
        if list(queues) != self._queues:
            self._queues, self._next_read = list(queues), 0.0
        await self._unpark()
        now = monotonic()
        follow_up = bool(self._reads) and self._reads[0] <= now
        if now >= self._next_read or (follow_up and now >= self._earliest_read):
            await self._read_all()
        elif self._hinted:
            await self._read_hinted()

    async def _read_all(self) -> None:
        began = monotonic()
        self._hinted.clear()
        heads = await self._store.tasks.heads(self._queues, pool=self._pool) if self._queues else []
        ended = monotonic()
        self._reads = [at for at in self._reads if at > began]
        self._earliest_read = ended + READ_SHARE * (ended - began)
        self._next_read = max(ended + READ_EVERY, self._earliest_read)
        self._heads = {_key(head): head for head in heads}
        self._pauses = {key: pause for key, pause in self._pauses.items() if key in self._heads}
        self._claimed = {key: at for key, at in self._claimed.items() if key in self._heads}
        self._changed(heads)

    async def _read_hinted(self) -> None:
        jobs, self._hinted = self._hinted, set()
        try:
            heads = await self._store.tasks.heads(self._queues, sorted(jobs), pool=self._pool)
        except BaseException:
            self._hinted |= jobs
            raise
        for key in [key for key in self._heads if key[0] in jobs]:
            del self._heads[key]
        self._heads |= {_key(head): head for head in heads}
        self._changed(heads)

    def _changed(self, heads: Sequence[TaskHead]) -> None:
        self._untried_lanes = self._untried_lanes or any(head.laned for head in heads)
        self.laned_jobs = frozenset(head.job for head in self._heads.values() if head.laned)

    async def _unpark(self) -> None:
        keys, self._freed = self._freed, set()
        now = monotonic()
        if now >= self._next_sweep:
            self._next_sweep = now + SWEEP_EVERY
            page = await self._store.tasks.parked_keys(self._swept_to, SWEEP_PAGE)
            self._swept_to = page[-1] if len(page) == SWEEP_PAGE else FIRST_KEY
            keys |= set(page)
        if keys:
            self._hinted |= await self._store.tasks.unpark(sorted(keys), pool=self._pool)

    def wait(self, now: datetime, longest: float) -> float:
        """Seconds until the next pass has something to do."""
        moment = monotonic()
        times = [self._next_read, self._next_sweep]
        if self._reads:
            times.append(max(self._reads[0], self._earliest_read))
        for key, head in self._heads.items():
            if not head.laned:
                due = moment + (head.not_before - now).total_seconds()
                times.append(max(due, self._pauses.get(key, (0.0, 0.0))[0]))
        if self._hinted or self._freed or self._untried_lanes:
            return 0.0
        return max(min([longest, *(at - moment for at in times)]), 0.0)

    # --- how runs are taken ---

    async def claim(self, node: int, incarnation: int, limit: int, now: datetime, *, evenly: bool) -> list[Claim]:
        """Claim up to `limit` runs directly."""
        claims: list[Claim] = []
        for heads in self._ready(now):
            rest = limit - len(claims)
            if rest:
                # Tasks of one priority share the capacity. Of several priorities, the highest is taken first.
                alike = heads[0].priority == heads[-1].priority or evenly
                each = -(-rest // len(heads)) if alike else rest
                got = await self._store.tasks.claim(node, incarnation, heads, rest, each=each, evenly=evenly)
                self._took(heads, Counter((claim.job, claim.queue) for claim in got), each)
                claims += got
        return claims

    async def release(self, limit: int, now: datetime, queues: Iterable[int] | None = None) -> int:
        """Make up to `limit` runs of each kind pending, those of some queues or of all; returns how many."""
        wanted = None if queues is None else set(queues)
        released = 0
        for heads in self._ready(now, wanted):
            count = await self._store.tasks.release(heads, limit, most=limit, pool=self._pool)
            if count < limit:
                self._took(heads, Counter((head.job, head.queue) for head in heads if count), limit)
            released += count
        return released

    async def release_laned(self, now: datetime) -> bool:
        """Give runs of jobs with a schedule free lanes of their jobs; returns whether any got one."""
        freed, self._freed_jobs = self._freed_jobs, set()
        untried, self._untried_lanes = self._untried_lanes, False
        heads = [
            head
            for head in self._heads.values()
            if head.laned and head.not_before <= now and (untried or head.job in freed)
        ]
        if not heads:
            return False
        released = await self._store.tasks.release_laned(heads, pool=self._pool)
        if released:
            self._hinted |= {head.job for head in heads}
        return released

    def _ready(self, now: datetime, queues: set[int] | None = None) -> Iterable[list[TaskHead]]:
        """The heads to claim from now, in groups: each is claimed by one statement."""
        moment = monotonic()
        ready = [
            head
            for key, head in self._heads.items()
            if not head.laned
            and head.not_before <= now
            and (queues is None or head.queue in queues)
            and self._pauses.get(key, (0.0, 0.0))[0] <= moment
        ]
        for some in _groups(sorted(ready, key=self._turn)):
            yield some
            self._claimed |= dict.fromkeys(map(_key, some), moment)

    def _turn(self, head: TaskHead) -> tuple[int, float]:
        """Heads with the highest priority first, and of these the one that has waited longest for a claim."""
        return -head.priority, self._claimed.get(_key(head), 0.0)

    def _took(self, heads: Sequence[TaskHead], gave: Counter[tuple[int, int]], each: int) -> None:
        """After a claim of `each` run of these heads. Those that gave fewer have nothing else that is ready; they are
        read again, for the time of their next run."""
        moment = monotonic()
        for head in heads:
            key = _key(head)
            if gave[head.job, head.queue] >= each:
                continue
            self._heads.pop(key, None)
            if (head.job, head.queue) in gave:
                self._pauses.pop(key, None)
            else:
                pause = min(max(2 * self._pauses.get(key, (0.0, 0.0))[1], SHORTEST_PAUSE), LONGEST_PAUSE)
                self._pauses[key] = moment + pause, pause
            self._hinted.add(head.job)


def _key(head: TaskHead) -> HeadKey:
    return head.job, head.queue, head.keyed, head.priority


def _groups(heads: Sequence[TaskHead]) -> list[list[TaskHead]]:
    """Of heads with and without concurrency keys, those of the highest priority, and the others."""
    groups: list[list[TaskHead]] = []
    for keyed in (False, True):
        some = [head for head in heads if head.keyed is keyed]
        first = [head for head in some if head.priority == some[0].priority]
        groups += [first[:MAX_HEADS], some[len(first) :][:MAX_HEADS]]
    return sorted((group for group in groups if group), key=lambda group: -group[0].priority)
