"""Times at which a schedule does not tick: days, ranges, and what a cron expression or a recurrence rule names.

An exclusion is about the wall clock: a tick is excluded if the clock of the zone shows an excluded time at that tick.
So both of two equal times of an overlap are excluded, and a tick that a gap has moved counts where it comes.

Excluded times are stretches of whole seconds. A search leaps over a stretch in one step, however many ticks are in it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol

from detent.domain.schedule.cron import CronWalls
from detent.domain.schedule.cron_parse import CronFields
from detent.domain.schedule.dst import WallSource
from detent.domain.schedule.zones import OffsetSegment, Zone
from detent.errors import UsageError

DAY_SECONDS = 86_400
WALL_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  a wall time has no zone
FULL_HOURS = (1 << 24) - 1
FULL_MINUTES = (1 << 60) - 1
CLOCK_CHANGES = 2 * DAY_SECONDS
"""More than all changes of a zone's clock together: offsets are between -12 and +14 hours."""
MAX_EXCLUDED = 25_000
"""A search ends after so many excluded stretches in a row, such as 17 days of minutes that are excluded one by one: a
quarter of a second."""
LONG_SEARCH = 5_000
YEAR_MS = 31_557_600_000
FAR_MS, VERY_FAR_MS = 20 * YEAR_MS, 100 * YEAR_MS


def as_good_as_never(distance: int, stretches: int) -> bool:
    """Whether a search ends that has found excluded ticks only, over so many milliseconds, in so many stretches: a
    schedule whose next tick is a century away has ended, whatever comes then."""
    return distance > (VERY_FAR_MS if stretches < LONG_SEARCH else FAR_MS)


class EverythingExcluded(UsageError):  # noqa: N818 - it says what is wrong
    """A search that found excluded ticks only."""

    def __init__(self, reached: str) -> None:
        super().__init__(
            f"The schedule has no tick before {reached} that is not excluded: remove one of its exclusions, or use "
            "one that leaves ticks.",
            "/schedule/exclude",
        )


class Exclusion(Protocol):
    """Excluded stretches of the wall clock, in seconds since 1970-01-01T00:00 on that wall."""

    @property
    def text(self) -> str:
        """As people write it."""

    def stretch(self, wall: int) -> tuple[int, int] | None:
        """A stretch [start, end) around `wall` that is excluded as a whole; None: `wall` is not excluded."""

    def next_start(self, wall: int) -> int | None:
        """The first excluded second at or after `wall`."""


class WallRange:
    """From one wall time up to another."""

    __slots__ = ("end", "start", "text")

    def __init__(self, start: datetime, end: datetime, text: str) -> None:
        self.start = _seconds(start)
        self.end = _seconds(end)
        self.text = text

    def stretch(self, wall: int) -> tuple[int, int] | None:
        return (self.start, self.end) if self.start <= wall < self.end else None

    def next_start(self, wall: int) -> int | None:
        return max(wall, self.start) if wall < self.end else None


class MatchedStretches:
    """The minutes, hours or days that a cron expression or a rule names: each match excludes `unit` seconds."""

    __slots__ = ("text", "unit", "walls")

    def __init__(self, walls: WallSource, unit: int, text: str) -> None:
        self.walls = walls
        self.unit = unit
        self.text = text

    def stretch(self, wall: int) -> tuple[int, int] | None:
        start = wall - wall % self.unit
        return (start, start + self.unit) if self.walls.next_wall(start) == start else None

    def next_start(self, wall: int) -> int | None:
        start = wall - wall % self.unit
        found = self.walls.next_wall(start)
        return None if found is None else max(found, wall)


def covers(part: Exclusion, crons: Sequence[CronWalls]) -> bool:
    """Whether an expression excludes, on each of its days, every time of the day at which these tick. So `*/5 * * 7 *`
    excludes the days of July from `*/5 * * * *`, which is a step for each instead of 288."""
    if not isinstance(part, MatchedStretches) or not isinstance(part.walls, CronWalls):
        return False
    walls = part.walls
    hours = all(not each.hours & ~walls.hours and not each.minutes & ~walls.minutes for each in crons)
    return hours and (part.unit > 1 or all(not each.seconds & ~walls.seconds for each in crons))


