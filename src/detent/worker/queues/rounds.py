"""Whose turn it is: tenants share capacity by their weights, and none has to wait for another's backlog.

Each tenant has its own clock, which advances by what the tenant gets, divided by its weight; the tenant whose clock is
furthest behind comes next. A tenant that had no work for a while starts at the clock of the others: turns are not saved
up.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar

Item = TypeVar("Item")

WeightOf = Callable[[int], int]


class Rounds:
    def __init__(self) -> None:
        self._clocks: dict[int, float] = {}
        self._now = 0.0

    def shares(self, capacity: int, weights: Mapping[int, int]) -> dict[int, int]:
        """How many of `capacity` each of these tenants gets, as if each wanted all of it."""
        if len(weights) == 1:
            return dict.fromkeys(weights, capacity)
        shares = dict.fromkeys(weights, 0)
        behind = [(max(self._clocks.get(tenant, 0.0), self._now), tenant) for tenant in weights]
        heapq.heapify(behind)
        for _ in range(capacity):
            clock, tenant = behind[0]
            shares[tenant] += 1
            heapq.heapreplace(behind, (clock + 1 / weights[tenant], tenant))
        self._clocks = {tenant: clock for clock, tenant in behind}
        self._now = behind[0][0]
        return shares

    def give_back(self, tenant: int, unused: int, weight: int) -> None:
        """Return the part of its share that a tenant did not use."""
        if tenant in self._clocks:
            self._clocks[tenant] -= unused / weight


class TenantLine(Generic[Item]):
    """What waits for one tenant: the higher priority first, and among equals the first that came."""

    __slots__ = ("by_priority",)

    def __init__(self) -> None:
        self.by_priority: dict[int, deque[Item]] = {}

    def __len__(self) -> int:
        return sum(map(len, self.by_priority.values()))

    def __bool__(self) -> bool:
        return bool(self.by_priority)

    def __iter__(self) -> Iterator[Item]:
        for waiting in self.by_priority.values():
            yield from waiting

    def first(self) -> Item:
        return self.by_priority[max(self.by_priority)][0]

    def take(self, lowest_first: bool, newest: bool) -> Item:
        priority = (min if lowest_first else max)(self.by_priority)
        waiting = self.by_priority[priority]
        item = waiting.pop() if newest else waiting.popleft()
        if not waiting:
            del self.by_priority[priority]
        return item


class FairLine(Generic[Item]):
    """A line for each tenant with waiting items; between tenants, by weight. Where only one waits, which is usual, no
    turns are counted."""

    def __init__(self, weight_of: WeightOf) -> None:
        self._weight_of = weight_of
        self._lines: dict[int, TenantLine[Item]] = {}
        self._behind: list[tuple[float, int]] = []  # the clocks of tenants that wait, as a heap
        self._left: dict[int, float] = {}  # the clocks of tenants that do not
        self._now = 0.0

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def __bool__(self) -> bool:
        """Whether a tenant has a turn."""
        return bool(self._behind)

    def __iter__(self) -> Iterator[Item]:
        for line in self._lines.values():
            yield from line

    def waits(self, tenant: int) -> bool:
        return tenant in self._lines

    @property
    def tenants(self) -> Collection[int]:
        return self._lines.keys()

    def first(self) -> Item:
        """Whose turn it is. IndexError: nothing waits."""
        return self._lines[self._behind[0][1]].first()

    def append(self, tenant: int, item: Item, priority: int = 0) -> None:
        line = self._lines.get(tenant)
        if line is None:
            line = self._lines[tenant] = TenantLine()
            heapq.heappush(self._behind, (max(self._left.pop(tenant, 0.0), self._now), tenant))
        try:
            line.by_priority[priority].append(item)
        except KeyError:
            line.by_priority[priority] = deque((item,))

    def extend(self, tenant: int, items: Sequence[Item], priority: int = 0) -> None:
        """As `append` of each of these items, of which there is at least one."""
        self.append(tenant, items[0], priority)
        self._lines[tenant].by_priority[priority].extend(items[1:])

    def popleft(self, lowest_first: bool = False, newest: bool = False) -> Item:
        """Remove and return the next item of the tenant that is furthest behind. IndexError: nothing waits."""
        lines = self._lines
        if len(lines) == 1:
            (line,) = lines.values()
            if len(line.by_priority) > 1:
                return line.take(lowest_first, newest)
            (waiting,) = line.by_priority.values()
            item = waiting.pop() if newest else waiting.popleft()
            if not waiting:
                self.clear()
            return item
        if not lines:
            raise IndexError("the line is empty")
        return self._pop_in_turn(lowest_first, newest)

    def take(self, most: int, lowest_first: bool, newest_every: int) -> list[Item]:
        """As `popleft` up to `most` times, where one of `newest_every` items is the newest."""
        if len(self._lines) == 1 and self._behind:
            (line,) = self._lines.values()
            if len(line.by_priority) == 1 and most < len(line):  # nearly always, while many wait
                (waiting,) = line.by_priority.values()
                newest = newest_every - 1
                return [waiting.pop() if n % newest_every == newest else waiting.popleft() for n in range(most)]
        taken: list[Item] = []
        while self._behind and len(taken) < most:
            taken.append(self.popleft(lowest_first, len(taken) % newest_every == newest_every - 1))
        return taken

    def _pop_in_turn(self, lowest_first: bool, newest: bool) -> Item:
        self._now, tenant = self._behind[0]
        line = self._lines[tenant]
        item = line.take(lowest_first, newest)
        clock = self._now + 1 / self._weight_of(tenant)
        if line:
            heapq.heapreplace(self._behind, (clock, tenant))
        else:
            heapq.heappop(self._behind)
            del self._lines[tenant]
            self._left[tenant] = clock
        return item

    def pop_where(self, allowed: Callable[[int], bool]) -> Item | None:
        """As `popleft`, but only among the tenants that are allowed; None: no such tenant waits. The others keep their
        items, and do not save up turns."""
        passed: list[tuple[float, int]] = []
        while self._behind and not allowed(self._behind[0][1]):
            passed.append(heapq.heappop(self._behind))
        item = self._pop_in_turn(lowest_first=False, newest=False) if self._behind else None
        for clock, tenant in passed:
            heapq.heappush(self._behind, (clock if item is None else max(clock, self._now), tenant))
        return item

    @contextmanager
    def only(self, tenants: Collection[int]) -> Iterator[None]:
        """Inside, only these tenants have a turn; the others stay, and save up no turns. For many items at a time:
        `pop_where` passes over all others again for each of them."""
        passed = [turn for turn in self._behind if turn[1] not in tenants]
        self._behind = [turn for turn in self._behind if turn[1] in tenants]
        heapq.heapify(self._behind)
        try:
            yield
        finally:
            for clock, tenant in passed:
                heapq.heappush(self._behind, (max(clock, self._now), tenant))

    def clear(self) -> None:
        self._lines.clear()
        self._behind.clear()
        self._left.clear()
        self._now = 0.0
