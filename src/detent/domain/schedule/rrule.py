"""The wall times of a recurrence rule: the days come from rrule_expand, the times of a day are worked out here."""

from __future__ import annotations

import functools
import itertools
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from math import gcd

from detent.domain.schedule.errors import ScheduleError
from detent.domain.schedule.rrule_expand import DAY_SECONDS, FREQ_DAYS, RuleDays, to_seconds
from detent.domain.schedule.rrule_parse import LATEST, RecurrenceRule
from detent.domain.schedule.steps import Steps

BLOCK = 64
BLOCK_STEPS = 256
"""A stretch that is remembered ends after so many times, or when finding them has cost so many steps."""


class RuleWalls:
    """The wall times of a rule, with its RDATEs and without its EXDATEs."""

    def __init__(self, rule: RecurrenceRule, steps: Steps) -> None:
        self.rule = rule
        self.real_time = rule.freq in ("HOURLY", "MINUTELY")
        self.base = _Counted(rule, steps) if rule.count is not None else _endless(rule, steps)
        self.exclude = frozenset(map(to_seconds, rule.exclude))
        self.excluded = sorted(self.exclude)
        self.include = sorted(set(map(to_seconds, rule.include)) - self.exclude)

    @property
    def every_hour(self) -> bool:
        """Whether the rule has a time in each hour of a day on which it has any."""
        rule = self.rule
        steady = rule.freq == "MINUTELY" or (rule.freq == "HOURLY" and rule.interval == 1)
        return steady and not rule.numbers("BYHOUR")

    def check_possible(self) -> None:
        if self.next_wall(to_seconds(self.rule.start)) is None:
            raise ScheduleError(
                f"The rule {self.rule.text().splitlines()[1]!r} never comes to a time that exists; "
                "check its BY parts, its EXDATEs and that UNTIL is after DTSTART."
            )
        # A tick before excluded dates is followed by a search beyond all of them: that must be affordable, too.
        for wall in self.excluded:
            self.base.next_wall(wall + 1)

    def next_wall(self, wall: int) -> int | None:
        found = self.base.next_wall(wall)
        while found is not None and found in self.exclude:
            found = self.base.next_wall(found + 1)
        index = bisect_left(self.include, wall)
        if index < len(self.include) and (found is None or self.include[index] < found):
            return self.include[index]
        return found

    def prev_wall(self, wall: int) -> int | None:
        found = self.base.prev_wall(wall)
        while found is not None and found in self.exclude:
            found = self.base.prev_wall(found - 1)
        index = bisect_right(self.include, wall) - 1
        if index >= 0 and (found is None or self.include[index] > found):
            return self.include[index]
        return found

    def count_walls(self, low: int, high: int) -> int:
        count = self.base.count_walls(low, high)
        for wall in _within(self.excluded, low, high):
            if self.base.prev_wall(wall) == wall:
                count -= 1
        for wall in _within(self.include, low, high):
            if self.base.prev_wall(wall) != wall:
                count += 1
        return count


def _within(walls: list[int], low: int, high: int) -> list[int]:
    return walls[bisect_left(walls, low) : bisect_left(walls, high)]


