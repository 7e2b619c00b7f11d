"""One schedule of any kind: the type that the other packages use."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

from detent.domain.schedule.cron_fields import uses_hash
from detent.domain.schedule.dst import Resolver
from detent.domain.schedule.instants import HIGHEST_MS, LOWEST_MS, from_ms, to_ms
from detent.domain.schedule.interval import IntervalTicks
from detent.domain.schedule.memo import IDENTITY, MEMO
from detent.domain.schedule.stagger import stagger
from detent.domain.schedule.steps import Steps
from detent.domain.schedule.zones import Zone

if TYPE_CHECKING:
    from detent.domain.schedule.preview import SchedulePreview

MISSING = object()
NEVER = "never"
COMBINED = "combined"
DELAY = "delay"
SEARCHED = frozenset({"cron", "rrule", COMBINED})
"""Kinds whose next tick is searched for; that of the others takes one addition."""
NO_LIMIT = Steps()
MONTH_MS = 30 * 86_400_000
MONTH_STEPS = 10
"""Most of it for the changes of the zone in that month, which take 13 microseconds to find."""
MAX_PARSED = 8_192
PARSED: dict[tuple[str, tuple[object, ...]], Schedule] = {}
"""Expressions without `H` mean the same for every job, and most jobs have one that was parsed before."""


class TickSource(Protocol):
    """The ticks of one kind of schedule, without bounds, in milliseconds."""

    def next(self, instant: int) -> int | None:
        """The first tick strictly after `instant`."""

    def latest(self, since: int, until: int) -> int | None:
        """The last tick in [since, until]."""

    def count(self, after: int, until: int) -> int:
        """How many ticks in (after, until]."""

    def seen_from(self, tick: int) -> TickSource:
        """The same ticks, for computations from `tick` on."""


class WallTicks:
    """Cron and RRULE: whole seconds on a wall clock, resolved in a zone."""

    __slots__ = ("resolver",)

    def __init__(self, resolver: Resolver) -> None:
        self.resolver = resolver

    def seen_from(self, tick: int) -> WallTicks:
        return self

    def next(self, instant: int) -> int | None:
        tick = self.resolver.next(instant // 1000 + 1)
        return None if tick is None else tick * 1000

    def latest(self, since: int, until: int) -> int | None:
        tick = self.resolver.prev(until // 1000, -(-since // 1000))
        return None if tick is None else tick * 1000

    def count(self, after: int, until: int) -> int:
        return self.resolver.count(after // 1000 + 1, until // 1000 + 1)


class OnceTicks:
    """One instant, or none when the schedule came from a shared row."""

    __slots__ = ("at",)

    def __init__(self, at: int | None) -> None:
        self.at = at

    def seen_from(self, tick: int) -> OnceTicks:
        return self

    def next(self, instant: int) -> int | None:
        return self.at if self.at is not None and self.at > instant else None

    def latest(self, since: int, until: int) -> int | None:
        return self.at if self.at is not None and since <= self.at <= until else None

    def count(self, after: int, until: int) -> int:
        return 1 if self.at is not None and after < self.at <= until else 0


class NeverTicks:
    """No tick at all: the schedule of a task, whose runs are enqueued."""

    __slots__ = ()

    def seen_from(self, tick: int) -> NeverTicks:
        return self

    def next(self, instant: int) -> int | None:
        return None

    def latest(self, since: int, until: int) -> int | None:
        return None

    def count(self, after: int, until: int) -> int:
        return 0


class DelayTicks(NeverTicks):
    """A delay that counts from the end of the run before. Its ticks are not known ahead, so no question about them has
    an answer; where the cursor of such a job stands is decided with the runs at hand (`scheduler/fixed_delay.py`)."""

    __slots__ = ("every",)

    def __init__(self, every: int) -> None:
        self.every = every


class Schedule:
    """When a job ticks. Immutable; reads no clock; all datetimes are aware, answers are in UTC.

    `stored` is the canonical form. Equal schedules of different jobs have equal stored forms, so it holds
    neither the anchor of an interval nor the instant of a one-off: those belong to the job.
    """

    __slots__ = ("_ends", "_identity", "_starts", "_steps", "_stored", "_ticks", "kind", "zone")

    def __init__(
        self, kind: str, ticks: TickSource, zone: Zone, stored: dict[str, Any], steps: Steps = NO_LIMIT
    ) -> None:
        self.kind = kind
        self._steps = steps
        self.zone = zone
        self._ticks = ticks
        self._stored = stored
        self._starts = to_ms(datetime.fromisoformat(stored["starts_at"])) if "starts_at" in stored else LOWEST_MS
        self._ends = to_ms(datetime.fromisoformat(stored["ends_at"])) if "ends_at" in stored else HIGHEST_MS
        self._identity = 0

    @staticmethod
    def parse(
        spec: str | Mapping[str, Any] | None,
        *,
        timezone: str = "UTC",
        anchor: datetime | None = None,
        hash_key: str | None = None,
        dst_gap: str = "run",
        dst_overlap: str = "first",
        day_match: str | None = None,
        dialect: str = "unix",
        starts_at: datetime | None = None,
        ends_at: datetime | None = None,
        jitter_seconds: float = 0,
        stagger_ms: int | None = None,
        zone_rules: str | None = None,
        steps: Steps = NO_LIMIT,
        new: bool = True,
    ) -> Schedule:
        """Reads any form of schedule; a ScheduleError says what is wrong with it and what to write. None never ticks.
        `stagger_ms` and `zone_rules`: `domain/schedule/stagger.py` and `zones.py`.
        With `steps`, that and every later question to this schedule is refused beyond their limit. One that is not
        `new` is not searched for a first tick again."""
        policy = (
            *(timezone, dst_gap, dst_overlap, day_match, dialect, starts_at, ends_at, jitter_seconds, stagger_ms),
            zone_rules,
        )
        if isinstance(spec, str):
            found = PARSED.get((spec, policy))
            if found is not None:
                return found.metered(steps)
        from detent.domain.schedule.parse import ScheduleOptions, parse_schedule

        options = ScheduleOptions(timezone, anchor, hash_key, *policy[1:])
        schedule = parse_schedule(spec, options, Steps() if steps is NO_LIMIT else steps, new)
        if schedule.kind == "cron" and isinstance(spec, str) and not uses_hash(spec):
            if len(PARSED) >= MAX_PARSED:
                PARSED.clear()
            PARSED[spec, policy] = schedule
        return schedule.metered(steps)

    def metered(self, steps: Steps) -> Schedule:
        """The same schedule, whose questions cost these steps."""
        if steps is NO_LIMIT:
            return self
        return Schedule(self.kind, self._ticks, self.zone, self._stored, steps)

    def start_question(self) -> None:
        """The limit of its steps applies to each question by itself."""
        self._steps.spent = 0

    @staticmethod
    def from_stored(stored: Mapping[str, Any]) -> Schedule:
        """The schedule of a stored row: what `to_stored` gave."""
        from detent.domain.schedule.parse import schedule_from_stored

        return schedule_from_stored(stored)

    def to_stored(self) -> dict[str, Any]:
        return dict(self._stored)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Schedule):
            return NotImplemented
        return self._stored == other._stored and self.anchor == other.anchor and self.at == other.at

    def __hash__(self) -> int:
        return hash(self._canonical())

    def _canonical(self) -> tuple[tuple[str, object], ...]:
        # Both ways of making a schedule fill in the stored form in the same order.
        if self.kind == COMBINED:
            return (("kind", COMBINED), ("stored", repr(self._stored)))  # its values are lists
        return tuple(self._stored.items())

    def __repr__(self) -> str:
        return f"Schedule({self._stored!r})"

    @property
    def timezone(self) -> str:
        return self.zone.name

    @property
    def never(self) -> bool:
        """Whether it belongs to a task: it has no tick at any time."""
        return self.kind == NEVER

    @property
    def delay(self) -> timedelta | None:
        """How long after the end of the run before the next tick is; None: ticks come at times of their own."""
        return timedelta(milliseconds=self._ticks.every) if isinstance(self._ticks, DelayTicks) else None

    @property
    def jitter_seconds(self) -> float:
        return float(self._stored.get("jitter_seconds", 0))

    @property
    def spreads(self) -> bool:
        """Whether its jobs fire later than they tick, by jitter or by a staggered release."""
        return "jitter_seconds" in self._stored or "stagger_ms" in self._stored

    @property
    def staggered(self) -> bool:
        return "stagger_ms" in self._stored

    @property
    def at(self) -> datetime | None:
        """The instant of a one-off."""
        if isinstance(self._ticks, OnceTicks) and self._ticks.at is not None:
            return from_ms(self._ticks.at)
        return None

    @property
    def anchor(self) -> datetime | None:
        """The anchor of an interval."""
        if isinstance(self._ticks, IntervalTicks) and not self._ticks.floating:
            return from_ms(self._ticks.anchor)
        return None

    @property
    def ticks(self) -> TickSource:
        return self._ticks

    def anchored(self, moment: datetime) -> Schedule:
        """The same schedule with the job's own time restored: the anchor of an interval, the instant of a one-off."""
        if isinstance(self._ticks, IntervalTicks):
            ticks: TickSource = IntervalTicks(self._ticks.every, to_ms(moment))
        elif isinstance(self._ticks, OnceTicks):
            ticks = OnceTicks(to_ms(moment))
        else:
            return self
        return Schedule(self.kind, ticks, self.zone, self._stored, self._steps)

    def next_after(self, moment: datetime) -> datetime | None:
        """The first tick strictly after `moment`; None when there is none."""
        if not self._identity:
            if self._steps is not NO_LIMIT or self.kind not in SEARCHED:
                return self._compute_next(moment)  # a limit counts every step; and others are cheaper than remembering
            self._identity = IDENTITY.number(self._canonical())
        key = (self._identity, moment)
        found = MEMO.young.get(key, MISSING)
        if found is not MISSING:
            return found  # type: ignore[return-value]  # the sentinel is the only value that is not an answer
        answer = MEMO.old[key] if key in MEMO.old else self._compute_next(moment)
        MEMO.put(key, answer)
        return answer

    def _compute_next(self, moment: datetime) -> datetime | None:
        asked = to_ms(moment)
        instant = max(asked, self._starts - 1)
        if instant >= self._ends:
            return None
        tick = self._ticks.seen_from(asked).next(instant)
        if self._steps is not NO_LIMIT:
            self._spend(instant, tick)
        return None if tick is None or tick > self._ends else from_ms(tick)

    def _spend(self, instant: int, reached: int | None) -> None:
        """A step for the answer, and some for each month that was searched."""
        if reached is None or self.kind not in SEARCHED:
            reached = instant
        self._steps.spend(1 + abs(reached - instant) // MONTH_MS * MONTH_STEPS)

    def at_fixed_local_time(self, tick: datetime) -> bool:
        """Whether a tick comes at a time of the wall clock, and from no member that counts real time."""
        instant = to_ms(tick)
        members = getattr(self._ticks, "members", (self,))
        having = [each.ticks for each in members if each is self or each.ticks.latest(instant, instant) is not None]
        return all(isinstance(ticks, WallTicks) and not ticks.resolver.real_time for ticks in having)

    def first_after(self, now: datetime) -> datetime | None:
        """The first tick of a job that is registered at `now`, or that is resumed or changed then."""
        if isinstance(self._ticks, DelayTicks):
            return self.after_end(now)
        return self.next_after(now)

    def after_end(self, end: datetime) -> datetime | None:
        """The tick of a delay that counts from `end`: not before the start of the schedule, and none after its end."""
        assert isinstance(self._ticks, DelayTicks)
        ended = _ceil_ms(end)
        tick = self._starts if ended < self._starts else ended + self._ticks.every
        return None if tick > self._ends else from_ms(tick)

    def latest(self, since: datetime, until: datetime) -> datetime | None:
        """The last tick in [since, until]."""
        asked = _ceil_ms(since)
        low, high = max(asked, self._starts), min(to_ms(until), self._ends)
        if low > high:
            return None
        tick = self._ticks.seen_from(asked).latest(low, high)
        if self._steps is not NO_LIMIT:
            self._spend(high, tick)
        return None if tick is None else from_ms(tick)

    def between(self, after: datetime, until: datetime, limit: int) -> list[datetime]:
        """At most `limit` ticks in (after, until], oldest first."""
        ticks: list[datetime] = []
        tick = self._compute_next(after)
        while tick is not None and tick <= until and len(ticks) < limit:
            ticks.append(tick)
            tick = self._compute_next(tick)
        return ticks

    def count_between(self, after: datetime, until: datetime) -> int:
        """How many ticks in (after, until], without walking through them."""
        asked = to_ms(after)
        low, high = max(asked, self._starts - 1), min(to_ms(until), self._ends)
        if self._steps is not NO_LIMIT and low < high:
            self._spend(low, high)
        return self._ticks.seen_from(asked).count(low, high) if low < high else 0

    def jitter(self, job_key: int, tick: datetime) -> timedelta:
        """How much later than its tick a run is released, by jitter or staggered: the same on every node, in every
        replay.

        It stays below the distance to the next tick, so that runs keep the order of their ticks.
        """
        if not self.spreads:
            return timedelta(0)
        following = self.next_after(tick)
        if self.staggered:
            delay = stagger(job_key, self._stored["stagger_ms"])
            return delay if following is None else min(delay, following - tick - timedelta(milliseconds=1))
        widest = int(self.jitter_seconds * 1000)
        if following is not None:
            widest = min(widest, to_ms(following) - to_ms(tick) - 1)
        digest = hashlib.blake2b(f"{job_key}:{to_ms(tick)}".encode(), digest_size=8).digest()
        return timedelta(milliseconds=int.from_bytes(digest, "big") % (widest + 1))

    def preview(self, after: datetime, count: int) -> SchedulePreview:
        """The next `count` ticks, with what DST does to them."""
        from detent.domain.schedule.preview import preview

        return preview(self, after, count)

    def describe(self) -> str:
        """The schedule in plain English."""
        from detent.domain.schedule.describe import describe

        return describe(self)

    def bounds(self) -> tuple[str | None, str | None]:
        return self._stored.get("starts_at"), self._stored.get("ends_at")


def _ceil_ms(moment: datetime) -> int:
    whole = to_ms(moment)
    return whole + 1 if moment.microsecond % 1000 else whole
