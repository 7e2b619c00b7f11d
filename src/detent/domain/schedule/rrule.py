"""The wall times of a recurrence rule: the days come from dateutil, the times of a day are worked out here."""

from __future__ import annotations

import functools
import itertools
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from detent.domain.schedule.errors import ScheduleError
from detent.domain.schedule.rrule_expand import DAY_SECONDS, FREQ_DAYS, days_from, expand, restart, to_seconds
from detent.domain.schedule.rrule_parse import LATEST, RecurrenceRule

BLOCK = 64


class RuleWalls:
    """The wall times of a rule, with its RDATEs and without its EXDATEs."""

    def __init__(self, rule: RecurrenceRule) -> None:
        self.rule = rule
        self.real_time = rule.freq in ("HOURLY", "MINUTELY")
        self.base = _Counted(rule) if rule.count is not None else _endless(rule)
        self.exclude = frozenset(map(to_seconds, rule.exclude))
        self.include = sorted(map(to_seconds, rule.include))

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

    def next_wall(self, wall: int) -> int | None:
        found = self.base.next_wall(wall)
        while found is not None and found in self.exclude:
            found = self.base.next_wall(found + 1)
        index = bisect_left(self.include, wall)
        while index < len(self.include) and self.include[index] in self.exclude:
            index += 1
        if index < len(self.include) and (found is None or self.include[index] < found):
            return self.include[index]
        return found

    def prev_wall(self, wall: int) -> int | None:
        found = self.base.prev_wall(wall)
        while found is not None and found in self.exclude:
            found = self.base.prev_wall(found - 1)
        index = bisect_right(self.include, wall) - 1
        while index >= 0 and self.include[index] in self.exclude:
            index -= 1
        if index >= 0 and (found is None or self.include[index] > found):
            return self.include[index]
        return found

    def count_walls(self, low: int, high: int) -> int:
        count = self.base.count_walls(low, high)
        for wall in self.exclude:
            if low <= wall < high and self.base.next_wall(wall) == wall:
                count -= 1
        for wall in self.include:
            if low <= wall < high and wall not in self.exclude and self.base.next_wall(wall) != wall:
                count += 1
        return count


class _Walls(ABC):
    """A sequence of wall times of which a stretch is remembered."""

    def __init__(self, rule: RecurrenceRule) -> None:
        self.rule = rule
        self.first = to_seconds(rule.start)
        self.until = to_seconds(rule.until or LATEST)
        # One value, replaced as a whole: threads that ask at the same time never see half of another's stretch.
        self._stretch: tuple[int, list[int]] = (0, [])

    @abstractmethod
    def walls_from(self, wall: int) -> Iterator[int]:
        """All matches at or after `wall`, in order."""

    def stride(self) -> int:
        """Roughly how far apart matches are; only the speed of going backwards depends on it."""
        return FREQ_DAYS[self.rule.freq] * self.rule.interval * DAY_SECONDS

    def next_wall(self, wall: int) -> int | None:
        if wall > self.until:
            return None
        wall = max(wall, self.first)
        low, block = self._stretch
        if not block or not low <= wall <= block[-1]:
            block = list(itertools.islice(self.walls_from(wall), BLOCK))
            if not block:
                return None
            self._stretch = wall, block
        return block[bisect_left(block, wall)]

    def prev_wall(self, wall: int) -> int | None:
        wall = min(wall, self.until)
        span = self.stride() * 2
        while wall >= self.first:
            low = max(wall - span, self.first)
            found = None
            for candidate in self.walls_from(low):
                if candidate > wall:
                    break
                found = candidate
            if found is not None or low == self.first:
                return found
            span *= 4
        return None

    def count_walls(self, low: int, high: int) -> int:
        return sum(1 for _ in itertools.takewhile(lambda wall: wall < high, self.walls_from(low)))


class _Chosen(_Walls):
    """BYSETPOS over more than a day: only all times of a period together say which are chosen."""

    def walls_from(self, wall: int) -> Iterator[int]:
        wall = max(wall, self.first)
        start = restart(self.rule, self.rule.start, wall)
        for found in expand(self.rule, start, self.rule.freq, self.rule.interval):
            if found > self.until:
                return
            if found >= wall:
                yield found


