"""Several schedules as one, which ticks when any of them does, except at excluded times. Shared ticks are one tick."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from detent.domain.schedule.exclusions import MAX_EXCLUDED, EverythingExcluded, Exclusions, as_good_as_never
from detent.domain.schedule.instants import format_instant, from_ms
from detent.domain.schedule.steps import Steps

if TYPE_CHECKING:
    from detent.domain.schedule.schedule import Schedule

FEW_TICKS = 1_000
"""So many ticks are compared with the exclusions one by one; more are counted between excluded stretches."""


class CombinedTicks:
    """The ticks of `members` outside `exclusions`, in milliseconds."""

    __slots__ = ("_sources", "_steps", "exclusions", "members")

    def __init__(self, members: Sequence[Schedule], exclusions: Exclusions, steps: Steps) -> None:
        self.members = tuple(members)
        self.exclusions = exclusions
        self._sources = tuple(member.ticks for member in members)
        self._steps = steps

    def seen_from(self, tick: int) -> CombinedTicks:
        return self  # its intervals have anchors of their own

    def next(self, instant: int) -> int | None:
        first = tick = self.next_of_any(instant)
        if not self.exclusions.parts or first is None:
            return tick
        for stretches in range(MAX_EXCLUDED):
            if tick is None or as_good_as_never(tick - first, stretches):
                return None
            if (stretch := self.exclusions.stretch(tick)) is None:
                return tick
            self._steps.spend()
            tick = self.next_of_any(stretch[1] - 1)
        raise EverythingExcluded(format_instant(from_ms(tick or instant)))

    def latest(self, since: int, until: int) -> int | None:
        for _ in range(MAX_EXCLUDED):
            tick = self._latest_of_any(since, until)
            if tick is None or not self.exclusions.parts or (stretch := self.exclusions.stretch(tick)) is None:
                return tick
            self._steps.spend()
            until = stretch[0] - 1
            if until < since:
                return None
        raise EverythingExcluded(format_instant(from_ms(until)))

    def count(self, after: int, until: int) -> int:
        if not self.exclusions.parts:
            return self._count_of_any(after, until)
        if sum(source.count(after, until) for source in self._sources) <= FEW_TICKS:
            return sum(self.exclusions.stretch(tick) is None for tick in self._walk(self.next_of_any, after, until))
        count = 0
        while after < until:
            start = self.exclusions.next_start(after + 1, until)
            count += self._count_of_any(after, until if start is None else start - 1)
            if start is None:
                break
            self._steps.spend()
            stretch = self.exclusions.stretch(start)
            after = stretch[1] - 1 if stretch is not None else start
        return count

    def excluded(self, after: int, until: int, limit: int) -> list[int]:
        """The first excluded tick of each excluded stretch in (after, until], at most `limit`."""
        found: list[int] = []
        tick = self.next_of_any(after)
        while tick is not None and tick <= until and len(found) < limit:
            self._steps.spend()
            stretch = self.exclusions.stretch(tick)
            if stretch is not None:
                found.append(tick)
            tick = self.next_of_any(tick if stretch is None else stretch[1] - 1)
        return found

    def next_of_any(self, instant: int) -> int | None:
        first: int | None = None
        for source in self._sources:
            tick = source.next(instant)
            if tick is not None and (first is None or tick < first):
                first = tick
        return first

    def _latest_of_any(self, since: int, until: int) -> int | None:
        last: int | None = None
        for source in self._sources:
            tick = source.latest(since, until)
            if tick is not None and (last is None or tick > last):
                last = tick
        return last

    def _count_of_any(self, after: int, until: int) -> int:
        """The ticks of the densest member are counted; those of the others are walked through, and each counts if no
        member before has it."""
        if after >= until:
            return 0
        counts = [source.count(after, until) for source in self._sources]
        order = sorted(range(len(counts)), key=lambda index: -counts[index])
        total = counts[order[0]]
        for position, index in enumerate(order[1:], start=1):
            before = [self._sources[other] for other in order[:position]]
            for tick in self._walk(self._sources[index].next, after, until) if counts[index] else ():
                total += all(source.latest(tick, tick) is None for source in before)
        return total

    def _walk(self, following: Callable[[int], int | None], after: int, until: int) -> Iterator[int]:
        tick = following(after)
        while tick is not None and tick <= until:
            self._steps.spend()
            yield tick
            tick = following(tick)
