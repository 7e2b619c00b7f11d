"""An invented month of history as rows: runs that succeeded and failed, an outage at night, and a node that died one
afternoon. Pure: the time and the random generator are arguments.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from detent.devtools.demo.jobs import Behaviour, SampleJob
from detent.domain.retry import retry_delay
from detent.domain.schedule import Schedule
from detent.domain.states import CODES, RunStatus

TOKEN = 1 << 22
MILLISECOND = timedelta(milliseconds=1)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
SUCCEEDED, DEAD, SKIPPED, MISSED = (
    CODES[status] for status in (RunStatus.SUCCEEDED, RunStatus.DEAD, RunStatus.SKIPPED, RunStatus.MISSED)
)
CATCH_UP_PAUSE = 5 * SECOND


class RunRow(NamedTuple):
    """As columns of run_history."""

    job: int
    scheduled_at: datetime
    token: int | None
    node: int | None
    started_at: datetime | None
    finished_at: datetime
    serial: int
    revision: int
    attempt: int | None
    status: int
    ticks: int | None
    until: datetime | None
    reason: str | None
    result: str | None


class AttemptRow(NamedTuple):
    """As columns of attempts."""

    job: int
    scheduled_at: datetime
    serial: int
    token: int
    node: int
    started_at: datetime
    finished_at: datetime
    attempt: int
    outcome: str
    error: str | None


class Month(NamedTuple):
    """What happened to the whole cluster: the outage, the death of a node, a slow evening, and the nodes."""

    since: datetime
    now: datetime
    down: tuple[datetime, datetime]
    died_at: datetime
    slow: tuple[datetime, datetime]
    nodes: tuple[int, int, int]

    @staticmethod
    def before(now: datetime, days: int, chance: random.Random) -> Month:
        night = (now - min(5, days / 6) * DAY).replace(hour=3, minute=10, second=0, microsecond=0)
        afternoon = (now - min(9, days / 3) * DAY).replace(hour=14, minute=0, second=7, microsecond=0)
        evening = (now - min(1, days / 10) * DAY).replace(hour=20, minute=0, second=0, microsecond=0)
        nodes = tuple(chance.getrandbits(62) + 1 for _ in range(3))
        down = (night, night + 42 * MINUTE)
        since = (now - days * DAY).replace(minute=0, second=0, microsecond=0)  # intervals count from here
        return Month(since, now, down, afternoon, (evening, evening + 25 * MINUTE), nodes)  # type: ignore[arg-type]  # three

    def node_at(self, moment: datetime, partition: int) -> int:
        """The leader of a partition then: the third node takes over from the one that died."""
        first, second, third = self.nodes
        if partition % 2:
            return second
        return first if moment < self.died_at else third


class HistoryWriter:
    """The rows of one job."""

    def __init__(self, month: Month, job: SampleJob, number: int, partition: int, chance: random.Random) -> None:
        self._month = month
        self._job = job
        self._behaviour: Behaviour = job.behaviour
        url = str(getattr(job.spec.target, "url", "")).partition("?")[0]  # an error names no query
        self._error = job.behaviour.error.format(url=url)
        self._number = number
        self._partition = partition
        self._chance = chance
        self._busy_until = month.since
        self.attempts: list[AttemptRow] = []

    def rows(self, schedule: Schedule) -> Iterator[RunRow]:
        month = self._month
        down, up = month.down
        limit = 1 + schedule.count_between(month.since, month.now)
        ticks = schedule.between(month.since, month.now, limit)
        missed = [tick for tick in ticks if down <= tick < up]
        for tick in ticks:
            if tick < down:
                yield self._ran(tick)
        yield from self._after_the_night(missed, up)
        for tick in ticks:
            if tick >= up:
                yield self._ran(tick)

    def _after_the_night(self, missed: Sequence[datetime], up: datetime) -> Iterator[RunRow]:
        """The ticks of the outage, by the job's missed_window."""
        if not missed:
            return
        match self._job.spec.missed_window:
            case "SKIP":
                yield self._range(missed, up, "policy")
            case "RUN_ALL":
                for position, tick in enumerate(missed):
                    yield self._ran(tick, up + position * CATCH_UP_PAUSE)
            case _:
                if len(missed) > 1:
                    yield self._range(missed[:-1], up, "merged")
                yield self._ran(missed[-1], up)

    def _range(self, ticks: Sequence[datetime], at: datetime, reason: str) -> RunRow:
        many = len(ticks) > 1
        return RunRow(
            self._number, ticks[0], None, None, None, at + SECOND, 0, 1, None, MISSED,
            len(ticks) if many else None, ticks[-1] if many else None, reason, None,
        )  # fmt: skip

    def _ran(self, tick: datetime, released: datetime | None = None) -> RunRow:
        """A run from its first attempt to its end, or a tick that was skipped because the previous run was not over."""
        start = min((released or tick) + self._lateness(tick), self._month.now)
        if start < self._busy_until:
            return RunRow(self._number, tick, None, None, None, tick, 0, 1, None, SKIPPED, None, None, "overlap", None)
        for attempt in range(1, self._job.spec.max_retries + 2):
            node = self._month.node_at(start, self._partition)
            end = min(start + self._length(), self._month.now)  # no run is open at the end
            outcome, error = self._outcome(tick, start, end)
            if outcome == "lost":
                node, end = self._month.nodes[0], self._month.died_at + 6 * SECOND
            last = outcome == "succeeded" or attempt > self._job.spec.max_retries
            self._record(tick, attempt, node, start, end, outcome, error)
            if last:
                self._busy_until = end
                return self._finished(tick, attempt, node, start, end, outcome)
            start = min(end + self._wait(attempt), self._month.now)
        raise AssertionError("a run has a last attempt")

    def _record(self, tick: datetime, attempt: int, node: int, start: datetime, end: datetime, outcome: str, error: str | None) -> None:  # fmt: skip # noqa: E501
        if outcome != "succeeded" or attempt > 1:
            self.attempts.append(
                AttemptRow(self._number, tick, 0, TOKEN + attempt, node, start, end, attempt, outcome, error)
            )

    def _finished(
        self, tick: datetime, attempt: int, node: int, start: datetime, end: datetime, outcome: str
    ) -> RunRow:
        good = outcome == "succeeded"
        result = msgspec.json.encode({"status": 200, "rows": self._chance.randrange(4000)}).decode() if good else None
        handled = not good and self._month.now - tick > 3 * DAY
        reason = None if good else "discarded" if handled else "retries exhausted"
        status = SUCCEEDED if good else DEAD
        return RunRow(
            self._number, tick, TOKEN + attempt, node, start, end, 0, 1, attempt, status, None, None, reason, result
        )

    # --- chance ---

    def _lateness(self, tick: datetime) -> timedelta:
        since, until = self._month.slow
        typical = 900.0 if since <= tick < until else 9.0
        return min(typical * self._chance.lognormvariate(0, 0.9), 20_000) * MILLISECOND

    def _length(self) -> timedelta:
        return max(self._behaviour.seconds * self._chance.lognormvariate(0, 0.35) * SECOND, MILLISECOND)

    def _wait(self, attempt: int) -> timedelta:
        spec = self._job.spec
        return SECOND * retry_delay(
            attempt, spec.retry_backoff, spec.retry_base_seconds, spec.retry_max_seconds, self._chance.uniform(0.3, 1)
        )

    def _outcome(self, tick: datetime, start: datetime, end: datetime) -> tuple[str, str | None]:
        if end >= self._month.now:  # it has no time left to be tried again
            return "succeeded", None
        died = self._month.died_at
        if start < died <= end:  # the node that died executed it, whichever node led its partition
            return "lost", "its node was lost"
        broken = timedelta(days=self._behaviour.broken_days)
        in_trouble = broken and self._month.now - tick < broken and tick.hour % 4 != 1
        if in_trouble or self._chance.uniform(0, 100) < self._behaviour.failing:
            return ("timeout" if "within" in self._error else "failed"), self._error
        return "succeeded", None


def elections(month: Month) -> list[tuple[int, int, int, int, datetime]]:
    """Partition, term, node, nomination and time of each election."""
    first, second, third = month.nodes
    rows = []
    for partition in range(256):
        rows.append((partition, 1, second if partition % 2 else first, 0, month.since))
        if partition % 2 == 0:
            rows.append((partition, 2, third, 0, month.died_at + 6 * SECOND))
    return rows