class _Daily(_Walls):
    """Days, and the same times on each of them."""

    def __init__(self, rule: RecurrenceRule) -> None:
        super().__init__(rule)
        hours, minutes, seconds = (rule.numbers(name) for name in ("BYHOUR", "BYMINUTE", "BYSECOND"))
        times = [hour * 3600 + minute * 60 + second for hour in hours for minute in minutes for second in seconds]
        self._times = choose(times, rule.numbers("BYSETPOS"))

    def times_of(self, day: int) -> list[int]:
        return self._times

    def ever(self) -> bool:
        return bool(self._times)

    def _days(self, low: int) -> Iterator[tuple[int, list[int]]]:
        if not self.ever():
            return
        for day in days_from(self.rule, low - low % DAY_SECONDS):
            if day > self.until:
                return
            yield day, self.times_of(day)

    def walls_from(self, wall: int) -> Iterator[int]:
        wall = max(wall, self.first)
        for day, times in self._days(wall):
            for second in times[bisect_left(times, wall - day) :]:
                if day + second > self.until:
                    return
                yield day + second

    def count_walls(self, low: int, high: int) -> int:
        low, high = max(low, self.first), min(high, self.until + 1)
        if high <= low:
            return 0
        days = itertools.takewhile(lambda pair: pair[0] < high, self._days(low))
        return sum(bisect_left(times, high - day) - bisect_left(times, low - day) for day, times in days)


class _SubDaily(_Daily):
    """FREQ=HOURLY and MINUTELY: INTERVAL runs on over midnight, so each day has times of its own."""

    def __init__(self, rule: RecurrenceRule) -> None:
        _Walls.__init__(self, rule)
        self.unit = 3600 if rule.freq == "HOURLY" else 60
        self.step = rule.interval * self.unit
        self.phase = self.first - self.first % self.unit
        minutes = rule.numbers("BYMINUTE") if self.unit == 3600 else (0,)
        tails = [minute * 60 + second for minute in minutes for second in rule.numbers("BYSECOND")]
        # Here BYSETPOS chooses within one hour or minute.
        self.tails = choose(tails, rule.numbers("BYSETPOS"))
        self.times_at = functools.lru_cache(maxsize=256)(self._times_at)

    def stride(self) -> int:
        return max(self.step, DAY_SECONDS)

    def _times_at(self, offset: int) -> list[int]:
        """The times of a day on which the first whole interval begins at `offset` seconds."""
        hours = self.rule.numbers("BYHOUR") or range(24)
        minutes = self.rule.numbers("BYMINUTE") or range(60)
        times: list[int] = []
        for begin in range(offset, DAY_SECONDS, self.step):
            if begin // 3600 in hours and (self.unit == 3600 or begin // 60 % 60 in minutes):
                times.extend(begin + tail for tail in self.tails)
        return times

    def times_of(self, day: int) -> list[int]:
        return self.times_at((self.phase - day) % self.step)

    def ever(self) -> bool:
        """Whether any day has a time at all: 'every 24 hours from 9:00, at hour 8' has none."""
        return self._ever

    @functools.cached_property
    def _ever(self) -> bool:
        days = range(0, self.step // self.unit * DAY_SECONDS, DAY_SECONDS)
        return any(self.times_of(day) for day in days)


def choose(times: list[int], positions: tuple[int, ...]) -> list[int]:
    """The times at these positions, counted from 1, or from the end when negative; all without positions."""
    if not positions:
        return times
    indexes = {position - 1 if position > 0 else len(times) + position for position in positions}
    return [times[index] for index in sorted(indexes) if 0 <= index < len(times)]


def _endless(rule: RecurrenceRule) -> _Walls:
    if rule.freq in ("HOURLY", "MINUTELY"):
        return _SubDaily(rule)
    if rule.numbers("BYSETPOS") and rule.freq != "DAILY":
        return _Chosen(rule)
    return _Daily(rule)


class _Counted:
    """A rule with COUNT: its whole, bounded list."""

    def __init__(self, rule: RecurrenceRule) -> None:
        self._endless = _endless(rule)
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
