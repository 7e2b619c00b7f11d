"""The wall times of a recurrence rule.

python-dateutil expands the days of a rule. It always walks from DTSTART and never gives up before the year
9999, so three things keep it short:

- DTSTART is moved close to the time that is asked for (a whole number of intervals, which changes nothing);
- the rule is moved forward by a multiple of 400 years, after which the calendar repeats: the year 9999 is
  then never more than 500 years away, and a rule that matches no day ends there instead of running on;
- FREQ=HOURLY and MINUTELY only ask it for days; the times of a day are worked out here.
"""

from __future__ import annotations

import functools
import itertools
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from detent.schedule.errors import ScheduleError
from detent.schedule.rrule_parse import EPOCH, LATEST, WEEKDAY_NAMES, Rule

DAY_SECONDS = 86_400
CYCLE_YEARS = 400
CYCLE_SECONDS = 146_097 * DAY_SECONDS
NEAREST_END = 100
BLOCK = 64
FREQ_DAYS = {"DAILY": 1, "WEEKLY": 7, "MONTHLY": 31, "YEARLY": 366}


def to_seconds(wall: datetime) -> int:
    delta = wall - EPOCH
    return delta.days * DAY_SECONDS + delta.seconds


def to_wall(seconds: int) -> datetime:
    return EPOCH + timedelta(seconds=seconds)


class RuleWalls:
    """The wall times of a rule, with its RDATEs and without its EXDATEs."""

    def __init__(self, rule: Rule) -> None:
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

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.first = to_seconds(rule.start)
        self.until = to_seconds(rule.until or LATEST)
        self._block: list[int] = []
        self._block_low = 0

    @abstractmethod
    def walls_from(self, wall: int) -> Iterator[int]:
        """All matches at or after `wall`, in order."""

    def stride(self) -> int:
        """Roughly how far apart matches are; only the speed of going backwards depends on it."""
        return FREQ_DAYS.get(self.rule.freq, 1) * self.rule.interval * DAY_SECONDS

    def next_wall(self, wall: int) -> int | None:
        if wall > self.until:
            return None
        wall = max(wall, self.first)
        block = self._block
        if not block or not self._block_low <= wall <= block[-1]:
            block = list(itertools.islice(self.walls_from(wall), BLOCK))
            if not block:
                return None
            self._block, self._block_low = block, wall
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
        if high <= low:
            return 0
        return sum(1 for _ in itertools.takewhile(lambda wall: wall < high, self.walls_from(low)))


class _Coarse(_Walls):
    """FREQ=DAILY and longer: dateutil does it all."""

    def walls_from(self, wall: int) -> Iterator[int]:
        wall = max(wall, self.first)
        for found in _expand(self.rule, _restart(self.rule, wall), self.rule.freq, self.rule.interval):
            if found > self.until:
                return
            if found >= wall:
                yield found