class _Walls(ABC):
    """A sequence of wall times of which a stretch is remembered."""

    def __init__(self, rule: RecurrenceRule, steps: Steps) -> None:
        self.rule = rule
        self.steps = steps
        self.days = RuleDays(rule, steps)
        self.first = to_seconds(rule.start)
        self.until = to_seconds(rule.until or LATEST)
        # One value, replaced as a whole: threads that ask at the same time never see half of another's stretch.
        self._stretch: tuple[int, list[int]] = (0, [])

    @abstractmethod
    def walls_from(self, wall: int) -> Iterator[int]:
        """All matches at or after `wall`, in order."""

    @abstractmethod
    def last_in(self, low: int, high: int) -> int | None:
        """The last match in [low, high]."""

    def stride(self) -> int:
        """Roughly how far apart matches are; only the speed of going backwards depends on it."""
        return FREQ_DAYS[self.rule.freq] * self.rule.interval * DAY_SECONDS

    def next_wall(self, wall: int) -> int | None:
        if wall > self.until:
            return None
        wall = max(wall, self.first)
        low, block = self._stretch
        if not block or not low <= wall <= block[-1]:
            block = self._load(wall)
            if not block:
                return None
            self._stretch = wall, block
        return block[bisect_left(block, wall)]

    def _load(self, wall: int) -> list[int]:
        block: list[int] = []
        enough = self.steps.spent + BLOCK_STEPS
        for found in self.walls_from(wall):
            block.append(found)
            if len(block) == BLOCK or self.steps.spent > enough:
                break
        return block

    def prev_wall(self, wall: int) -> int | None:
        wall = min(wall, self.until)
        span = self.stride() * 2
        while wall >= self.first:
            low = max(wall - span, self.first)
            found = self.last_in(low, wall)
            if found is not None or low == self.first:
                return found
            span *= 4
        return None

    def count_walls(self, low: int, high: int) -> int:
        return sum(1 for _ in itertools.takewhile(lambda wall: wall < high, self.walls_from(low)))


