"""How a worker claims runs from the queues it serves.

Where all of them belong to one tenant and none has a limit, one statement takes what is ready, by priority and age.
Where several tenants have work, each gets its share of the capacity, by weight; and queues with limits are claimed from
one limit at a time, under its lock.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from detent.cluster.membership import Membership
from detent.domain.identity import FIRST_TASK_LANE
from detent.domain.job import TASK_NEEDS
from detent.domain.run import Claim
from detent.errors import DetentError
from detent.store import Store
from detent.store.db import OutcomeUnknown
from detent.store.queues import LimitedClaim, QueueRow, ReadyQueue
from detent.targets.calls import Capacity
from detent.telemetry.log import logger
from detent.worker.backlog import TaskBacklog
from detent.worker.queues.book import QueueBook
from detent.worker.queues.rounds import Rounds

log = logger("worker")

# A worker that waits for a rate limit retries this often: runs then start at an even rate, and more often costs more.
SHORTEST_WAIT = 0.05
MARKINGS = 2
# One of this many claims ignores priorities, so that no run starves.
EVENLY_EVERY = 8


# How many more runs of a tenant could start here now.
OpenTo = Callable[[int], int]


class Claimed(NamedTuple):
    """`behind`: tenants that may have runs left which could start now. `wait`: seconds after which to claim again, if
    there is a reason. `unknown`: the reply to some statement was lost, so this node may hold more runs than these."""

    claims: list[Claim]
    behind: frozenset[int] = frozenset()
    wait: float | None = None
    unknown: bool = False


class Claiming:
    def __init__(
        self,
        store: Store,
        membership: Membership,
        book: QueueBook,
        names: Sequence[str],
        capabilities: Sequence[str],
        handlers: Capacity,
    ) -> None:
        self._store = store
        self._membership = membership
        self.backlog = TaskBacklog(store)
        self._book = book
        self._names = frozenset(names)
        self._capabilities = frozenset(capabilities) | {f"{TASK_NEEDS}{each}" for each in capabilities}
        self._handlers = handlers
        self._handlers_version = -1
        self._known: dict[int, QueueRow] = {}
        self._rounds = Rounds()
        self._limited_rounds = Rounds()
        self._book_version = 0
        self._to_mark: dict[int, int] = {}
        self.serving: dict[int, QueueRow] = {}
        self.unlimited: frozenset[int] = frozenset()
        self.limited: frozenset[int] = frozenset()
        self.tenants: dict[int, int] = {}  # tenants that have jobs for this worker, and their weights
        self._one_tenant = True
        self._turn = 0
        self._unknown = False
        self._contended = False

    async def learn(self) -> None:
        """Take over changes of queues and limits. Queues whose runs this node cannot call for now are left to other
        nodes."""
        await self._book.refresh()
        if self._book.version == self._book_version and self._handlers.version == self._handlers_version:
            return
        self._book_version, self._handlers_version = self._book.version, self._handlers.version
        before = self._known
        self._known = self._book.served_by(self._names, self._capabilities)
        self.serving = {
            number: row
            for number, row in self._known.items()
            if not self._handlers.lacks(row.needs.removeprefix(TASK_NEEDS), row.tenant)
        }
        self.unlimited = frozenset(number for number, row in self.serving.items() if not row.limits)
        self.limited = frozenset(self.serving) - self.unlimited
        self.tenants = {row.tenant: row.weight for row in self._known.values() if row.has_jobs}
        self._handlers.share_among(self.tenants)
        self._one_tenant = len({row.tenant for row in self.serving.values()}) <= 1
        await self._mark(before)

    async def _mark(self, before: Mapping[int, QueueRow]) -> None:
        """Count the runs held in queues that now have a limit. Marked twice, because a fire that handed off a run may
        have been in progress when the limit was read."""
        for number, row in self._known.items():
            if row.limits and number in before and not before[number].limits:
                self._to_mark[number] = MARKINGS
        if self._to_mark:
            await self._store.queues.mark_limited(self._membership.node, list(self._to_mark))
            self._to_mark = {number: left - 1 for number, left in self._to_mark.items() if left > 1}

    @property
    def direct(self) -> bool:
        """Whether runs are claimed from the backlog, because one tenant is served, without limits."""
        return self._one_tenant and not self.limited

    @property
    def by_key(self) -> frozenset[int]:
        """The queues whose offered runs are claimed by key: as for ticks that are handed off, those without limits. Not
        where several tenants are served, since offers come in any order and each tenant is to get its share."""
        return self.unlimited if self._one_tenant else frozenset()

    async def claim(
        self,
        capacity: int,
        free: int,
        waits: Callable[[int], bool],
        open_to: OpenTo | None = None,
        *,
        queues: bool = True,
    ) -> Claimed:
        """Claim up to `capacity` runs. Runs under limits count immediately, so of these no more than can start now:
        `free`, and one of every tenant for which none `waits` yet; otherwise the backlog of others would block that
        tenant. Where tenants share the slots, as many more of each as slots are `open_to` it, whatever the others
        hold. Without `queues`, only from the backlog, if that can be claimed from directly."""
        node, incarnation = self._membership.node, self._membership.incarnation
        self._turn = (self._turn + 1) % EVENLY_EVERY
        self._unknown = False
        if self.direct and capacity:
            claims = await self._claim_all(node, incarnation, capacity, queues=queues)
            full = len(claims) == capacity
            behind = frozenset(row.tenant for row in self.serving.values()) if full else frozenset()
            return Claimed(claims, behind, unknown=self._unknown)
        await self._release(max(capacity, free, 1))
        ready = await self._store.queues.ready(list(self.serving))
        if not ready:
            return Claimed([])
        limited = await self._claim_limited(max(free, 0), ready, waits, open_to)
        claimed = await self._claim_unlimited(capacity, ready, limited, open_to or _none_more)
        return claimed._replace(unknown=self._unknown)

    async def _claim_all(self, node: int, incarnation: int, capacity: int, *, queues: bool) -> list[Claim]:
        """Of one tenant without limits. Runs that wait in live_runs come first, then those of the backlog. If ticks
        took all the capacity, on-demand runs are released among them, so that all are claimed by priority and age."""
        if self._contended:
            await self._release(capacity)
        claims: list[Claim] = []
        if queues or self._contended:
            serving = list(self.serving)
            claims = await self._store.live_runs.claim(node, incarnation, serving, capacity, evenly=self._evenly)
        rest = capacity - len(claims)
        # Until a claim leaves capacity: where it brought on-demand runs only, ticks still wait behind them.
        self._contended = not rest and (self._contended or any(claim.lane < FIRST_TASK_LANE for claim in claims))
        if rest:
            claims += await self._or_fewer(
                self.backlog.claim(node, incarnation, rest, evenly=self._evenly), bool(claims)
            )
            self._unknown = self._unknown or self.backlog.unknown
        return claims

    async def claim_freed(self, capacity: int) -> list[Claim]:
        """Claim runs that waited for concurrency keys of runs that have just ended here; only if `direct`."""
        membership = self._membership
        return await self.backlog.claim_freed(membership.node, membership.incarnation, list(self.serving), capacity)

    async def _release(self, limit: int) -> None:
        """After a failure, runs that are pending already are claimed all the same."""
        try:
            await self.backlog.release(limit, tenant_of=self._book.tenant_of, evenly=self._evenly)
        except DetentError as error:
            log.warning("on-demand runs are not released yet", error=str(error))

    async def _or_fewer(self, claiming: Awaitable[list[Claim]], held: bool) -> list[Claim]:
        """`held`: other runs are claimed already, and must not be lost because this fails."""
        try:
            return await claiming
        except DetentError as error:
            if not held:
                raise
            self._unknown = self._unknown or isinstance(error, OutcomeUnknown)
            log.warning("some runs could not be claimed", error=str(error))
            return []

    @property
    def _evenly(self) -> bool:
        return self._turn == 0

    def _weights(self, ready: Iterable[ReadyQueue], queues: Collection[int]) -> dict[int, int]:
        """The weights of the tenants that have runs ready in these queues."""
        rows = (self.serving[each.queue] for each in ready if each.queue in queues)
        return {row.tenant: row.weight for row in rows}

    # --- queues without limits ---

    async def _claim_unlimited(
        self, capacity: int, ready: Sequence[ReadyQueue], before: Claimed, open_to: OpenTo
    ) -> Claimed:
        """Shares of the capacity that is left, and at least a tenant's part of the slots that are open to it. What a
        tenant got under its limits counts: its turn comes later here."""
        claims = before.claims
        weights = self._weights(ready, self.unlimited)
        shares = self._rounds.shares(max(capacity - len(claims), 0), weights) if weights else {}
        counted = self._counted(claims)
        open_slots = {tenant: max(open_to(tenant) - counted[tenant], 0) for tenant in shares}
        # By weight, also here: where all slots are free, each is open to every tenant.
        among = sum(weights[tenant] for tenant, count in open_slots.items() if count)
        given = {
            tenant: max(share, -(-open_slots[tenant] * weights[tenant] // max(among, 1)))
            for tenant, share in shares.items()
        }
        for tenant, count in counted.items():
            if tenant in weights:
                self._rounds.give_back(tenant, -count, weights[tenant])
        wanted = [
            (tenant, each)
            for each in ready
            if each.queue in self.unlimited and given[tenant := self.serving[each.queue].tenant] > 0
        ]
        taken = await self._claim_shares(given, wanted, held=bool(claims)) if wanted else []
        counted = self._counted(taken)
        for tenant, share in shares.items():
            self._rounds.give_back(tenant, share - counted[tenant], weights[tenant])
        behind = frozenset(tenant for tenant, most in given.items() if counted[tenant] == most)
        return Claimed(claims + taken, behind, before.wait)

    async def _claim_shares(
        self, shares: Mapping[int, int], wanted: Sequence[tuple[int, ReadyQueue]], *, held: bool
    ) -> list[Claim]:
        """`held`: other runs are claimed already, and must not be lost because this fails."""
        shares = {tenant: shares[tenant] for tenant, _ in wanted}
        node, incarnation = self._membership.node, self._membership.incarnation
        claiming = self._store.queues.claim_shares(node, incarnation, shares, wanted, evenly=self._evenly)
        return await self._or_fewer(claiming, held)

    # --- queues with limits ---

    async def _claim_limited(
        self, free: int, ready: Sequence[ReadyQueue], waits: Callable[[int], bool], open_to: OpenTo | None
    ) -> Claimed:
        """Shares of what can start at once. A tenant that has reached its limit takes nothing: what it leaves is shared
        once more among those that took all they got."""
        weights = self._weights(ready, self.limited)
        if not weights:
            return Claimed([])
        groups = self._groups(ready)
        most = {tenant: free if open_to is None else open_to(tenant) for tenant in weights}
        free = max(free, *most.values())
        claims: list[Claim] = []
        waiting: list[float] = []
        for first in (True, False):
            shares = self._limited_rounds.shares(max(free - len(claims), 0), weights)
            given = {
                tenant: min(share, most[tenant]) or int(first and not waits(tenant)) for tenant, share in shares.items()
            }
            hungry: dict[int, int] = {}
            for tenant, share in given.items():
                got = await self._claim_of_tenant(groups[tenant], share, waiting, held=bool(claims))
                self._limited_rounds.give_back(tenant, shares[tenant] - len(got), weights[tenant])
                most[tenant] -= len(got)
                claims += got
                if len(got) == share > 0:
                    hungry[tenant] = weights[tenant]
            weights = hungry
            if not weights or len(claims) >= free:
                break
        return Claimed(claims, wait=min(waiting, default=None))

    def _groups(self, ready: Iterable[ReadyQueue]) -> dict[int, list[list[int]]]:
        """For each tenant its ready queues with limits, grouped by those limits. In random order: they may share the
        limit of their tenant, and none must always be first."""
        groups: dict[int, dict[tuple[int, ...], list[int]]] = {}
        for queue in {each.queue for each in ready} & self.limited:
            row = self.serving[queue]
            groups.setdefault(row.tenant, {}).setdefault(row.limits, []).append(queue)
        return {tenant: random.sample(list(found.values()), len(found)) for tenant, found in groups.items()}

    async def _claim_of_tenant(
        self, groups: Sequence[Sequence[int]], share: int, waiting: list[float], *, held: bool
    ) -> list[Claim]:
        """Claim up to `share` runs. If there may be more, adds to `waiting` the seconds after which to claim again."""
        claims: list[Claim] = []
        for queues in groups:
            if share <= len(claims):
                waiting.append(SHORTEST_WAIT)
                break
            limits = self.serving[queues[0]].limits
            got = await self._claim_under(limits, queues, share - len(claims), held=held or bool(claims))
            claims += got.claims
            if got.busy or got.wait is not None:
                waiting.append(max(got.wait or 0.0, SHORTEST_WAIT))
        return claims

    async def _claim_under(
        self, limits: Sequence[int], queues: Sequence[int], capacity: int, *, held: bool
    ) -> LimitedClaim:
        node, incarnation = self._membership.node, self._membership.incarnation
        try:
            return await self._store.queues.claim_limited(
                node, incarnation, limits, queues, capacity, evenly=self._evenly
            )
        except DetentError as error:
            if not held:
                raise
            self._unknown = self._unknown or isinstance(error, OutcomeUnknown)
            log.warning("some runs could not be claimed", error=str(error))
            return LimitedClaim([], busy=True)

    def _counted(self, claims: Iterable[Claim]) -> Counter[int]:
        """The number of claims of each tenant."""
        return Counter(self.serving[claim.queue].tenant for claim in claims)


def _none_more(_tenant: int) -> int:
    return 0
