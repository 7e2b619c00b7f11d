"""A bounded cache of next_after, for the whole process.

Thousands of jobs share few distinct schedules and fire on the same ticks, so nearly every call repeats an earlier one.
Two generations: when the young one is full it becomes the old one, and the old one is dropped.
"""

from __future__ import annotations

from collections.abc import Hashable
from datetime import datetime
from typing import Final

GENERATION = 32_768
IDENTITIES = 65_536


class Memo:
    """(schedule identity, tick) to the next tick."""

    __slots__ = ("old", "young")

    def __init__(self) -> None:
        self.young: dict[tuple[int, datetime], datetime | None] = {}
        self.old: dict[tuple[int, datetime], datetime | None] = {}

    def clear(self) -> None:
        self.young, self.old = {}, {}

    def put(self, key: tuple[int, datetime], value: datetime | None) -> None:
        if len(self.young) >= GENERATION:
            self.old, self.young = self.young, {}
        self.young[key] = value


class Identities:
    """Equal schedules get the same small number, however often they are parsed."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._next = 0

    def number(self, canonical: Hashable) -> int:
        found = self._numbers.get(canonical)
        if found is None:
            if len(self._numbers) >= IDENTITIES:
                # Numbers are never used again, so a forgotten identity only costs a second computation.
                self._numbers.clear()
            self._next += 1
            found = self._numbers[canonical] = self._next
        return found


MEMO: Final = Memo()
IDENTITY: Final = Identities()
