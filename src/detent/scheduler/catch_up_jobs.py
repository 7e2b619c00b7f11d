"""The jobs with missed ticks to catch up, on this node. The release of missed ticks (catch_up.py) maintains the set,
and the fire of live ticks reads it."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from detent.runtime.wakeups import Wakeups
from detent.telemetry.log import logger
from detent.telemetry.metrics import Metrics

log = logger("catch-up")

LARGE = 100
MAX_BEGUN = 100_000
KEPT_SECONDS = 86_400.0


class CatchUpJobs:
    def __init__(self, metrics: Metrics, wakeups: Wakeups) -> None:
        self._metrics = metrics
        self._wakeups = wakeups
        # Jobs with ranges that are known here.
        self.known: set[int] = set()
        self._begun: set[int] = set()
        self._released: dict[int, float] = {}

    def begin(self, jobs: Collection[int], ticks: int) -> None:
        """The node has just found missed ticks of these jobs that are to run."""
        self.known |= set(jobs)
        self._begun |= set(jobs)
        self.count(len(jobs), ticks)
        self._wakeups.catch_ups_added()

    def count(self, jobs: int, ticks: int) -> None:
        self._metrics.catch_ups += jobs
        if ticks >= LARGE:
            self._metrics.large_catch_ups += 1
            log.warning("a large catch-up starts", jobs=jobs, ticks=ticks)

    @property
    def busy(self) -> bool:
        return bool(self.known or self._released)

    def pending(self, job: int) -> bool:
        """Whether this job is catching up. Its last missed tick still runs when its range is empty, so that catching up
        ends only when the next live tick fires."""
        return job in self.known or job in self._released

    def released(self, job: int, now: float) -> None:
        """A missed tick of this job became a run."""
        self._released[job] = now

    def fired(self, jobs: Iterable[int]) -> None:
        """Live ticks of these jobs have fired."""
        if self._released:
            for job in jobs:
                self._released.pop(job, None)

    def drop_old(self, now: float) -> None:
        self._released = {job: at for job, at in self._released.items() if at > now - KEPT_SECONDS}
        if len(self._begun) > MAX_BEGUN:  # jobs that were deleted before their range was read here
            self._begun.clear()

    def has_begun(self, job: int) -> bool:
        """Whether `begin` has counted the range of missed ticks that was read now."""
        return job in self._begun

    def seen(self, jobs: Iterable[int]) -> None:
        """Their ranges of missed ticks have been read."""
        self._begun.difference_update(jobs)
