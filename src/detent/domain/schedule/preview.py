"""The next ticks of a schedule, each with what a change of the clock does to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from detent.domain.schedule.cautions import cautions
from detent.domain.schedule.combined import CombinedTicks
from detent.domain.schedule.dst import MARGIN
from detent.domain.schedule.instants import to_ms
from detent.domain.schedule.schedule import COMBINED, WallTicks
from detent.domain.schedule.zones import OffsetSegment

if TYPE_CHECKING:
    from detent.domain.schedule.schedule import Schedule

MAX_TICKS = 1_000
MAX_SKIPPED = 100
MAX_WARNINGS = 20
CLOCK_CHANGES_AHEAD = timedelta(days=731)
MAX_CHANGES = 12
NEARBY = 3 * 3600
NO_TICKS = "A task has no schedule: its runs are enqueued."
NOT_KNOWN = "The next tick depends on the end of the previous run, so no ticks are listed ahead."
WALL_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  a wall time has no zone


@dataclass(frozen=True, slots=True)
class PlannedTick:
    """`local` is the wall time with its offset; `dst` says what a change of the clock did to this tick."""

    at: datetime
    local: str
    dst: str | None = None


@dataclass(frozen=True, slots=True)
class SuppressedTick:
    """A wall time that matched and has no tick of its own."""

    local: str
    why: str


@dataclass(frozen=True, slots=True)
class ZoneTransition:
    """What one change of the clock does to a schedule: `on` is its date there, `at` the instant, and `effect` says
    whether times of the schedule are moved, skipped or repeated."""

    at: datetime
    on: str
    effect: str
    why: str


@dataclass(slots=True)
class SchedulePreview:
    ticks: list[PlannedTick] = field(default_factory=list)
    skipped: list[SuppressedTick] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def preview(schedule: Schedule, after: datetime, count: int) -> SchedulePreview:
    """At most `count` ticks after `after`; `count` is limited to 1 to 1000."""
    count = min(max(count, 1), MAX_TICKS)
    result = SchedulePreview()
    moments: list[datetime] = []
    moment = schedule.next_after(after)
    while moment is not None and len(moments) < count:
        moments.append(moment)
        moment = schedule.next_after(moment)
    if not moments:
        result.warnings.append(_why_none(schedule))
    watchers = [_Watcher(schedule, each, result) for each in _sources(schedule)]
    result.ticks = [PlannedTick(tick, _local(schedule, tick), _mark(watchers, tick)) for tick in moments]
    if not watchers and schedule.kind != COMBINED:
        return result
    if moments:
        for watcher in watchers:
            watcher.report(to_ms(after) // 1000 + 1, to_ms(moments[-1]) // 1000 + 1)
        _list_excluded(schedule, after, moments[-1], result)
    result.warnings += cautions(schedule)
    return result


def _why_none(schedule: Schedule) -> str:
    if schedule.never:
        return NO_TICKS
    return NOT_KNOWN if schedule.delay is not None else "This schedule has no further tick."


def _sources(schedule: Schedule) -> list[WallTicks]:
    """What follows the wall clock in a schedule."""
    members = schedule.ticks.members if isinstance(schedule.ticks, CombinedTicks) else (schedule,)
    return [member.ticks for member in members if isinstance(member.ticks, WallTicks)]


def _mark(watchers: list[_Watcher], tick: datetime) -> str | None:
    """Of the first member that has the tick and was changed there."""
    return next((mark for watcher in watchers if (mark := watcher.mark(tick)) is not None), None)


def _list_excluded(schedule: Schedule, after: datetime, last: datetime, result: SchedulePreview) -> None:
    ticks = schedule.ticks
    if not isinstance(ticks, CombinedTicks) or not ticks.exclusions.parts:
        return
    starts, _ = schedule.bounds()
    since = after if starts is None else max(after, datetime.fromisoformat(starts) - timedelta(milliseconds=1))
    for tick in ticks.excluded(to_ms(since), to_ms(last), MAX_SKIPPED - len(result.skipped)):
        local = _wall_text(schedule.zone.local(tick // 1000))
        result.skipped.append(SuppressedTick(local, f"excluded by {ticks.exclusions.reason(tick)!r}"))
    result.skipped.sort(key=lambda skipped: skipped.local)


def _local(schedule: Schedule, tick: datetime) -> str:
    spec = "milliseconds" if tick.microsecond else "seconds"
    return tick.astimezone(schedule.zone.info).isoformat(timespec=spec)


def _wall_text(wall: int) -> str:
    return (WALL_EPOCH + timedelta(seconds=wall)).isoformat(timespec="seconds")


def _clock_text(wall: int) -> str:
    text = (WALL_EPOCH + timedelta(seconds=wall)).strftime("%H:%M:%S")
    return text.removesuffix(":00")


def _date_text(wall: int) -> str:
    return (WALL_EPOCH + timedelta(seconds=wall)).strftime("%Y-%m-%d")


class _Watcher:
    """Marks the ticks near changes of the clock, and says in words what happens there."""

    def __init__(self, schedule: Schedule, source: WallTicks, result: SchedulePreview) -> None:
        self.source = source
        self.resolver = source.resolver
        self.result = result
        combined = schedule.ticks if isinstance(schedule.ticks, CombinedTicks) else None
        self.exclusions = combined.exclusions if combined is not None and combined.exclusions.parts else None
        self.alone = combined is None

    def mark(self, tick: datetime) -> str | None:
        """`moved`, `repeated`, or nothing; of a tick that is not one of this member, nothing."""
        if not self.alone and self.source.latest(to_ms(tick), to_ms(tick)) is None:
            return None
        instant = to_ms(tick) // 1000
        return self._mark(self.resolver.zone.segment(instant), instant)

    def _excluded(self, instant: int) -> bool:
        return self.exclusions is not None and self.exclusions.stretch(instant * 1000) is not None

    def _mark(self, segment: OffsetSegment, instant: int) -> str | None:
        gap = segment.offset - segment.offset_before
        if gap > 0 and instant < segment.start + gap and not self._is_own(segment, instant):
            return "moved"
        if gap < 0 and instant < segment.start - gap:
            return "repeated"
        if segment.offset_after < segment.offset and instant >= segment.end - (segment.offset - segment.offset_after):
            return "repeated"
        return None

    def _is_own(self, segment: OffsetSegment, instant: int) -> bool:
        wall = instant + segment.offset
        return self.resolver.source.next_wall(wall) == wall

    def report(self, low: int, high: int) -> None:
        """Says what happens at every change of the clock in [low, high)."""
        segment = self.resolver.zone.segment(low)
        if segment.start + MARGIN > low:
            segment = self.resolver.zone.segment(segment.start - 1)
        while segment.end < high and len(self.result.warnings) < MAX_WARNINGS:
            segment = self.resolver.zone.segment(segment.end)
            self.report_change(segment, low, high)

    def report_change(self, segment: OffsetSegment, low: int, high: int) -> None:
        """Says what happens at the change of the clock with which a segment begins."""
        if segment.offset > segment.offset_before:
            self._report_gap(segment, low, high)
        elif segment.offset < segment.offset_before:
            self._report_overlap(segment, low, high)

    def _report_gap(self, segment: OffsetSegment, low: int, high: int) -> None:
        if not low <= segment.start < high or self._excluded(segment.start):
            return
        gap = segment.offset - segment.offset_before
        if self.resolver.real_time and gap % 3600 == 0 and self.resolver.source.every_hour:
            return
        wall = self.resolver.source.next_wall(segment.start + segment.offset_before)
        first = wall
        for _ in range(MAX_SKIPPED):
            if wall is None or wall >= segment.start + segment.offset or len(self.result.skipped) >= MAX_SKIPPED:
                return
            self._report_gap_wall(segment, wall, wall == first)
            wall = self.resolver.source.next_wall(wall + 1)

    def _report_gap_wall(self, segment: OffsetSegment, wall: int, first: bool) -> None:
        missing = f"{_clock_text(wall)} does not exist on {_date_text(wall)}"
        if self.resolver.gap == "skip":
            why = "does not run" if not self.resolver.real_time else "the clock is put forward over it"
            self.result.skipped.append(SuppressedTick(_wall_text(wall), f"{missing}: {why}"))
            self._warn(f"{missing}: {why}")
            return
        instant = segment.start if self.resolver.gap == "run" else wall - segment.offset_before
        target = instant + segment.offset
        when = _clock_text(target)
        if _date_text(target) != _date_text(wall):
            when = f"{when} on {_date_text(target)}"
        if self._is_own(segment, instant) or (self.resolver.gap == "run" and not first):
            why = f"{missing}: the run at {when} stands for it"
            self.result.skipped.append(SuppressedTick(_wall_text(wall), why))
            self._warn(why)
        else:
            self._warn(f"{missing}: runs at {when}")

    def _report_overlap(self, segment: OffsetSegment, low: int, high: int) -> None:
        length = segment.offset_before - segment.offset
        if segment.start + length <= low or segment.start - length >= high or self.resolver.real_time:
            return
        wall = self.resolver.source.next_wall(segment.start + segment.offset)
        words = {
            "first": "runs once, the first time",
            "last": "runs once, the second time",
            "both": "runs twice",
        }
        while wall is not None and wall < segment.start + segment.offset_before:
            if not self._excluded(wall - segment.offset):
                self._warn(f"{_clock_text(wall)} comes twice on {_date_text(wall)}: {words[self.resolver.overlap]}")
            if len(self.result.warnings) >= MAX_WARNINGS:
                return
            wall = self.resolver.source.next_wall(wall + 1)

    def _warn(self, text: str) -> None:
        if len(self.result.warnings) < MAX_WARNINGS and text not in self.result.warnings:
            self.result.warnings.append(text)


def clock_changes(schedule: Schedule, after: datetime) -> list[ZoneTransition]:
    """The DST changes within two years that affect this schedule, each once, with what happens. The number of times
    checked for each change is bounded."""
    sources = _sources(schedule)
    if not sources:
        return []
    low, high = _lifetime(schedule, after)
    found: list[ZoneTransition] = []
    segment = schedule.zone.segment(low)
    while segment.end < high and len(found) < MAX_CHANGES:
        segment = schedule.zone.segment(segment.end)
        result = SchedulePreview()
        for watcher in (_Watcher(schedule, source, result) for source in sources):
            watcher.report_change(segment, low, high)
        if result.warnings:
            found.append(_change(segment, result))
    return found


def _lifetime(schedule: Schedule, after: datetime) -> tuple[int, int]:
    """The seconds in which changes matter: two years, as far as the schedule is in force."""
    starts, ends = (None if text is None else datetime.fromisoformat(text) for text in schedule.bounds())
    since = after if starts is None else max(after, starts)
    until = after + CLOCK_CHANGES_AHEAD if ends is None else min(after + CLOCK_CHANGES_AHEAD, ends)
    return to_ms(since) // 1000 + 1, to_ms(until) // 1000 + 1


def _change(segment: OffsetSegment, result: SchedulePreview) -> ZoneTransition:
    first, more = result.warnings[0], len(result.warnings) - 1
    if more:
        number = f"{more}{' or more' if len(result.warnings) == MAX_WARNINGS else ''}"
        first += f". The same change touches {number} more of its times."
    if segment.offset < segment.offset_before:
        effect = "repeated"
    else:
        effect = "skipped" if len(result.skipped) == len(result.warnings) else "moved"
    at = datetime.fromtimestamp(segment.start, UTC)
    return ZoneTransition(at, _date_text(segment.start + segment.offset_before), effect, first)


def clock_notes(schedule: Schedule, moment: datetime) -> tuple[str | None, list[str]]:
    """What a change of the clock does to this tick, `moved`, `repeated` or nothing; and what it does nearby."""
    result = SchedulePreview()
    watchers = [_Watcher(schedule, source, result) for source in _sources(schedule)]
    mark = _mark(watchers, moment)
    instant, near = to_ms(moment) // 1000, MARGIN if mark else NEARBY
    for watcher in watchers:
        watcher.report(instant - near, instant + near + 1)
    return mark, result.warnings
