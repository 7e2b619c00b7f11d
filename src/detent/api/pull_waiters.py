"""Claims of pull workers that wait for runs.

A waiting claim uses no connection and no statement. Claims for the same runs of the same queue wait in one line; when
runs may be ready, the first of the line gets them, then the next, until no run is left. A notification triggers this,
and a poll every `POLL_EVERY` seconds guarantees it. On-demand runs wait in the backlog: each claim first makes those
pending that it could take (pull_backlog.py).

A client that disconnects leaves the line. Runs that were claimed for it return to their queue, uncounted.

Each waiting claim keeps a connection of the server busy, and each line a statement every few seconds. So a tenant has a
limited number of them, and cannot keep others from the server by waiting.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import NamedTuple

from detent.api.problems import Refusal
from detent.api.pull_backlog import PullBacklog
from detent.domain.identity import RunKey
from detent.errors import DetentError
from detent.runtime.clock import monotonic
from detent.runtime.service import Loop
from detent.store import Store
from detent.store.listen import hearing
from detent.store.pull import Pulled, Wanted
from detent.store.upkeep import RUNS_CHANNEL
from detent.telemetry.log import logger

log = logger("pull")

POLL_EVERY = 2.0
WORKERS_KEPT = 10_000
WORKER_KNOWN_SECONDS = 3600.0
LATEST_WAKE = 60.0
# The share of claims that ignore priorities, so that no priority starves.
EVENLY = 1 / 8


class ClaimTerms(NamedTuple):
    """Which worker claims, what and how much. `runs`: only these."""

    tenant: int
    worker: str
    wanted: Wanted
    limit: int
    lease: timedelta
    runs: tuple[RunKey, ...] = ()


class WaitingClaim:
    """A claim in a line. `served` gets its runs, or none when the client has left."""

    def __init__(self, asking: ClaimTerms) -> None:
        self.asking = asking
        self.served: asyncio.Future[list[Pulled]] = asyncio.get_running_loop().create_future()

    def serve(self, runs: list[Pulled]) -> bool:
        """False: the client has left."""
        if self.served.done():
            return False
        self.served.set_result(runs)
        return True


class ClaimQueue:
    """Waiting claims for the same runs; it ends when it is empty."""

    def __init__(self) -> None:
        self.waiters: deque[WaitingClaim] = deque()
        self.awake = asyncio.Event()
        self.task: asyncio.Task[None] | None = None


class PullWaiters:
    def __init__(self, store: Store, max_waiting: int) -> None:
        """`max_waiting`: the claims of one tenant that wait here."""
        self._store = store
        self._max_waiting = max_waiting
        self._backlog = PullBacklog(store)
        self._waiting: Counter[int] = Counter()
        self._lines: dict[tuple[int, Wanted], ClaimQueue] = {}
        self._workers: OrderedDict[tuple[int, str], tuple[int, float]] = OrderedDict()
        self._hearing = hearing(store.database, {RUNS_CHANNEL: self._on_runs})
        self._listening: Loop | None = None
        self._hints = 0
        self._closed = False

    async def claim(self, asking: ClaimTerms, wait: float, disconnected: Callable[[], Awaitable[None]]) -> list[Pulled]:
        """Runs for a worker: those that are ready, or the first that become ready within `wait` seconds. For runs that
        it names, it does not wait."""
        if asking.runs:
            return await self._claim_named(asking)
        self._listen()
        hints = self._hints
        runs = await self._claim(asking)
        if not runs and await self._backlog.release(asking.tenant, asking.wanted, asking.limit, fresh=True):
            runs = await self._claim(asking)
        if runs or wait <= 0 or self._closed:
            return runs
        with self._counted(asking.tenant):
            return await self._wait(asking, wait, disconnected, hurry=self._hints != hints)

    @contextmanager
    def _counted(self, tenant: int) -> Iterator[None]:
        if self._waiting[tenant] >= self._max_waiting:
            raise _too_many(self._max_waiting)
        self._waiting[tenant] += 1
        try:
            yield
        finally:
            self._waiting[tenant] -= 1
            if not self._waiting[tenant]:
                del self._waiting[tenant]

    async def _wait(
        self, asking: ClaimTerms, wait: float, disconnected: Callable[[], Awaitable[None]], *, hurry: bool
    ) -> list[Pulled]:
        waiter = WaitingClaim(asking)
        self._join(waiter, hurry=hurry)
        leaving = asyncio.ensure_future(disconnected())
        try:
            await asyncio.wait((waiter.served, leaving), timeout=wait, return_when=asyncio.FIRST_COMPLETED)
            return await self._depart(waiter, gone=leaving.done())
        except asyncio.CancelledError:
            await self._depart(waiter, gone=True)
            raise
        finally:
            leaving.cancel()
            waiter.serve([])

    async def _depart(self, waiter: WaitingClaim, *, gone: bool) -> list[Pulled]:
        waiter.serve([])
        runs = waiter.served.result()
        if gone:
            await self.put_back(runs)
            return []
        return runs

    def _join(self, waiter: WaitingClaim, *, hurry: bool) -> None:
        key = (waiter.asking.tenant, waiter.asking.wanted)
        line = self._lines.setdefault(key, ClaimQueue())
        line.waiters.append(waiter)
        if hurry:
            line.awake.set()
        if line.task is None:
            line.task = asyncio.create_task(self._attend(key, line), name="pull waiters")

    # --- one line ---

    async def _attend(self, key: tuple[int, Wanted], line: ClaimQueue) -> None:
        quiet = False
        poll_at = 0.0
        while line.waiters:
            if not poll_at:
                poll_at = monotonic() + min(POLL_EVERY, self._store.pull.wait(key[0], key[1].queue) or POLL_EVERY)
            rest = max(poll_at - monotonic(), 0.0)
            try:
                async with asyncio.timeout(rest if quiet else self._backlog.wait(rest)):
                    await line.awake.wait()
            except TimeoutError:
                pass
            try:
                quiet = False
                if not line.awake.is_set() and monotonic() < poll_at and not await self._backlog.finds(*key):
                    continue
                poll_at = 0.0
                line.awake.clear()
                await self._serve(line.waiters)
            except Exception as error:
                # After any error the line must go on, for the claims that wait now or later.
                quiet = True
                expected = isinstance(error, DetentError)
                log.warning("waiting claims cannot be served now", error=str(error), exc_info=not expected)
        del self._lines[key]

    async def _serve(self, waiters: deque[WaitingClaim]) -> None:
        """Serve the claims in order, while there are runs."""
        while waiters:
            if waiters[0].served.done():
                waiters.popleft()
                continue
            runs = await self._claim(waiters[0].asking)
            if not runs:
                return
            if not waiters.popleft().serve(runs):
                await self.put_back(runs)

    async def _claim(self, asking: ClaimTerms) -> list[Pulled]:
        number = await self._number(asking.tenant, asking.worker)
        await self._backlog.release(asking.tenant, asking.wanted, asking.limit)
        evenly = random.random() < EVENLY
        return await self._store.pull.claim(
            asking.tenant, number, asking.wanted, asking.limit, asking.lease, evenly=evenly
        )

    async def _claim_named(self, asking: ClaimTerms) -> list[Pulled]:
        number = await self._number(asking.tenant, asking.worker)
        return await self._store.pull.claim(
            asking.tenant, number, asking.wanted, len(asking.runs), asking.lease, runs=asking.runs
        )

    async def put_back(self, runs: list[Pulled]) -> None:
        """Return runs that were claimed and cannot be delivered to their queue, uncounted."""
        if not runs:
            return
        try:
            await self._store.pull.give_back([run.claim for run in runs])
        except DetentError as error:
            log.warning("runs wait for the end of their lease", runs=len(runs), error=str(error))

    async def _number(self, tenant: int, name: str) -> int:
        known = self._workers.get((tenant, name))
        if known is not None and monotonic() < known[1]:
            self._workers.move_to_end((tenant, name))
            return known[0]
        number = await self._store.pull.worker(tenant, name)
        self._workers[tenant, name] = number, monotonic() + WORKER_KNOWN_SECONDS
        if len(self._workers) > WORKERS_KEPT:
            self._workers.popitem(last=False)
        return number

    # --- hints ---

    def wake(self) -> None:
        self._hints += 1
        for line in self._lines.values():
            line.awake.set()

    def wake_in(self, wait: timedelta) -> None:
        """Wake when a planned run becomes ready; polling finds those further away."""
        if wait.total_seconds() <= LATEST_WAKE:
            asyncio.get_running_loop().call_later(wait.total_seconds(), self.wake)

    def _listen(self) -> None:
        if self._listening is None:
            self._listening = Loop("pull hints", self._ensure_listening)
            self._listening.start()

    async def _ensure_listening(self) -> float:
        if await self._hearing.ensure():
            self._backlog.hint(None)
            self.wake()
        return self._hearing.every

    def _on_runs(self, payload: str) -> None:
        kind, _, job = payload.partition(":")
        if kind == "task" and job.isdecimal():
            self._backlog.hint(int(job))
        if payload != "cancel":
            self.wake()

    async def close(self) -> None:
        """Release every waiting claim, empty."""
        self._closed = True
        lines = list(self._lines.values())
        for line in lines:
            for waiter in line.waiters:
                waiter.serve([])
            line.awake.set()
        await asyncio.gather(*(line.task for line in lines if line.task is not None))
        if self._listening is not None:
            await self._listening.stop()
        await self._hearing.close()


def _too_many(most: int) -> Refusal:
    detail = (
        f"Your tenant has {most} claims waiting on this server, a quarter of its connections (max_connections): claim "
        "again later, from fewer workers, or with wait_seconds 0."
    )
    return Refusal(429, "too-many-requests", detail, {"Retry-After": "2"})