def unit_of(fields: CronFields) -> int:
    """How long a match of an expression lasts: a day if it names no times of the day, else an hour or a minute; one
    that names seconds excludes those. Second 0 stands for its whole minute, because five fields mean it."""
    seconds = fields.second.mask
    if seconds not in (1, FULL_MINUTES):
        return 1
    if fields.minute.mask != FULL_MINUTES:
        return 60
    return DAY_SECONDS if fields.hour.mask == FULL_HOURS else 3600


class Exclusions:
    """Everything that a schedule excludes, by instants in milliseconds. `crons`: its expressions, if it has nothing
    else."""

    __slots__ = ("_covering", "_matched", "_ranges", "_starts", "parts", "zone")

    def __init__(self, parts: Sequence[Exclusion], zone: Zone, crons: Sequence[CronWalls] | None) -> None:
        self.zone = zone
        self.parts = tuple(parts)
        self._matched = tuple(part for part in parts if not isinstance(part, WallRange))
        self._covering = frozenset(part for part in self._matched if crons is not None and covers(part, crons))
        ranges = sorted((part for part in parts if isinstance(part, WallRange)), key=lambda part: part.start)
        self._ranges = _merged(ranges)
        self._starts = [start for start, _ in self._ranges]

    def stretch(self, instant: int) -> tuple[int, int] | None:
        """An excluded stretch [start, end) around an instant; None: not excluded."""
        second = instant // 1000
        segment = self.zone.segment(second)
        wall = second + segment.offset
        found = self._range(wall)
        for part in self._matched:
            if (other := part.stretch(wall)) is not None:
                if part in self._covering:
                    other = _whole_day(wall, segment) or other
                found = other if found is None else (min(found[0], other[0]), max(found[1], other[1]))
        if found is None:
            return None
        start, end = found[0] - segment.offset, found[1] - segment.offset
        low, high = max(start, segment.start), min(end, segment.end)
        # Far from both ends of a long stretch no change of the clock leads out of it.
        if high - start >= CLOCK_CHANGES:
            high = max(high, end - CLOCK_CHANGES)
        if end - low >= CLOCK_CHANGES:
            low = min(low, start + CLOCK_CHANGES)
        return low * 1000, high * 1000

    def next_start(self, instant: int, until: int) -> int | None:
        """The first excluded instant in [instant, until]."""
        second = instant // 1000
        while second * 1000 <= until:
            segment = self.zone.segment(second)
            wall = second + segment.offset
            walls = [self._next_range(wall), *(part.next_start(wall) for part in self._matched)]
            found = min((start - segment.offset for start in walls if start is not None), default=segment.end)
            if found < segment.end:
                return max(found * 1000, instant) if found * 1000 <= until else None
            second = segment.end
        return None

    def reason(self, instant: int) -> str | None:
        """The exclusion that applies to an instant, as people wrote it."""
        wall = self.zone.local(instant // 1000)
        return next((part.text for part in self.parts if part.stretch(wall) is not None), None)

    def _range(self, wall: int) -> tuple[int, int] | None:
        index = bisect_right(self._starts, wall) - 1
        return self._ranges[index] if index >= 0 and wall < self._ranges[index][1] else None

    def _next_range(self, wall: int) -> int | None:
        index = max(bisect_right(self._starts, wall) - 1, 0)
        return next((max(wall, start) for start, end in self._ranges[index : index + 2] if wall < end), None)


def _whole_day(wall: int, segment: OffsetSegment) -> tuple[int, int] | None:
    """The day of a wall time, without the time to which a gap of the clock moves ticks; None: that is where it is."""
    day = wall - wall % DAY_SECONDS
    settled = segment.start + segment.offset + max(segment.offset - segment.offset_before, 0)
    return None if wall < settled else (max(day, settled), day + DAY_SECONDS)


def _merged(ranges: Sequence[WallRange]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for part in ranges:
        if merged and part.start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], part.end)
        else:
            merged.append((part.start, part.end))
    return merged


def _seconds(wall: datetime) -> int:
    return (wall - WALL_EPOCH) // timedelta(seconds=1)
