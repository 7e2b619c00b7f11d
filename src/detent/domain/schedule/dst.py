"""From wall times to instants: what happens when a clock is changed.

A zone is a row of segments, each with one offset. Inside a segment wall time and instants run side by side;
only at its edges something special happens:

- a gap (the clock is put forward): the wall times in it do not exist;
- an overlap (the clock is put back): the wall times in it exist twice.

A schedule in real time (a wildcard hour or minute) fires at every instant whose wall time matches: nothing in
a gap, both times in an overlap. A schedule at fixed times fires once for every wall time that matches, by the
policies: in a gap `run` (at the first instant after it), `shift` (as late as the gap is long) or `skip`; in
an overlap `first`, `last` or `both`.

Every function below works on one segment at a time and never steps from tick to tick.
"""

from __future__ import annotations

from typing import Protocol

from detent.domain.schedule.zones import FIRST_INSTANT, LAST_INSTANT, OffsetSegment, Zone

GAP_POLICIES = ("run", "shift", "skip")
OVERLAP_POLICIES = ("first", "last", "both")

MARGIN = 2 * 86_400
"""Further than this from a change of the clock no policy matters; the longest gap (Apia) is a day."""


class WallSource(Protocol):
    """Which wall times a schedule names, without any zone."""

    def next_wall(self, wall: int) -> int | None:
        """The first match at or after `wall`."""

    def prev_wall(self, wall: int) -> int | None:
        """The last match at or before `wall`."""

    def count_walls(self, low: int, high: int) -> int:
        """How many matches in [low, high)."""

    @property
    def every_hour(self) -> bool:
        """Whether it matches in every hour: then a missing hour needs no replacement tick."""


class Resolver:
    """The instants of a wall-clock schedule in a zone. All times are whole seconds."""

    __slots__ = ("gap", "overlap", "real_time", "source", "zone")

    def __init__(self, source: WallSource, zone: Zone, *, real_time: bool, gap: str, overlap: str) -> None:
        self.source = source
        self.zone = zone
        self.real_time = real_time
        self.gap = "skip" if real_time else gap
        self.overlap = "both" if real_time else overlap

    def next(self, instant: int) -> int | None:
        """The first tick at or after `instant`."""
        segment = self.zone.segment(instant)
        start, end, offset, _, _ = segment
        if instant - start > MARGIN:
            wall = self.source.next_wall(instant + offset)
            if wall is not None:
                tick = wall - offset
                if tick < end - MARGIN:
                    return tick
                if instant < end - MARGIN:
                    # Nothing matches before `wall`, so what happens at the changes between does not matter.
                    start, end, offset, _, _ = self.zone.segment(tick)
                    tick = wall - offset
                    if start + MARGIN < tick < end - MARGIN:
                        return tick
        return self._next_across(segment, instant)

    def _next_across(self, segment: OffsetSegment, instant: int) -> int | None:
        first_asked = instant
        while True:
            tick = self._first_in(segment, instant)
            if tick is not None:
                return tick
            wall = self.source.next_wall(instant + segment.offset)
            if wall is None and segment.end > first_asked + MARGIN:
                return None
            resume = segment.end
            # Every wall time from here to `wall` is free; it is safe to leap over the segments between them
            # unless the next overlap brings back wall times from before our starting point.
            if wall is not None and segment.end + segment.offset_after >= instant + segment.offset:
                resume = max(resume, wall - segment.offset - MARGIN)
            if resume >= LAST_INSTANT:
                return None
            instant = resume
            segment = self.zone.segment(instant)

    def _first_in(self, segment: OffsetSegment, instant: int) -> int | None:
        low, high = self._limits(segment)
        wall = self.source.next_wall(max(instant, low) + segment.offset)
        tick = None
        if wall is not None and wall - segment.offset < high:
            tick = wall - segment.offset
        moved = self._next_moved(segment, instant)
        if moved is not None and (tick is None or moved < tick):
            return moved
        return tick

    def prev(self, instant: int, floor: int) -> int | None:
        """The last tick at or before `instant`, but not before `floor`."""
        while instant >= floor:
            segment = self.zone.segment(instant)
            tick = self._last_in(segment, instant)
            if tick is not None:
                return tick if tick >= floor else None
            wall = self.source.prev_wall(instant + segment.offset)
            if wall is None and segment.start < instant - MARGIN:
                return None
            resume = segment.start - 1
            if wall is not None and segment.start + segment.offset_before <= instant + segment.offset:
                resume = min(resume, wall - segment.offset + MARGIN)
            if resume <= FIRST_INSTANT:
                return None
            instant = resume
        return None

    def _last_in(self, segment: OffsetSegment, instant: int) -> int | None:
        low, high = self._limits(segment)
        wall = self.source.prev_wall(min(instant, high - 1) + segment.offset)
        tick = None
        if wall is not None and wall - segment.offset >= low:
            tick = wall - segment.offset
        moved = self._prev_moved(segment, instant)
        if moved is not None and (tick is None or moved > tick):
            return moved
        return tick

    def count(self, low: int, high: int) -> int:
        """How many ticks in [low, high)."""
        total = 0
        while low < high:
            segment = self.zone.segment(low)
            total += self._count_in(segment, low, min(high, segment.end))
            low = segment.end
        return total

    def _count_in(self, segment: OffsetSegment, low: int, high: int) -> int:
        first, end = self._limits(segment)
        offset = segment.offset
        count = self.source.count_walls(max(low, first) + offset, min(high, end) + offset)
        instant = self._next_moved(segment, low)
        while instant is not None and instant < high:
            # A moved tick may coincide with a regular tick; together they are one.
            own = first <= instant < end and self.source.next_wall(instant + offset) == instant + offset
            count += 0 if own else 1
            instant = self._next_moved(segment, instant + 1)
        return count

    def _limits(self, segment: OffsetSegment) -> tuple[int, int]:
        """The instants of a segment in which wall times count, after the overlap policy."""
        low, high = segment.start, segment.end
        if self.overlap == "first" and segment.offset < segment.offset_before:
            low += segment.offset_before - segment.offset
        if self.overlap == "last" and segment.offset_after < segment.offset:
            high -= segment.offset - segment.offset_after
        return low, high

    def _next_moved(self, segment: OffsetSegment, instant: int) -> int | None:
        """The first tick at or after `instant` that the gap before this segment moved into it."""
        gap = segment.offset - segment.offset_before
        if gap <= 0 or self.gap == "skip" or instant >= segment.start + gap:
            return None
        gap_wall = segment.start + segment.offset_before
        if self.gap == "run":
            if instant > segment.start:
                return None
            wall = self.source.next_wall(gap_wall)
            return segment.start if wall is not None and wall < gap_wall + gap else None
        wall = self.source.next_wall(max(instant, segment.start) + segment.offset_before)
        if wall is None or wall >= gap_wall + gap:
            return None
        return wall - segment.offset_before

    def _prev_moved(self, segment: OffsetSegment, instant: int) -> int | None:
        """The last tick at or before `instant` that the gap before this segment moved into it."""
        gap = segment.offset - segment.offset_before
        if gap <= 0 or self.gap == "skip" or instant < segment.start:
            return None
        gap_wall = segment.start + segment.offset_before
        if self.gap == "run":
            wall = self.source.next_wall(gap_wall)
            return segment.start if wall is not None and wall < gap_wall + gap else None
        wall = self.source.prev_wall(min(instant, segment.start + gap - 1) + segment.offset_before)
        if wall is None or wall < gap_wall:
            return None
        return wall - segment.offset_before
