"""The deliveries that a transport has taken and not released: it gives them back when it is closed."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterable
from typing import Any

from detent.transports.transport import TakenOffer


class HeldDeliveries:
    """By receipt, in the order in which they return by themselves; those that have returned are forgotten."""

    def __init__(self, hold_seconds: float) -> None:
        self._seconds = hold_seconds
        self._until: dict[Hashable, float] = {}

    def hold(self, receipt: Hashable) -> None:
        now = asyncio.get_running_loop().time()
        while self._until and next(iter(self._until.values())) <= now:
            del self._until[next(iter(self._until))]
        self._until[receipt] = now + self._seconds

    def extend(self, taken: Iterable[TakenOffer]) -> None:
        for each in taken:
            if self._until.pop(each.receipt, None) is not None:
                self.hold(each.receipt)

    def release(self, taken: Iterable[TakenOffer]) -> list[Any]:
        """Their receipts."""
        receipts = [each.receipt for each in taken]
        for receipt in receipts:
            self._until.pop(receipt, None)
        return receipts

    def release_all(self) -> list[Any]:
        held, self._until = self._until, {}
        return list(held)
