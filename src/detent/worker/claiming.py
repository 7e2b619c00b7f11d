"""How a worker comes by runs from the queues it serves.

Where all of them belong to one tenant and none has a limit, one statement takes what is ready, by priority and age.
Where several tenants have work, each gets its share of the room, by weight; and queues with limits are asked one limit
at a time, under its lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from detent.coordination.membership import Membership
from detent.errors import DetentError
from detent.log import logger
from detent.model import Claim
from detent.queue.book import QueueBook
from detent.queue.rounds import Rounds
from detent.store import Store
from detent.store.queues import LimitedClaim, QueueRow, Ready

log = logger("worker")

# Runs start at an even rate if those who wait for it look this often; looking more often costs more than it brings.
SHORTEST_WAIT = 0.05
MARKINGS = 2
# One claim in so many takes runs whatever their priority, so that none starves.
EVENLY_EVERY = 8


class Claimed(NamedTuple):
    """`more`: runs may be left that could start now. `wait`: look again after so many seconds, if there is a reason."""

    claims: list[Claim]
    more: bool = False
    wait: float | None = None


class Claiming:
    def __init__(
        self, store: Store, membership: Membership, book: QueueBook, names: Sequence[str], has: Sequence[str]
    ) -> None:
        self._store = store
        self._membership = membership
        self._book = book
        self._names = frozenset(names)
        self._has = frozenset(has)
        self._rounds = Rounds()
        self._looks = 0
        self._to_mark: dict[int, int] = {}
        self.serving: dict[int, QueueRow] = {}
        self.unlimited: frozenset[int] = frozenset()
        self.limited: frozenset[int] = frozenset()
        self._one_tenant = True
        self._turn = 0

    async def learn(self) -> None:
        """Queues and limits appear and go; what changed is known after this."""
        await self._book.look()
        if self._book.looks == self._looks:
            return
        self._looks = self._book.looks
        before = self.serving
        self.serving = self._book.served_by(self._names, self._has)
        self.unlimited = frozenset(number for number, row in self.serving.items() if not row.limits)
        self.limited = frozenset(self.serving) - self.unlimited
        self._one_tenant = len({row.tenant for row in self.serving.values()}) <= 1
        await self._mark(before)

    async def _mark(self, before: Mapping[int, QueueRow]) -> None:
        """Runs we hold in queues that have a limit since count under it. Twice, because a fire that gave us a run may
        have been under way when we learnt of the limit."""
        for number, row in self.serving.items():
            if row.limits and number in before and not before[number].limits:
                self._to_mark[number] = MARKINGS
        if self._to_mark:
            await self._store.queues.mark_limited(self._membership.node, list(self._to_mark))
            self._to_mark = {number: left - 1 for number, left in self._to_mark.items() if left > 1}

    async def claim(self, room: int, free: int) -> Claimed:
        """Up to `room` runs, of which those under limits could start at once: at most `free`."""
        node, incarnation = self._membership.node, self._membership.incarnation
        self._turn = (self._turn + 1) % EVENLY_EVERY
        if self._one_tenant and not self.limited:
            claims = await self._store.live.claim(node, incarnation, list(self.serving), room, evenly=self._evenly)
            return Claimed(claims, more=len(claims) == room)
        ready = await self._store.queues.ready(list(self.serving))
        return await self._claim_fairly(room, free, ready) if ready else Claimed([])

    @property
    def _evenly(self) -> bool:
        return self._turn == 0

    async def _claim_fairly(self, room: int, free: int, ready: Sequence[Ready]) -> Claimed:
        weights = {row.tenant: row.weight for row in (self.serving[place.queue] for place in ready)}
        shares = self._rounds.shares(room, weights)
        left = dict(shares)
        limited = await self._claim_limited(left, free, self.limited & {place.queue for place in ready})
        claims = limited.claims
        wanted = [
            (tenant, place)
            for place in ready
            if place.queue in self.unlimited and left[tenant := self.serving[place.queue].tenant] > 0
        ]
        if wanted:
            taken = await self._claim_shares(left, wanted, held=bool(claims))
            self._count(left, taken)
            claims = claims + taken
        for tenant, unused in left.items():
            self._rounds.give_back(tenant, unused, weights[tenant])
        more = any(left[tenant] == 0 < shares[tenant] for tenant in {tenant for tenant, _ in wanted})
        return Claimed(claims, more, limited.wait)

    async def _claim_shares(
        self, left: Mapping[int, int], wanted: Sequence[tuple[int, Ready]], *, held: bool
    ) -> list[Claim]:
        """`held`: others are claimed already, and must not be forgotten because this fails."""
        shares = {tenant: left[tenant] for tenant, _ in wanted}
        node, incarnation = self._membership.node, self._membership.incarnation
        try:
            return await self._store.queues.claim_shares(node, incarnation, shares, wanted, evenly=self._evenly)
        except DetentError as error:
            if not held:
                raise
            log.warning("some runs could not be claimed", error=str(error))
            return []

    async def _claim_limited(self, left: dict[int, int], free: int, queues: Iterable[int]) -> Claimed:
        """From each group of queues that are subject to the same limits, as much as their tenant still gets."""
        groups: dict[tuple[int, ...], list[int]] = {}
        for queue in queues:
            groups.setdefault(self.serving[queue].limits, []).append(queue)
        claims: list[Claim] = []
        waits: list[float] = []
        for limits, numbers in groups.items():
            room = min(left[self.serving[numbers[0]].tenant], free - len(claims))
            if room <= 0:
                waits.append(SHORTEST_WAIT)
                continue
            got = await self._claim_under(limits, numbers, room, held=bool(claims))
            self._count(left, got.claims)
            claims += got.claims
            if got.busy or got.wait is not None:
                waits.append(max(got.wait or 0.0, SHORTEST_WAIT))
        return Claimed(claims, wait=min(waits, default=None))

    async def _claim_under(
        self, limits: Sequence[int], queues: Sequence[int], room: int, *, held: bool
    ) -> LimitedClaim:
        node, incarnation = self._membership.node, self._membership.incarnation
        try:
            return await self._store.queues.claim_limited(node, incarnation, limits, queues, room, evenly=self._evenly)
        except DetentError as error:
            if not held:
                raise
            log.warning("some runs could not be claimed", error=str(error))
            return LimitedClaim([], busy=True)

    def _count(self, left: dict[int, int], claims: Iterable[Claim]) -> None:
        for claim in claims:
            left[self.serving[claim.queue].tenant] -= 1
