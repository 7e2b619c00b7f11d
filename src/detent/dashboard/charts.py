"""Chart geometry: the position of every mark of a bar chart, a gantt chart, a heat map or a timeline.

Templates draw the marks. Positions and widths on the time axis are percentages, so that a chart fits any width without
a script.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import NamedTuple
from uuid import UUID

from detent.contract.run import Attempt, Run
from detent.domain.ledger import LedgerSegment
from detent.domain.states import CODES, OPEN
from detent.store.db import Row
from detent.store.overview import RecentRun, TimelineStep

STATUSES = {code: str(status) for status, code in CODES.items()}
# The status that a mark shows when it covers runs of several.
WORST_FIRST = (
    *("unaccounted", "dead", "missed", "retrying", "running", "pending", "cancelled", "skipped", "succeeded"),
    *("unread", "paused", "scheduled"),
)
MAX_STEPS_PER_MARK = 4
MICROSECOND = timedelta(microseconds=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


# --- the last runs of a job as bars ---


class Bar(NamedTuple):
    run: UUID
    status: str
    height: int
    at: datetime
    seconds: float | None
    reason: str | None


def bars(runs: Sequence[RecentRun], highest: int = 20, lowest: int = 4) -> list[Bar]:
    """Oldest first; the longest run has the highest bar, and a run that never started the lowest."""
    longest = max((run.seconds or 0 for run in runs), default=0) or 1
    return [
        Bar(
            run.id, run.status, lowest + round((highest - lowest) * min((run.seconds or 0) / longest, 1)),
            run.scheduled_at, run.seconds, run.reason,
        )
        for run in reversed(runs)
    ]  # fmt: skip


def quantile(values: Iterable[float], share: float) -> float | None:
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)] if ordered else None


def quantile_of_buckets(counts: Mapping[int, int], bounds: Sequence[float], share: float) -> float | None:
    """Estimated from histogram buckets, by linear interpolation inside a bucket."""
    total = sum(counts.values())
    if not total:
        return None
    wanted, seen = total * share, 0
    for bucket in sorted(counts):
        if seen + counts[bucket] >= wanted:
            low = bounds[bucket - 1] if bucket else 0.0
            high = bounds[bucket] if bucket < len(bounds) else bounds[-1]
            return low + (high - low) * (wanted - seen) / counts[bucket]
        seen += counts[bucket]
    return bounds[-1]


# --- the attempts of a run as a gantt chart ---


class ChartSpan(NamedTuple):
    """`kind` is waiting, backoff or running, or the outcome of an attempt."""

    kind: str
    left: float
    width: float
    since: datetime
    until: datetime


class Track(NamedTuple):
    """One attempt, with the wait before it."""

    attempt: int
    node: str | None
    outcome: str
    spans: list[ChartSpan]
    error: str | None


class Gantt(NamedTuple):
    tracks: list[Track]
    since: datetime
    until: datetime
    marks: list[tuple[float, timedelta]]


def gantt(run: Run, now: datetime) -> Gantt | None:
    """None: the run never started and is not waiting, or is not due yet."""
    if not run.attempts and (run.status not in OPEN or (run.scheduled_at > now and run.started_at is None)):
        return None
    attempts = sorted(run.attempts, key=lambda attempt: (attempt.token, attempt.finished_at))
    ends = [attempt.finished_at for attempt in attempts]
    since, until = run.scheduled_at, max([*ends, now if run.status in OPEN else run.scheduled_at])
    starts = [attempt.started_at for attempt in attempts if attempt.started_at is not None]
    since = min([since, *starts])
    until = max(until, since + timedelta(milliseconds=1))
    ruler = Ruler(since, until)
    tracks, before = [], since
    for attempt in attempts:
        tracks.append(_track(attempt, before, ruler))
        before = max(before, attempt.finished_at)
    if run.status in OPEN:
        tracks.append(_open_track(run, before, now, ruler))
    return Gantt(tracks, since, until, ruler.marks())


class Ruler:
    def __init__(self, since: datetime, until: datetime) -> None:
        self.since, self.until = since, until
        self._length = (until - since).total_seconds()

    def place(self, moment: datetime) -> float:
        return min(max((moment - self.since).total_seconds() / self._length, 0), 1) * 100

    def span(self, kind: str, since: datetime, until: datetime) -> ChartSpan:
        left, right = self.place(since), self.place(until)
        return ChartSpan(kind, round(left, 3), round(max(right - left, 0.3), 3), since, until)

    def marks(self, limit: int = 5) -> list[tuple[float, timedelta]]:
        """Axis labels at round durations."""
        for step in (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21_600, 86_400, 604_800):
            for size in (step / 1000, float(step)) if step < 1000 else (float(step),):
                if self._length / size <= limit and size >= self._length / limit:
                    return [(size * n / self._length * 100, timedelta(seconds=size * n)) for n in range(limit + 1)
                            if size * n <= self._length]  # fmt: skip
        return [(0.0, timedelta())]


def _track(attempt: Attempt, before: datetime, ruler: Ruler) -> Track:
    started = attempt.started_at or before
    spans = []
    if started > before:
        spans.append(ruler.span("waiting" if attempt.attempt == 1 else "backoff", before, started))
    spans.append(ruler.span(attempt.outcome, started, attempt.finished_at))
    return Track(attempt.attempt, attempt.node, attempt.outcome, spans, attempt.error)


def _open_track(run: Run, before: datetime, now: datetime, ruler: Ruler) -> Track:
    spans = []
    started = run.started_at if run.status == "running" else None
    kind = "waiting" if run.attempt in (None, 1) else "backoff"
    if started is not None and started > before:
        spans.append(ruler.span(kind, before, started))
    if run.status == "running":
        spans.append(ruler.span("running", max(started or before, before), now))
    else:
        spans.append(ruler.span(kind, before, now))
    return Track(run.attempt or 1, run.node, str(run.status), spans, None)


# --- the runs of a job by day and hour ---


class Cell(NamedTuple):
    column: int
    hour: int
    status: str
    strength: int
    runs: int
    at: datetime
    words: str


class Heat(NamedTuple):
    cells: list[Cell]
    days: list[date]
    today: int


def heat(hours: Iterable[Row], scheduled: Iterable[datetime], now: datetime, back: int = 28, ahead: int = 7) -> Heat:
    """One column per day, one row per hour, UTC. `strength` is 1 to 4."""
    first = (now - back * DAY).astimezone(UTC).date()
    counts: dict[datetime, dict[str, int]] = defaultdict(dict)
    for row in hours:
        counts[row["at"]][STATUSES[row["status"]]] = row["runs"]
    for tick in scheduled:
        hour = tick.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
        if tick > now:
            counts[hour]["scheduled"] = counts[hour].get("scheduled", 0) + 1
    most = max((sum(found.values()) for found in counts.values()), default=1)
    cells = [
        cell for at, found in counts.items()
        if 0 <= (cell := _cell(at, found, most, first)).column < back + ahead + 1
    ]  # fmt: skip
    days = [first + timedelta(days=n) for n in range(back + ahead + 1)]
    return Heat(cells, days, back)


def _cell(at: datetime, found: Mapping[str, int], most: int, first: date) -> Cell:
    worst = next(status for status in WORST_FIRST if found.get(status))
    total = sum(found.values())
    words = ", ".join(f"{count:,} {status}" for status, count in found.items())
    strength = 1 + min(3, round(3 * total / most))
    return Cell((at.astimezone(UTC).date() - first).days, at.astimezone(UTC).hour, worst, strength, total, at, words)


# --- the timeline of many jobs ---


class ChartMark(NamedTuple):
    left: float
    width: float
    status: str
    runs: int
    sample: UUID | None
    at: datetime


class Axis(NamedTuple):
    since: datetime
    until: datetime
    steps: int

    @property
    def step(self) -> timedelta:
        return (self.until - self.since) / self.steps

    def place(self, moment: datetime) -> float:
        return (moment - self.since) / (self.until - self.since) * 100

    def step_of(self, moment: datetime) -> int:
        return (moment - self.since) // self.step

    def start_of(self, step: int) -> datetime:
        return self.since + step * self.step


class DueStep(NamedTuple):
    """A step of the axis with due ticks: the last of them, and its status if no run is recorded: scheduled, pending
    (due and not fired yet), paused, or unaccounted (the cursor has passed it)."""

    step: int
    at: datetime
    status: str


def due_steps(
    segments: Iterable[LedgerSegment], next_tick: datetime | None, axis: Axis, now: datetime
) -> list[DueStep]:
    """One tick per step is enough to draw it: the last, because a cursor that has passed it has passed the others."""
    found: dict[int, DueStep] = {}
    for segment in segments:
        if segment.optional:
            continue
        after = max(axis.since - MICROSECOND, segment.since)
        until = axis.until if segment.until is None else min(axis.until, segment.until + MICROSECOND)
        while (tick := segment.schedule.next_after(after)) is not None and tick < until:
            step = axis.step_of(tick)
            end = min(axis.start_of(step + 1), until) - MICROSECOND
            last = segment.schedule.latest(tick - MICROSECOND, end) or tick
            found[step] = DueStep(step, last, _due_status(segment, last, next_tick, now))
            after = end
    return sorted(found.values())


def _due_status(segment: LedgerSegment, tick: datetime, next_tick: datetime | None, now: datetime) -> str:
    if segment.paused and segment.until is None:
        return "paused"
    if tick > now:
        return "scheduled"
    return "pending" if next_tick is not None and tick >= next_tick else "unaccounted"


def lane(
    steps: Iterable[TimelineStep], due: Sequence[DueStep], axis: Axis, read_since: datetime | None = None
) -> list[ChartMark]:
    """One mark for each step with a due or recorded tick, with the worst status in it. A step without a mark had no due
    tick. Ticks before `read_since` were not read or are no longer stored, so they never count as unaccounted."""
    found: dict[int, dict[str, tuple[int, UUID | None]]] = defaultdict(dict)
    for each in steps:
        for step in _covered(each, due, axis):
            count, _ = found[step].get(each.status, (0, None))
            found[step][each.status] = (count + (each.runs if each.until is None else 1), each.sample)
    for each_due in due:
        if each_due.step in found and each_due.status != "scheduled":
            continue
        unread = read_since is not None and each_due.at < read_since
        status = "unread" if unread and each_due.status == "unaccounted" else each_due.status
        found[each_due.step].setdefault(status, (1, None))
    return list(_marks(found, steps_per_mark([each.step for each in due]), axis))


def _covered(each: TimelineStep, due: Sequence[DueStep], axis: Axis) -> Iterable[int]:
    """The steps that a row covers: its own, or all with a due tick up to the end of its range."""
    if each.until is None:
        return [each.step]
    last = axis.step_of(each.until)
    covered = [one.step for one in due if each.step <= one.step <= last]
    return covered if covered or each.step < 0 else [each.step]


def steps_per_mark(steps: Sequence[int]) -> int:
    """How many steps share a mark, so that ticks that come every few steps make an even band. With steps of 20 seconds,
    a tick per minute would otherwise look like gaps although none was missed."""
    apart = [later - earlier for earlier, later in pairwise(steps)]
    near = [distance for distance in apart if distance <= MAX_STEPS_PER_MARK]
    if not near or any(MAX_STEPS_PER_MARK < distance < 3 * MAX_STEPS_PER_MARK for distance in apart):
        return 1
    return max(near)


def _marks(found: Mapping[int, Mapping[str, tuple[int, UUID | None]]], size: int, axis: Axis) -> Iterator[ChartMark]:
    """Grouped from a fixed instant, so that marks keep their ticks while the axis moves."""
    base = round(axis.since.timestamp() / axis.step.total_seconds())
    marks: dict[int, dict[str, tuple[int, UUID | None]]] = defaultdict(dict)
    for step, statuses in sorted(found.items()):
        if 0 <= step < axis.steps:
            mark = marks[(base + step) // size]
            for status, (count, sample) in statuses.items():
                mark[status] = (mark.get(status, (0, None))[0] + count, sample)
    for number, statuses in sorted(marks.items()):
        low, high = max(number * size - base, 0), min((number + 1) * size - base, axis.steps)
        worst = next(status for status in WORST_FIRST if status in statuses)
        total = sum(count for count, _ in statuses.values())
        left, width = low / axis.steps * 100, (high - low) / axis.steps * 100
        yield ChartMark(round(left, 3), round(width, 3), worst, total, statuses[worst][1], axis.start_of(low))


def clock_marks(axis: Axis, limit: int = 8) -> list[tuple[float, datetime]]:
    """Axis labels at round clock times: minutes, hours or days."""
    length = axis.until - axis.since
    for size in (timedelta(minutes=n) for n in (5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880)):
        if length / size <= limit:
            break
    first = axis.since.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    count = int((axis.until - first) / size) + 1
    moments = [first + n * size for n in range(count)]
    return [(round(axis.place(at), 3), at) for at in moments if axis.since <= at < axis.until]
