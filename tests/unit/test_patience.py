"""What happens to late ticks while the previous run is unfinished: a predictable rule, applied soon.

A job is simulated second by second on a clock of the test's own: its runs take as long as the test says, and its node
stands still once. Nothing is measured.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pytest

from detent.scheduler import planning
from detent.scheduler.planning import SHORTEST_PAUSE_MS, FireMode, Patience
from detent.store.cursors import Advance, Cursor

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
ROUND_TRIP = 0.005


def cursor_at(tick: datetime) -> Cursor:
    return Cursor(1, tick, tick, 1, False, 1, 1, 1, -1, 7, 5, 1, False)


def planned_at(tick: datetime, interval: float) -> Advance:
    before = cursor_at(tick)
    following = tick + timedelta(seconds=interval)
    return Advance(before, following, following)


class Tick(NamedTuple):
    at: float
    lag: float
    ran: bool


class Job:
    """A SKIP job: one lane, ticks every `interval` seconds, runs that take `run_seconds`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, interval: float, run_seconds: float) -> None:
        self.interval = interval
        self.run_seconds = run_seconds
        self.now = 0.0
        self.free_at = 0.0
        self.patience = Patience()
        self.ticks: list[Tick] = []
        monkeypatch.setattr(planning, "monotonic", lambda: self.now)

    def live(self, seconds: float, stall_at: float, stall: float) -> None:
        tick = 0.0
        while tick < seconds:
            self.now = max(self.now, tick)
            if stall_at <= self.now < stall_at + stall:
                self.now = stall_at + stall
            tick = self._try(tick)
            self.now += ROUND_TRIP

    def _try(self, tick: float) -> float:
        planned = planned_at(START + timedelta(seconds=tick), self.interval)
        now = START + timedelta(seconds=self.now)
        mode = self.patience.mode(planned.cursor, planned.next_tick, now)
        free = self.now >= self.free_at
        if mode is FireMode.PATIENT and not free:
            self.now += self.patience.pause(planned) / 1000
            return tick
        self.ticks.append(Tick(tick, self.now - tick, free))
        if free:
            self.free_at = self.now + self.run_seconds
        self.patience.fired(planned, now, ran=free)
        return tick + self.interval

    def lag_after(self, at: float) -> float:
        return max(tick.lag for tick in self.ticks if tick.at >= at)


def test_one_stall_does_not_make_a_job_with_long_runs_late_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(monkeypatch, interval=1, run_seconds=40)
    job.live(300, stall_at=70, stall=2.2)
    assert job.lag_after(0) <= 2.2 + 2 * job.interval
    assert job.lag_after(75) < 1
    assert not any(tick.lag > 60 for tick in job.ticks), "it would count as missed"
    assert sum(tick.ran for tick in job.ticks) >= 300 // 41


@pytest.mark.parametrize("run_seconds", [0.3, 0.9])
def test_late_ticks_all_run_where_each_run_is_over_before_the_next_tick(
    monkeypatch: pytest.MonkeyPatch, run_seconds: float
) -> None:
    job = Job(monkeypatch, interval=1, run_seconds=run_seconds)
    job.live(300, stall_at=70, stall=5)
    assert all(tick.ran for tick in job.ticks)
    assert job.lag_after(250) < 1


@pytest.mark.parametrize("run_seconds", [0.97, 1.0, 1.1, 1.7, 2.4, 5, 13, 59, 61])
@pytest.mark.parametrize("stall", [1.2, 2.2, 8, 30])
def test_whatever_a_run_takes_the_lag_shrinks(
    monkeypatch: pytest.MonkeyPatch, run_seconds: float, stall: float
) -> None:
    job = Job(monkeypatch, interval=1, run_seconds=run_seconds)
    job.live(400, stall_at=70, stall=stall)
    assert job.lag_after(0) <= stall + 2.5 * job.interval
    assert job.lag_after(70 + stall + 3 * planning.LATE_RUNS) < 1


def test_a_waiting_tick_is_tried_less_and_less_often() -> None:
    patience = Patience()
    planned = planned_at(START, 3600)
    assert patience.mode(planned.cursor, planned.next_tick, START + timedelta(hours=1)) is FireMode.PATIENT
    pauses = [patience.pause(planned) for _ in range(8)]
    assert pauses[0] == SHORTEST_PAUSE_MS
    assert pauses == sorted(pauses)
    assert pauses[-1] == 1000


def test_the_pauses_of_a_waiting_tick_are_a_small_part_of_its_interval() -> None:
    patience = Patience()
    planned = planned_at(START, 1)
    patience.mode(planned.cursor, planned.next_tick, START + timedelta(seconds=5))
    assert max(patience.pause(planned) for _ in range(20)) <= 1000 / planning.TRIES_PER_INTERVAL
