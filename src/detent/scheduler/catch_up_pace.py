"""How fast a partition catches up: twice as fast as it ticks, and at least ten ticks per second."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from detent.domain.schedule import Schedule
from detent.domain.schedule.exclusions import EverythingExcluded

SLOWEST = 10.0
TIMES = 2.0
SAMPLE = 25
AHEAD = timedelta(days=1)
BURST_SECONDS = 0.25
GOOD_FOR_SECONDS = 600.0


def catch_up_rate(schedules: Mapping[int, Schedule], jobs: Mapping[int, int], now: datetime) -> float:
    """Ticks per second, from how many jobs have each schedule."""
    normal = sum(
        count * ticks_per_second(schedules[number], now) for number, count in jobs.items() if number in schedules
    )
    return max(SLOWEST, TIMES * normal)


def ticks_per_second(schedule: Schedule, now: datetime) -> float:
    """The present rate of a schedule, measured by its next few ticks; 0 if it has none in the next day, or if its
    exclusions are too many to find one: it must not keep the others from being caught up."""
    try:
        ticks = schedule.anchored(now).between(now, now + AHEAD, SAMPLE)
    except EverythingExcluded:
        return 0.0
    return len(ticks) / (ticks[-1] - now).total_seconds() if ticks else 0.0


class CatchUpPace:
    """Releases this many ticks per second. Unused capacity is kept for at most `BURST_SECONDS`."""

    def __init__(self, rate: float, now: float, former: CatchUpPace | None = None) -> None:
        self.rate = rate
        self.next_at: float = now if former is None else former.next_at
        self.good_until = now + GOOD_FOR_SECONDS

    def take(self, now: float) -> bool:
        if now < self.next_at:
            return False
        self.next_at = max(self.next_at, now - BURST_SECONDS) + 1 / self.rate
        return True

    def give_back(self) -> None:
        self.next_at -= 1 / self.rate
