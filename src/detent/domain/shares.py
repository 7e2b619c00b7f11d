"""How many slots of a worker one tenant may take, so that its long runs leave some for the others.

While only one tenant has jobs it may take every slot. Otherwise the last slots of a worker, the headroom, are kept for
tenants that hold less than their fair share: their part of the slots by weight, among the tenants that have runs here.

    the tenant holds            it may take a slot
    its fair share or more      as long as more slots are free than the headroom
    less, and others hold none  also from the headroom, while more slots are free than the tenant holds itself
    less, and all hold some     whenever a slot is free

With 100 slots and a headroom of 20, a tenant whose runs hang holds 80 of them, the next one 10 of the other 20, the
third 5: each that comes later still finds some.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

# The weight of a tenant that this worker does not know yet.
UNKNOWN_WEIGHT = 1


def headroom_slots(total: int, part: float) -> int:
    """How many of `total` slots are the headroom; none if `part` is 0."""
    return max(1, round(total * part)) if part > 0 else 0


def fair_share(total: int, weight: int, weights: int) -> int:
    """The slots of a tenant of this weight, where the weights of all tenants with runs add up to `weights`. Rounded up:
    otherwise slots would be left that belong to no tenant."""
    return -(-total * weight // weights)


def slots_for(free: int, *, headroom: int, held: int, fair: int, others_hold_none: bool) -> int:
    """How many of the `free` slots a tenant may take that holds `held`. `others_hold_none`: a tenant that has jobs
    holds no slot."""
    from_headroom = (free - held + 1) // 2 if others_hold_none else free
    return max(min(from_headroom, fair - held), free - headroom, 0)


class TenantShares:
    """Which tenants hold the slots, and how many more each may take. Nothing is counted while only one tenant has jobs
    or the headroom is turned off: then every run takes any free slot."""

    def __init__(self, slots: int, headroom: float) -> None:
        """`headroom`: the part of the slots that no tenant takes beyond its fair share; 0 turns shares off."""
        self._slots = slots
        self._headroom = headroom_slots(slots, headroom)
        self._weights: dict[int, int] = {}
        self._running: dict[int, int] = {}
        self._present: dict[int, int] = {}  # tenants with runs that run or wait for a slot
        self._in_use = 0
        self._weight_present = 0
        self._known_without_slot = 0
        self.alone = True  # only one tenant has jobs, or there is no headroom: nothing is counted

    def among(self, weights: Mapping[int, int], running: Iterable[int], waiting: Iterable[int]) -> None:
        """Share among the tenants that have jobs here. `running` and `waiting`: the tenant of each run."""
        self._weights = dict(weights)
        self.alone = len(weights) < 2 or not self._headroom
        if not self.alone:
            self.recount(running, waiting)

    def recount(self, running: Iterable[int], waiting: Iterable[int]) -> None:
        self._running = dict(Counter(running))
        self._present = dict(Counter(waiting) + Counter(self._running))
        self._in_use = sum(self._running.values())
        self._weight_present = sum(map(self._weight_of, self._present))
        self._known_without_slot = len(self._weights.keys() - self._running.keys())

    def _weight_of(self, tenant: int) -> int:
        return self._weights.get(tenant, UNKNOWN_WEIGHT)

    # --- what happens to a run, counted unless `alone` ---

    def came(self, tenant: int, runs: int = 1) -> None:
        """Runs of the tenant now wait for a slot."""
        present = self._present.get(tenant, 0)
        self._present[tenant] = present + runs
        if not present:
            self._weight_present += self._weight_of(tenant)

    def began(self, tenant: int) -> None:
        """A run of the tenant got a slot."""
        running = self._running.get(tenant, 0)
        self._running[tenant] = running + 1
        self._in_use += 1
        if not running and tenant in self._weights:
            self._known_without_slot -= 1

    def ended(self, tenant: int) -> None:
        self._in_use -= 1
        self._running[tenant] -= 1
        if not self._running[tenant]:
            del self._running[tenant]
            if tenant in self._weights:
                self._known_without_slot += 1
        self.gone(tenant)

    def gone(self, tenant: int) -> None:
        """A run of the tenant no longer waits, or has ended."""
        self._present[tenant] -= 1
        if not self._present[tenant]:
            del self._present[tenant]
            self._weight_present -= self._weight_of(tenant)

    # --- how many slots are left for a tenant ---

    @property
    def any_free(self) -> bool:
        """Whether a slot is free that tenants share."""
        return not self.alone and self._in_use < self._slots

    @property
    def beyond_headroom(self) -> bool:
        """Whether enough slots are free that every tenant may take one."""
        return self._slots - self._in_use > self._headroom

    def startable(self, tenant: int) -> int:
        """How many free slots this tenant may take."""
        return self._left_for(tenant, self._running.get(tenant, 0), self._fair(tenant))

    def below_fair(self, tenant: int) -> bool:
        """Whether it holds less than its fair share and may take a slot: such tenants come first."""
        held, fair = self._running.get(tenant, 0), self._fair(tenant)
        return held < fair and self._left_for(tenant, held, fair) > 0

    def open_to(self, tenant: int) -> int:
        """How many more runs of this tenant could get a slot, in addition to those that already wait here."""
        waiting = self._present.get(tenant, 0) - self._running.get(tenant, 0)
        return max(self.startable(tenant) - waiting, 0)

    def any_open(self, tenants: Iterable[int]) -> bool:
        return self.any_free and any(map(self.open_to, tenants))

    def held_back(self, waiting: Collection[int]) -> list[int]:
        """Those of these tenants that wait although a slot is free."""
        return [] if not self.any_free else [tenant for tenant in waiting if not self.startable(tenant)]

    def _fair(self, tenant: int) -> int:
        weight = self._weight_of(tenant)
        return fair_share(
            self._slots, weight, self._weight_present if tenant in self._present else self._weight_present + weight
        )

    def _left_for(self, tenant: int, held: int, fair: int) -> int:
        itself = not held and tenant in self._weights
        others_hold_none = self._known_without_slot > itself
        free = self._slots - self._in_use
        return slots_for(free, headroom=self._headroom, held=held, fair=fair, others_hold_none=others_hold_none)


def reserve_fairly(tenants: Sequence[int | None], free: int, open_to: Callable[[int], int]) -> list[bool]:
    """Which of these runs a worker accepts. `tenants`: the tenant of each run, or None if it is not for this worker. In
    addition to the `free` capacity, which all share, each tenant has as much as slots are open to it: runs of others
    that wait in memory do not use that part."""
    own: dict[int, int] = {}
    taken = []
    for tenant in tenants:
        ours = False
        if tenant is not None:
            left = own.get(tenant)
            if left is None:
                left = open_to(tenant)
            ours = free > 0 or left > 0
            free -= ours
            own[tenant] = left - ours
        taken.append(ours)
    return taken
