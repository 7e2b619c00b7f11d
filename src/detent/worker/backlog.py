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
from collections.abc import Callable, Collection, Sequence

from detent.domain.identity import FIRST_TASK_LANE
from detent.domain.run import Claim
from detent.errors import DetentError
from detent.runtime.clock import monotonic
from detent.store import Store
from detent.store.db import OutcomeUnknown, PoolName
from detent.store.tasks import MAX_RELEASED, ConcurrencyKey, TaskHead
from detent.telemetry.log import logger
from detent.worker.heads import HeadKey, TaskHeads, in_bands, key_of_head

log = logger("worker")

SWEEP_EVERY = 10.0
# Where no run has a concurrency key, as far as this process knows.
IDLE_SWEEPS = 3
SWEEP_PAGE = 500
# After a full page of the sweep, this many times as long as it took until the next page.
SWEEP_SHARE = 20
ADMIT_EVERY = 0.25
FIRST_KEY: ConcurrencyKey = (0, "")
FIRST_LANE_KEY = ("", 0)


class TaskBacklog:
    def __init__(self, store: Store, *, pool: PoolName = PoolName.WORK) -> None:
        self._store = store
        self._pool = pool
        self.heads = TaskHeads(store, pool)
        self.freed_keys: Counter[ConcurrencyKey] = Counter()
        """Those of runs that have ended here, and how many."""
        self._freed_jobs: set[int] = set()
        self._tried_lanes: set[HeadKey] = set()
        self._keys_for_lanes: set[ConcurrencyKey] = set()
        self._lanes_wait = False
        self._next_admission = 0.0
        self._next_sweep = 0.0
        self._swept_to = FIRST_KEY
        self._swept_lanes_to = FIRST_LANE_KEY
        self.unknown = False
        """The reply to a claim was lost."""

    # --- what wakes it ---

    def hint(self, job: int | None) -> None:
        """A run of this job was enqueued; None: hints may have been lost."""
        self.heads.hint(job)

    def changed(self, jobs: Collection[int] | None) -> None:
        """These jobs, or some, were changed, perhaps resumed."""
        self.heads.changed(jobs)

    def returned(self, job: int) -> None:
        """A run of this job is in the backlog again, for a retry."""
        self.heads.stale.add(job)

    def ended(self, claim: Claim) -> bool:
        """A run has ended. Returns whether a run in a lane may have waited for its concurrency key, or for its lane."""
        if claim.concurrency_key is not None:
            self.freed_keys[claim.job, claim.concurrency_key] += 1
            self._sweep_soon()
            self._keys_for_lanes.add((claim.job, claim.concurrency_key))
            if claim.lane < FIRST_TASK_LANE or self._lanes_wait:
                self._next_admission = 0.0
        if claim.job in self.laned_jobs:
            self._freed_jobs.add(claim.job)
        return bool(self._freed_jobs) or (bool(self._keys_for_lanes) and not self._next_admission)

    @property
    def laned_jobs(self) -> frozenset[int]:
        """Jobs with a schedule that have on-demand runs waiting for a lane."""
        return self.heads.laned_jobs

    def wait(self, longest: float) -> float:
        """Seconds until the next pass has something to do."""
        if self._freed_jobs:
            return 0.0
        first = min(self._next_sweep, self._next_admission) if self._keys_for_lanes else self._next_sweep
        return max(min(longest, first - monotonic(), self.heads.wait(self._tried_lanes)), 0.0)

    # --- runs that wait for a concurrency key, or for a lane ---

    async def admit(self) -> bool:
        """Give ticks, and other runs in lanes, places of the concurrency keys that runs have freed here. At once if
        such a run may wait for them, else some times a second: the keys of tasks are mostly of tasks alone. Returns
        whether any got one."""
        if not self._keys_for_lanes or monotonic() < self._next_admission:
            return False
        keys, self._keys_for_lanes = self._keys_for_lanes, set()
        try:
            return await self._admit(sorted(keys))
        except BaseException:
            self._keys_for_lanes |= keys
            raise
        finally:
            self._next_admission = monotonic() + ADMIT_EVERY

    async def _admit(self, keys: Sequence[ConcurrencyKey]) -> bool:
        jobs, names = zip(*keys, strict=True)
        return await self._store.live_runs.admit(jobs, names, pool=self._pool)

    async def refresh(self, queues: Sequence[int] | None, *, fresh: bool = False) -> bool:
        """Make runs ready whose concurrency key has a free place, and read the heads that may have changed. None: all
        queues. `fresh`: read all heads, if that is not expensive. Returns whether runs in lanes are ready that were
        not."""
        admitted = await self._sweep()
        read = await self.heads.refresh(queues, fresh=fresh)
        if self.heads.any_keyed:
            self._sweep_soon()
        if self._tried_lanes and read:
            self._tried_lanes = {key for key in self._tried_lanes if key in self.heads.known and key[0] not in read}
        return admitted

    def _sweep_soon(self) -> None:
        self._next_sweep = min(self._next_sweep, monotonic() + SWEEP_EVERY)

    async def _sweep(self) -> bool:
        """Check some of the keys that runs wait for: their last run may have ended elsewhere, or without a word."""
        began = monotonic()
        if began < self._next_sweep:
            return False
        lanes = await self._store.live_runs.unadmitted_keys(self._swept_lanes_to, SWEEP_PAGE, pool=self._pool)
        self._swept_lanes_to = lanes[-1] if len(lanes) == SWEEP_PAGE else FIRST_LANE_KEY
        self._lanes_wait = bool(lanes)
        admitted = bool(lanes) and await self._admit([(job, key) for key, job in lanes])
        page = await self._store.tasks.parked_keys(self._swept_to, SWEEP_PAGE, pool=self._pool)
        full = len(page) == SWEEP_PAGE
        self._swept_to = page[-1] if full else FIRST_KEY
        now = monotonic()
        idle = not page and not lanes and not self.heads.any_keyed
        pause = min(SWEEP_SHARE * (now - began), SWEEP_EVERY) if full else SWEEP_EVERY
        self._next_sweep = now + (IDLE_SWEEPS * SWEEP_EVERY if idle else pause)
        if page:
            self.heads.stale |= await self._store.tasks.unpark(page, pool=self._pool)
        return admitted

    async def unpark(self) -> None:
        """Make runs ready that waited for the concurrency keys of runs that have ended here."""
        keys, self.freed_keys = self.freed_keys, Counter()
        if not keys:
            return
        try:
            self.heads.stale |= await self._store.tasks.unpark(sorted(keys), pool=self._pool)
        except BaseException:
            self.freed_keys.update(keys)
            raise

    async def claim_freed(self, node: int, incarnation: int, queues: Sequence[int], limit: int) -> list[Claim]:
        """Claim runs that waited for the concurrency keys of runs that have ended, without looking for others."""
        keys, self.freed_keys = self.freed_keys, Counter()
        try:
            claims, jobs = await self._store.tasks.claim_parked(node, incarnation, sorted(keys), queues, limit)
        except BaseException:
            self.freed_keys.update(keys)
            raise
        self.heads.stale |= jobs
        return claims

    def untried_lanes(self) -> list[TaskHead]:
        """Heads of jobs with a schedule that are due, and for which a lane may be free."""
        return [head for head in self.heads.ready(laned=True) if key_of_head(head) not in self._tried_lanes]

    async def release_laned(self, queues: Collection[int] | None = None) -> bool:
        """Give runs of jobs with a schedule free lanes of their jobs, those of some queues or of all; returns whether
        any got one."""
        freed, self._freed_jobs = self._freed_jobs, set()
        self._tried_lanes = {key for key in self._tried_lanes if key[0] not in freed}
        heads = [head for head in self.untried_lanes() if queues is None or head.queue in queues]
        if not heads:
            return False
        try:
            released = await self._store.tasks.release_laned(heads, pool=self._pool)
        except BaseException:
            self._freed_jobs |= freed
            raise
        self._tried_lanes |= set(map(key_of_head, heads))
        if released:
            self.heads.stale |= {head.job for head in heads}
        return released

    # --- runs of tasks ---

    async def claim(self, node: int, incarnation: int, limit: int, *, evenly: bool) -> list[Claim]:
        """Claim up to `limit` runs directly, by priority; `evenly`: whatever their priority is. A failure after some
        were claimed is only logged, and `unknown` says whether the reply to a statement was lost."""
        claims: list[Claim] = []
        self.unknown = False
        for heads in in_bands(self.heads.chosen(self.heads.ready(), evenly=evenly), evenly=evenly):
            rest = limit - len(claims)
            if not rest:
                break
            # Tasks of one priority share the capacity. Of several priorities, the highest is taken first.
            each = -(-rest // len(heads)) if evenly or heads[0].priority == heads[-1].priority else rest
            try:
                got = await self._store.tasks.claim(node, incarnation, heads, rest, each=each, evenly=evenly)
            except DetentError as error:
                if not claims:
                    raise
                self.unknown = isinstance(error, OutcomeUnknown)
                log.warning("some runs could not be claimed", error=str(error))
                break
            counts = Counter((claim.job, claim.queue) for claim in got.runs)
            self.heads.claimed(heads, counts, each, put_off=got.put_off, full=len(got.runs) == rest)
            claims += got.runs
        return claims

    async def release(
        self,
        limit: int,
        *,
        queues: Collection[int] | None = None,
        tenant_of: Callable[[int], object] = int,
        evenly: bool = False,
    ) -> int:
        """Make runs of some queues or of all pending: up to `limit` of each queue and priority, and fewer where many
        have some. `tenant_of`: whose queue it is; every tenant gets its turn. Returns how many."""
        ready = [head for head in self.heads.ready(paused=True) if queues is None or head.queue in queues]
        heads = self.heads.chosen_fairly(ready, tenant_of, evenly=evenly)
        most = min(max(limit, 1), max(MAX_RELEASED // max(len(heads), 1), 1))
        released = 0
        for keyed in (False, True):
            some = [head for head in heads if head.keyed is keyed]
            if some:
                got = await self._store.tasks.release(some, most=most, pool=self._pool)
                self.heads.released(some, got.counts, most, put_off=got.put_off)
                released += got.counts.total()
        return released
