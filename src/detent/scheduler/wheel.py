"""A hierarchical timing wheel: many keys, each with a due time, and cheap answers to "which are due now?".

Time is whole milliseconds. Five levels of slots, each as wide as all slots of the level below it together:

    level 0   10 ms   within the current second
    level 1    1 s    within the current minute
    level 2    1 min  within the current hour
    level 3    1 h    within the current day
    level 4    1 day  everything later

A key lives in the finest level whose span holds both it and the wheel's present. Say the present is 12:00:00.000. A
key due at 12:00:00.250 goes to level 0, slot 25 of that second. One due at 12:00:07 goes to level 1, because its
second is not the current one; one due at 12:05:30 to level 2. When the present enters a slot of a higher level, that
slot is emptied into the levels below: at 12:05:00 the slot "12:05" is dealt out to the seconds of that minute, and at
12:05:30 the slot of that second to its hundredths. So a key is moved at most four times in its life, however many
keys there are, and a slot whose span has passed is due as a whole without looking at its keys.

Slots are kept in a dictionary by their absolute number, not in a ring: there is no wrap-around to get wrong, an empty
slot costs nothing, and a jump of the present over an hour is one step, not 360,000.

The interface is `add`, `discard` and `advance`, plus `next_due` for the sleeper; a plain heap has the same and is the
oracle in the tests.
"""

from __future__ import annotations

from collections.abc import Iterable

WIDTHS = (10, 1_000, 60_000, 3_600_000, 86_400_000)


class Slot:
    __slots__ = ("due", "earliest")

    def __init__(self, earliest: int) -> None:
        self.due: dict[int, int] = {}
        self.earliest = earliest


class TimingWheel:
    def __init__(self, now: int) -> None:
        self._now = now
        self._levels: tuple[dict[int, Slot], ...] = tuple({} for _ in WIDTHS)
        self._where: dict[int, tuple[int, int]] = {}

    @property
    def present(self) -> int:
        return self._now

    def __len__(self) -> int:
        return len(self._where)

    def __contains__(self, key: int) -> bool:
        return key in self._where

    def add(self, key: int, due: int) -> None:
        """Put a key in, or move it if it is there. A due time that has passed is due at once."""
        self.discard(key)
        self._place(key, due)

    def discard(self, key: int) -> None:
        where = self._where.pop(key, None)
        if where is None:
            return
        level, number = where
        slot = self._levels[level][number]
        del slot.due[key]
        if not slot.due:
            del self._levels[level][number]

    def discard_all(self, keys: Iterable[int]) -> None:
        """Take out those of these keys that are in the wheel, usually few."""
        for key in self._where.keys() & keys:
            self.discard(key)

    def advance(self, now: int) -> list[int]:
        """Move the present to `now` and take out every key due by then, earlier slots first."""
        self._now = max(self._now, now)
        # Coarse levels are opened first, because what they hold may belong into finer ones; but every key of a finer
        # level is earlier than every key of a coarser one, so they are handed out the other way round.
        by_level: list[list[int]] = []
        for level in range(len(WIDTHS) - 1, -1, -1):
            present = self._now // WIDTHS[level]
            slots = self._levels[level]
            due: list[int] = []
            for number in sorted(n for n in slots if n < present):
                due.extend(slots.pop(number).due)
            if present in slots:
                due.extend(self._open(slots.pop(present)))
            by_level.append(due)
        taken = [key for due in reversed(by_level) for key in due]
        for key in taken:
            del self._where[key]
        return taken

    def passed(self, before: int) -> int:
        """How many keys were due before this and have not been taken out. Few slots are that old: nearly always none,
        since every pass takes out what is due."""
        return sum(
            sum(at < before for at in slot.due.values())
            for slots in self._levels
            for slot in slots.values()
            if slot.earliest < before
        )

    def next_due(self) -> int | None:
        """No key is due before this; None when the wheel is empty."""
        for slots in self._levels:
            if slots:
                return slots[min(slots)].earliest
        return None

    def _place(self, key: int, due: int) -> None:
        at = max(due, self._now)
        level = 0
        while level < len(WIDTHS) - 1 and at // WIDTHS[level + 1] != self._now // WIDTHS[level + 1]:
            level += 1
        number = at // WIDTHS[level]
        slot = self._levels[level].get(number)
        if slot is None:
            slot = self._levels[level][number] = Slot(due)
        slot.due[key] = due
        slot.earliest = min(slot.earliest, due)
        self._where[key] = (level, number)

    def _open(self, slot: Slot) -> list[int]:
        """The slot of the present time: what is due comes out, the rest goes to finer slots."""
        due = []
        for key, at in slot.due.items():
            if at <= self._now:
                due.append(key)
            else:
                self._place(key, at)
        return due
