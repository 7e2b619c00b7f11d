"""How many runs a worker may take in, and from where: the hand-off of its node, its claims, and offers.

`backlog` is True while its last claim may have left runs behind, or while it is unknown whether runs wait, because the
worker was full. Then nothing that would overtake them is taken in: claims go by priority and share until one of them
leaves capacity.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from detent.domain.shares import reserve_fairly
from detent.worker.capacity import WorkerCapacity
from detent.worker.claiming import Claiming
from detent.worker.held import HeldRuns
from detent.worker.queues.book import QueueBook
from detent.worker.slots import Slots

LARGEST_CLAIM = 1000
# The part of a claim that has to be put off at once, so that the next one may be larger than the capacity.
NEARLY_ALL = 0.9


class Intake:
    def __init__(
        self, *, held: HeldRuns, capacity: WorkerCapacity, slots: Slots, claiming: Claiming, book: QueueBook
    ) -> None:
        self._held = held
        self._capacity = capacity
        self._slots = slots
        self._claiming = claiming
        self._book = book
        self.backlog = True
        self.behind: frozenset[int] = frozenset()  # the tenants of the backlog; none of them while it is unknown
        self._passing = 0

    def left_behind(self, tenants: frozenset[int]) -> None:
        """A claim has left runs of these tenants behind; none: it left capacity."""
        self.behind = tenants
        self.backlog = bool(tenants)

    def fell_behind(self) -> None:
        """The worker is full: whether runs wait is unknown."""
        self.backlog, self.behind = True, frozenset()

    @property
    def free(self) -> int:
        return self._capacity.free(len(self._held))

    def claimable(self) -> int:
        """How many runs a claim may bring. Where the last claim left nothing behind, it keeps half the capacity free:
        ticks that are fired while it waits for its answer would otherwise have to wait as well."""
        capacity = min(self.free, LARGEST_CLAIM)
        if capacity and self.backlog:
            return max(capacity, self._passing)
        return capacity if self.backlog else (capacity + 1) // 2

    def took_in(self, claimed: int, put_off: int) -> None:
        """Of the runs of a claim, so many were put off at once, because their host does not answer. While nearly all
        are, claims grow: such runs need no capacity, and those behind them wait for every claim."""
        nearly_all = put_off > 0 and put_off >= NEARLY_ALL * claimed
        self._passing = min(2 * claimed, LARGEST_CLAIM) if nearly_all else 0

    def slot_waits(self) -> bool:
        """Whether a slot is free for a tenant whose runs the last claim left behind, or may have."""
        return self._capacity.accepts and self._slots.shares.any_open(self.behind or self._claiming.tenants)

    def open_to(self, tenant: int) -> int:
        return self._slots.shares.open_to(tenant) if self._capacity.accepts else 0

    # --- what the fire of this node asks ---

    def open_capacity(self, queue: int) -> int:
        """Capacity for ticks of this queue that are handed off. 0 while the last claim left runs behind, which they
        would overtake."""
        if self._slots.shares.alone:
            return 0 if self.backlog else self.free
        tenant = self._book.tenant_of(queue)
        return 0 if self._has_left_behind(tenant) else max(self.free, self.open_to(tenant))

    def with_free_slot(self, tenants: Iterable[int]) -> set[int]:
        """Those of these tenants that have a free slot and no runs waiting for it in their queues."""
        if not self._slots.shares.any_free:
            return set()
        return {tenant for tenant in tenants if not self._has_left_behind(tenant) and self.open_to(tenant) > 0}

    def _has_left_behind(self, tenant: int) -> bool:
        return self.backlog and (tenant in self.behind or not self.behind)

    def reserve(self, queues: Sequence[int]) -> list[bool]:
        """For each tick about to fire: may it be handed to this worker? Only where it overtakes no run: the worker
        serves its queue, which has no limit, has capacity, and its last claim left nothing behind."""
        taken = self._reserve_first(queues) if self._slots.shares.alone else self._reserve_shares(queues)
        self._capacity.reserved += sum(taken)
        return taken

    def _reserve_first(self, queues: Sequence[int]) -> list[bool]:
        capacity = 0 if self.backlog else self.free
        unlimited = self._claiming.unlimited
        taken = []
        for queue in queues:
            ours = capacity > 0 and queue in unlimited
            capacity -= ours
            taken.append(ours)
        return taken

    def _reserve_shares(self, queues: Sequence[int]) -> list[bool]:
        unlimited, tenant_of = self._claiming.unlimited, self._book.tenant_of
        tenants = [tenant_of(queue) if queue in unlimited else None for queue in queues]
        closed = {tenant for tenant in set(tenants) if tenant is not None and self._has_left_behind(tenant)}
        open_tenants = [None if tenant in closed else tenant for tenant in tenants]
        return reserve_fairly(open_tenants, self.free, self.open_to)