class _Chosen(_Walls):
    """BYSETPOS over more than a day: only all times of a period together say which are chosen."""

    def __init__(self, rule: RecurrenceRule, steps: Steps) -> None:
        super().__init__(rule, steps)
        self._times = _times_of(rule)
        self._positions = rule.numbers("BYSETPOS")

    def walls_from(self, wall: int) -> Iterator[int]:
        wall = max(wall, self.first)
        for days in self.days.periods(wall // DAY_SECONDS):
            for found in self._choose(days):
                if found > self.until:
                    return
                if found >= wall:
                    yield found

    def last_in(self, low: int, high: int) -> int | None:
        found = None
        for found_next in itertools.takewhile(lambda wall: wall <= high, self.walls_from(low)):
            found = found_next
        return found

    def _choose(self, days: list[int]) -> list[int]:
        self.steps.spend(len(self._positions))
        times, size = self._times, len(days) * len(self._times)
        indexes = {position - 1 if position > 0 else size + position for position in self._positions}
        return [
            days[index // len(times)] * DAY_SECONDS + times[index % len(times)]
            for index in sorted(indexes)
            if 0 <= index < size
        ]


class _Daily(_Walls):
    """Days, and the same times on each of them."""

    def __init__(self, rule: RecurrenceRule, steps: Steps) -> None:
        super().__init__(rule, steps)
        self._times = choose(_times_of(rule), rule.numbers("BYSETPOS"))

    def times_of(self, day: int) -> list[int]:
        return self._times

    def ever(self) -> bool:
        return bool(self._times)

    def _days(self, low: int) -> Iterator[tuple[int, list[int]]]:
        """The midnights of days from that of `low` on, each with its times."""
        if not self.ever():
            return
        for number in self.days.since(low // DAY_SECONDS):
            day = number * DAY_SECONDS
            if day > self.until:
                return
            self.steps.spend()
            yield day, self.times_of(day)

    def walls_from(self, wall: int) -> Iterator[int]:
        wall = max(wall, self.first)
        for day, times in self._days(wall):
            for second in times[bisect_left(times, wall - day) :]:
                if day + second > self.until:
                    return
                yield day + second

    def last_in(self, low: int, high: int) -> int | None:
        found = None
        for day, times in itertools.takewhile(lambda pair: pair[0] <= high, self._days(low)):
            index = bisect_right(times, high - day) - 1
            if index >= 0 and day + times[index] >= low:
                found = day + times[index]
        return found

    def count_walls(self, low: int, high: int) -> int:
        low, high = max(low, self.first), min(high, self.until + 1)
        if high <= low:
            return 0
        days = itertools.takewhile(lambda pair: pair[0] < high, self._days(low))
        return sum(bisect_left(times, high - day) - bisect_left(times, low - day) for day, times in days)


class _SubDaily(_Daily):
    """FREQ=HOURLY and MINUTELY: INTERVAL runs on over midnight, so each day has times of its own."""

    def __init__(self, rule: RecurrenceRule, steps: Steps) -> None:
        _Walls.__init__(self, rule, steps)
        self.unit = 3600 if rule.freq == "HOURLY" else 60
        self.step = rule.interval * self.unit
        self.phase = self.first - self.first % self.unit
        self.hours = frozenset(rule.numbers("BYHOUR") or range(24))
        self.minutes = frozenset(range(60) if self.unit == 3600 else rule.numbers("BYMINUTE") or range(60))
        minutes = rule.numbers("BYMINUTE") if self.unit == 3600 else (0,)
        tails = [minute * 60 + second for minute in minutes for second in rule.numbers("BYSECOND")]
        # Here BYSETPOS chooses within one hour or minute.
        self.tails = choose(tails, rule.numbers("BYSETPOS"))
        self.times_at = functools.lru_cache(maxsize=256)(self._times_at)

    def stride(self) -> int:
        return max(self.step, DAY_SECONDS)

    def _times_at(self, offset: int) -> list[int]:
        """The times of a day on which the first whole interval begins at `offset` seconds."""
        begins = filter(self._allows, range(offset, DAY_SECONDS, self.step))
        return [begin + tail for begin in begins for tail in self.tails]

    def _allows(self, begin: int) -> bool:
        return begin // 3600 in self.hours and begin // 60 % 60 in self.minutes

    def times_of(self, day: int) -> list[int]:
        return self.times_at((self.phase - day) % self.step)

    def ever(self) -> bool:
        """Whether any day has a time at all: 'every 24 hours from 9:00, at hour 8' has none."""
        return self._ever

    @functools.cached_property
    def _ever(self) -> bool:
        # The intervals begin, on one day or another, at every multiple of this.
        common = gcd(self.step, DAY_SECONDS)
        return bool(self.tails) and any(map(self._allows, range(self.phase % common, DAY_SECONDS, common)))


def _times_of(rule: RecurrenceRule) -> list[int]:
    hours, minutes, seconds = (rule.numbers(name) for name in ("BYHOUR", "BYMINUTE", "BYSECOND"))
    return [hour * 3600 + minute * 60 + second for hour in hours for minute in minutes for second in seconds]


def choose(times: list[int], positions: tuple[int, ...]) -> list[int]:
    """The times at these positions, counted from 1, or from the end when negative; all without positions."""
    if not positions:
        return times
    indexes = {position - 1 if position > 0 else len(times) + position for position in positions}
    return [times[index] for index in sorted(indexes) if 0 <= index < len(times)]


def _endless(rule: RecurrenceRule, steps: Steps) -> _Walls:
    if rule.freq in ("HOURLY", "MINUTELY"):
        return _SubDaily(rule, steps)
    if rule.numbers("BYSETPOS") and rule.freq != "DAILY":
        return _Chosen(rule, steps)
    return _Daily(rule, steps)


class _Counted:
    """A rule with COUNT: its whole, bounded list."""

    def __init__(self, rule: RecurrenceRule, steps: Steps) -> None:
        self._endless = _endless(rule, steps)
        self._count = rule.count or 0

    @functools.cached_property
    def walls(self) -> list[int]:
        return list(itertools.islice(self._endless.walls_from(self._endless.first), self._count))

    def next_wall(self, wall: int) -> int | None:
        index = bisect_left(self.walls, wall)
        return self.walls[index] if index < len(self.walls) else None

    def prev_wall(self, wall: int) -> int | None:
        index = bisect_right(self.walls, wall) - 1
        return self.walls[index] if index >= 0 else None

    def count_walls(self, low: int, high: int) -> int:
        return max(bisect_left(self.walls, high) - bisect_left(self.walls, low), 0)