class _SubDaily(_Walls):
    """FREQ=HOURLY and MINUTELY: days from dateutil, times by arithmetic."""

    def __init__(self, rule: Rule) -> None:
        super().__init__(rule)
        self.unit = 3600 if rule.freq == "HOURLY" else 60
        self.step = rule.interval * self.unit
        self.phase = self.first - self.first % self.unit
        self.tails = self._tails()
        self.times = functools.lru_cache(maxsize=256)(self._times)

    def _tails(self) -> list[int]:
        """Seconds into an hour or minute, after BYSETPOS, which chooses within that hour or minute."""
        minutes = self.rule.numbers("BYMINUTE") if self.unit == 3600 else (0,)
        tails = [minute * 60 + second for minute in minutes for second in self.rule.numbers("BYSECOND")]
        positions = self.rule.numbers("BYSETPOS")
        if not positions:
            return tails
        chosen = {position - 1 if position > 0 else len(tails) + position for position in positions}
        return [tails[index] for index in sorted(chosen) if 0 <= index < len(tails)]

    def _times(self, offset: int) -> list[int]:
        """The seconds of a day; `offset` is how far into the day the first whole interval begins."""
        hours = self.rule.numbers("BYHOUR") or range(24)
        minutes = self.rule.numbers("BYMINUTE") or range(60)
        times: list[int] = []
        for begin in range(offset, DAY_SECONDS, self.step):
            if begin // 3600 in hours and (self.unit == 3600 or begin // 60 % 60 in minutes):
                times.extend(begin + tail for tail in self.tails)
        return times

    def _times_of(self, day: int) -> list[int]:
        return self.times((self.phase - day) % self.step)

    def _days_from(self, day: int) -> Iterator[int]:
        filters = ("BYMONTH", "BYMONTHDAY", "BYYEARDAY")
        if not self.rule.weekdays and not any(self.rule.numbers(name) for name in filters):
            return iter(range(day, to_seconds(LATEST), DAY_SECONDS))
        return _expand(self.rule, to_wall(day), "DAILY", 1, days_only=True)

    def walls_from(self, wall: int) -> Iterator[int]:
        wall = max(wall, self.first)
        if not self.ever:
            return
        for day in self._days_from(wall - wall % DAY_SECONDS):
            times = self._times_of(day)
            for second in times[bisect_left(times, wall - day) :] if day < wall else times:
                if day + second > self.until:
                    return
                yield day + second

    def count_walls(self, low: int, high: int) -> int:
        low, high = max(low, self.first), min(high, self.until + 1)
        count = 0
        if high <= low or not self.ever:
            return 0
        for day in self._days_from(low - low % DAY_SECONDS):
            if day >= high:
                break
            times = self._times_of(day)
            count += bisect_left(times, high - day) - bisect_left(times, low - day)
        return count

    @functools.cached_property
    def ever(self) -> bool:
        """Whether any day has a time at all: 'every 24 hours from 9:00, at hour 8' has none."""
        offsets = {(self.phase - day * DAY_SECONDS) % self.step for day in range(self.step // self.unit)}
        return any(self.times(offset) for offset in offsets)


def _endless(rule: Rule) -> _Walls:
    return _SubDaily(rule) if rule.freq in ("HOURLY", "MINUTELY") else _Coarse(rule)


class _Counted:
    """A rule with COUNT: its whole, bounded list."""

    def __init__(self, rule: Rule) -> None:
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


def _restart(rule: Rule, wall: int) -> datetime:
    """A start in step with DTSTART, at least one whole period before `wall`."""
    start, target = rule.start, to_wall(wall)
    if rule.freq in ("DAILY", "WEEKLY"):
        stride = timedelta(days=FREQ_DAYS[rule.freq] * rule.interval)
        periods = (target - start) // stride - 1
        return start + periods * stride if periods > 0 else start
    stride_months = rule.interval * (12 if rule.freq == "YEARLY" else 1)
    months = (target.year - start.year) * 12 + target.month - start.month
    periods = months // stride_months - 1
    if periods <= 0:
        return start
    month = start.month - 1 if rule.freq == "MONTHLY" else 0
    index = start.year * 12 + month + periods * stride_months
    return datetime(index // 12, index % 12 + 1, 1)  # noqa: DTZ001  a wall time has no zone


def _expand(rule: Rule, start: datetime, freq: str, interval: int, *, days_only: bool = False) -> Iterator[int]:
    """The rule from `start` on, by dateutil, moved into the last centuries that datetime can hold."""
    from dateutil import rrule as dateutil_rrule

    cycles = (9999 - NEAREST_END - start.year) // CYCLE_YEARS
    moved = start.replace(year=start.year + cycles * CYCLE_YEARS)
    options: dict[str, Any] = {name.lower(): list(numbers) for name, numbers in rule.lists}
    if days_only:
        options |= {"byhour": 0, "byminute": 0, "bysecond": 0}
        options.pop("bysetpos", None)
    if rule.weekdays:
        days = [getattr(dateutil_rrule, name) for _, name in rule.weekdays]
        ordinals = [ordinal for ordinal, _ in rule.weekdays]
        options["byweekday"] = [day(ordinal) if ordinal else day for day, ordinal in zip(days, ordinals, strict=True)]
    expanded = dateutil_rrule.rrule(
        getattr(dateutil_rrule, freq),
        dtstart=moved,
        interval=interval,
        wkst=WEEKDAY_NAMES.index(rule.week_start),
        **options,
    )
    back = cycles * CYCLE_SECONDS
    for moment in expanded:
        yield to_seconds(moment) - back
