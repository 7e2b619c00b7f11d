"""Offers that a broker has delivered to this process and that no `take` has asked for yet.

Some brokers deliver by themselves or answer late: to a consumer, or to a long poll that outlives the `take` it was made
for. What arrives then serves the next `take`, and returns to the broker if there is none soon, because another worker
may wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any, NamedTuple

from detent.domain.offer import Offer
from detent.runtime.clock import monotonic
from detent.transports.transport import TakenOffer

# For so long, a queue counts as asked for after a take. A worker that keeps up asks again within milliseconds; one that
# does not has no capacity.
SPARE_SECONDS = 0.2


class _Arrival(NamedTuple):
    """Ordered as they are taken: the highest priority first, then the first that came."""

    rank: int
    number: int
    taken: TakenOffer


class Arrivals:
    def __init__(self) -> None:
        self._waiting: dict[int, list[_Arrival]] = {}
        self._numbers = count()
        self._takes: dict[int, int] = {}
        self._asked_until: dict[int, float] = {}
        self._sleepers: set[asyncio.Future[None]] = set()

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    # --- for a take ---

    @contextmanager
    def asking(self, queues: Collection[int]) -> Iterator[None]:
        """While a take runs, its queues are asked for, and for `SPARE_SECONDS` after it."""
        for queue in queues:
            self._takes[queue] = self._takes.get(queue, 0) + 1
        try:
            yield
        finally:
            until = monotonic() + SPARE_SECONDS
            for queue in queues:
                self._takes[queue] -= 1
                self._asked_until[queue] = until

    def pop(self, queues: Collection[int], limit: int) -> list[TakenOffer]:
        heaps = [heap for queue in queues if (heap := self._waiting.get(queue))]
        found: list[TakenOffer] = []
        while heaps and len(found) < limit:
            first = min(heaps)  # compares their first elements, of which no two are equal
            found.append(heappop(first).taken)
            if not first:
                heaps.remove(first)
        return found

    def pop_all(self) -> list[TakenOffer]:
        return self.pop(list(self._waiting), len(self))

    def first_priority(self, queues: Collection[int]) -> int | None:
        """Of what a pop would give first."""
        return max((-heap[0].rank for queue in queues if (heap := self._waiting.get(queue))), default=None)

    async def wait(self, seconds: float) -> None:
        """Until something arrives or changes, or the time is over."""
        sleeper = asyncio.get_running_loop().create_future()
        self._sleepers.add(sleeper)
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await sleeper
        except TimeoutError:
            pass
        finally:
            self._sleepers.discard(sleeper)

    # --- for what brings offers ---

    def add(self, arrived: Iterable[tuple[Offer, Any]]) -> None:
        """Offers and their receipts."""
        for offer, receipt in arrived:
            arrival = _Arrival(-offer.priority, next(self._numbers), TakenOffer(offer, receipt))
            heappush(self._waiting.setdefault(offer.queue, []), arrival)
        self.wake()

    def wake(self) -> None:
        for sleeper in self._sleepers:
            if not sleeper.done():
                sleeper.set_result(None)

    def is_asked(self, queue: int) -> bool:
        return self._takes.get(queue, 0) > 0 or monotonic() < self._asked_until.get(queue, 0.0)

    def is_awaited(self, queue: int) -> bool:
        """Whether a take runs now."""
        return self._takes.get(queue, 0) > 0

    def waiting(self, queue: int) -> int:
        return len(self._waiting.get(queue, ()))

    def unasked(self) -> list[TakenOffer]:
        """Removes what no take has asked for: it is to return to the broker."""
        queues = [queue for queue, heap in self._waiting.items() if heap and not self.is_asked(queue)]
        return [arrival.taken for queue in queues for arrival in self._waiting.pop(queue)]

    def discard(self, is_lost: Callable[[Any], bool]) -> None:
        """Removes what the broker has taken away, by receipts."""
        for heap in self._waiting.values():
            kept = [arrival for arrival in heap if not is_lost(arrival.taken.receipt)]
            if len(kept) < len(heap):
                heap[:] = kept
                heapify(heap)
