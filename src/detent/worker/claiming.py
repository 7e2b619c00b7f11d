"""How a worker claims runs from the queues it serves.

Where all of them belong to one tenant and none has a limit, one statement takes what is ready, by priority and age.
Where several tenants have work, each gets its share of the capacity, by weight; and queues with limits are claimed from
one limit at a time, under its lock.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from detent.cluster.membership import Membership
from detent.domain.run import Claim
from detent.errors import DetentError
from detent.store import Store
from detent.store.db import OutcomeUnknown
from detent.store.queues import LimitedClaim, QueueRow, ReadyQueue
from detent.targets.calls import Capacity
from detent.telemetry.log import logger
from detent.worker.queues.book import QueueBook
from detent.worker.queues.rounds import Rounds

log = logger("worker")

# A worker that waits for a rate limit retries this often: runs then start at an even rate, and more often costs more.
SHORTEST_WAIT = 0.05
MARKINGS = 2
# One of this many claims ignores priorities, so that no run starves.
EVENLY_EVERY = 8


class Claimed(NamedTuple):
    """`more`: runs may be left that could start now. `wait`: seconds after which to claim again, if there is a reason.
    `unknown`: the reply to some statement was lost, so this node may hold more runs than these."""

    claims: list[Claim]
    more: bool = False
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
        self._book = book
        self._names = frozenset(names)
        self._capabilities = frozenset(capabilities)
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
        self._one_tenant = True
        self._turn = 0
        self._unknown = False

    async def learn(self) -> None:
        """Take over changes of queues and limits. Queues whose runs this node cannot call for now are left to other
        nodes."""
        await self._book.refresh()
        if self._book.version == self._book_version and self._handlers.version == self._handlers_version:
            return
        self._book_version, self._handlers_version = self._book.version, self._handlers.version
        before = self._known
        self._known = self._book.served_by(self._names, self._capabilities)
        self.serving = {number: row for number, row in self._known.items() if not self._handlers.lacks(row.needs)}
        self.unlimited = frozenset(number for number, row in self.serving.items() if not row.limits)
        self.limited = frozenset(self.serving) - self.unlimited
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

    async def claim(self, capacity: int, free: int, waits: Callable[[int], bool]) -> Claimed:
        """Claim up to `capacity` runs. Runs under limits count immediately, so of these no more than can start now:
        `free`, and one of every tenant for which none `waits` yet; otherwise the backlog of others would block that
        tenant."""
        node, incarnation = self._membership.node, self._membership.incarnation
        self._turn = (self._turn + 1) % EVENLY_EVERY
        if self._one_tenant and not self.limited:
            claims = await self._store.live_runs.claim(
                node, incarnation, list(self.serving), capacity, evenly=self._evenly
            )
            return Claimed(claims, more=len(claims) == capacity)
        ready = await self._store.queues.ready(list(self.serving))
        if not ready:
            return Claimed([])
        self._unknown = False
        limited = await self._claim_limited(max(free, 0), ready, waits)
        claimed = await self._claim_unlimited(capacity, ready, limited)
        return claimed._replace(unknown=self._unknown)

    @property
    def _evenly(self) -> bool:
        return self._turn == 0

    def _weights(self, ready: Iterable[ReadyQueue], queues: Collection[int]) -> dict[int, int]:
        """Of the tenants that have runs ready in these queues."""
        rows = (self.serving[each.queue] for each in ready if each.queue in queues)
        return {row.tenant: row.weight for row in rows}

    # --- queues without limits ---

    async def _claim_unlimited(self, capacity: int, ready: Sequence[ReadyQueue], before: Claimed) -> Claimed:
        """Shares of the capacity that is left. What a tenant got under its limits counts: its turn comes later here."""
        claims = before.claims
        weights = self._weights(ready, self.unlimited)
        shares = self._rounds.shares(capacity - len(claims), weights) if weights else {}
        for tenant, count in self._counted(claims).items():
            if tenant in weights:
                self._rounds.give_back(tenant, -count, weights[tenant])
        wanted = [
            (tenant, each)
            for each in ready
            if each.queue in self.unlimited and shares[tenant := self.serving[each.queue].tenant] > 0
        ]
        taken = await self._claim_shares(shares, wanted, held=bool(claims)) if wanted else []
        counted = self._counted(taken)
        for tenant, share in shares.items():
            self._rounds.give_back(tenant, share - counted[tenant], weights[tenant])
        more = any(counted[tenant] == shares[tenant] for tenant, _ in wanted)
        return Claimed(claims + taken, more, before.wait)

    async def _claim_shares(
        self, shares: Mapping[int, int], wanted: Sequence[tuple[int, ReadyQueue]], *, held: bool
    ) -> list[Claim]:
        """`held`: other runs are claimed already, and must not be lost because this fails."""
        shares = {tenant: shares[tenant] for tenant, _ in wanted}
        node, incarnation = self._membership.node, self._membership.incarnation
        try:
            return await self._store.queues.claim_shares(node, incarnation, shares, wanted, evenly=self._evenly)
        except DetentError as error:
            if not held:
                raise
            self._unknown = self._unknown or isinstance(error, OutcomeUnknown)
            log.warning("some runs could not be claimed", error=str(error))
            return []

    # --- queues with limits ---

    async def _claim_limited(self, free: int, ready: Sequence[ReadyQueue], waits: Callable[[int], bool]) -> Claimed:
        """Shares of what can start at once. A tenant that has reached its limit takes nothing: what it leaves is shared
        once more among those that took all they got."""
        weights = self._weights(ready, self.limited)
        if not weights:
            return Claimed([])
        groups = self._groups(ready)
        claims: list[Claim] = []
        waiting: list[float] = []
        for first in (True, False):
            shares = self._limited_rounds.shares(max(free - len(claims), 0), weights)
            given = {tenant: share or int(first and not waits(tenant)) for tenant, share in shares.items()}
            hungry: dict[int, int] = {}
            for tenant, share in given.items():
                got = await self._claim_of_tenant(groups[tenant], share, waiting, held=bool(claims))
                self._limited_rounds.give_back(tenant, share - len(got), weights[tenant])
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
        """Up to `share`. Adds to `waiting` after how many seconds to claim again, where there is a reason to."""
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
        """By tenant."""
        return Counter(self.serving[claim.queue].tenant for claim in claims)
