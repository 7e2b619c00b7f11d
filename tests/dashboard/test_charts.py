"""The position of each mark of a chart."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest

from detent.contract.run import Attempt, Run
from detent.dashboard.charts import (
    Axis,
    ChartMark,
    DueStep,
    bars,
    clock_marks,
    gantt,
    heat,
    lane,
    quantile,
    quantile_of_buckets,
)
from detent.dashboard.svg import lane_svg
from detent.domain.states import RunStatus
from detent.store.overview import RecentRun, TimelineStep

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)


def run(status: RunStatus, *attempts: Attempt, **fields: Any) -> Run:
    values: dict[str, Any] = {
        "id": uuid4(), "job_id": uuid4(), "job": "a", "scheduled_at": NOON, "status": status, "reason": None,
        "attempt": len(attempts) or None, "token": 1, "started_at": None, "finished_at": None, "duration_ms": None,
        "lateness_ms": None, "node": "n", "result": msgspec.Raw(b"null"), "error": None, "idempotency_key": "k",
        "ticks": None, "until": None, "attempts": list(attempts),
    }  # fmt: skip
    return Run(**{**values, **fields})


def attempt(number: int, start: float, end: float, outcome: Any) -> Attempt:
    at = NOON + start * SECOND
    return Attempt(
        attempt=number, token=number, node="n", started_at=at, finished_at=NOON + end * SECOND, outcome=outcome,
        error=None,
    )  # fmt: skip


def recent(status: str, seconds: float | None) -> RecentRun:
    end = None if seconds is None else NOON + seconds * SECOND
    return RecentRun(uuid4(), uuid4(), NOON, status, NOON if end else None, end, None, 1, None)


def test_the_longest_run_is_the_highest_bar_and_the_newest_is_last() -> None:
    drawn = bars([recent("dead", 1), recent("succeeded", 4), recent("skipped", None)])
    assert [bar.status for bar in drawn] == ["skipped", "succeeded", "dead"]
    assert [bar.height for bar in drawn] == [4, 20, 8]


def test_a_gantt_shows_the_wait_before_each_attempt() -> None:
    drawn = gantt(run(RunStatus.DEAD, attempt(1, 1, 4, "failed"), attempt(2, 8, 10, "timeout")), NOON + HOUR)
    assert drawn is not None
    kinds = [[span.kind for span in track.spans] for track in drawn.tracks]
    assert kinds == [["waiting", "failed"], ["backoff", "timeout"]]
    assert [(span.left, span.width) for span in drawn.tracks[1].spans] == [(40, 40), (80, 20)]


def test_an_unfinished_run_extends_to_now() -> None:
    drawn = gantt(run(RunStatus.RUNNING, started_at=NOON + SECOND, attempt=1), NOON + 10 * SECOND)
    assert drawn is not None
    assert [(span.kind, span.left + span.width) for span in drawn.tracks[0].spans] == [
        ("waiting", 10),
        ("running", 100),
    ]


def test_a_run_that_never_started_has_no_gantt() -> None:
    assert gantt(run(RunStatus.MISSED), NOON) is None


def test_an_hour_shows_its_worst_status() -> None:
    rows = [{"at": NOON, "status": 1, "runs": 59}, {"at": NOON, "status": 2, "runs": 1}]
    drawn = heat(rows, [NOON + 2 * HOUR], NOON + HOUR)
    shown = {cell.hour: (cell.status, cell.runs) for cell in drawn.cells}
    assert shown == {12: ("dead", 60), 14: ("scheduled", 1)}
    assert len(drawn.days) == 36


def test_ticks_in_one_step_are_one_mark() -> None:
    axis = Axis(NOON, NOON + 10 * HOUR, 10)
    job, sample = UUID(int=1), UUID(int=2)
    past = [TimelineStep(job, 0, "succeeded", 5, sample), TimelineStep(job, 0, "dead", 1, sample)]
    marks = lane(past, [DueStep(9, NOON + 9.5 * HOUR, "scheduled")], axis)
    assert [(mark.left, mark.status, mark.runs) for mark in marks] == [(0, "dead", 6), (90, "scheduled", 1)]


def test_recorded_marks_end_at_now_and_scheduled_ones_begin_there() -> None:
    marks = [ChartMark(50, 10, status, 1, None, NOON) for status in ("succeeded", "scheduled", "paused")]
    drawn = lane_svg("any", marks, [], now_at=54)
    places = re.findall(r'class="tick s-(\w+)" x="(\d+)%" y="\d+" width="(\d+)%"', drawn)
    assert places == [("succeeded", "50", "4"), ("scheduled", "54", "6"), ("paused", "50", "10")]


def test_clock_marks_are_round_and_few() -> None:
    marks = clock_marks(Axis(NOON + 7 * timedelta(minutes=1), NOON + 7 * HOUR, 100))
    assert [at.hour for _, at in marks] == [13, 14, 15, 16, 17, 18]


def test_quantiles_of_buckets_lie_between_their_bounds() -> None:
    bounds = (0.01, 0.1, 1.0)
    assert quantile_of_buckets({}, bounds, 0.5) is None
    assert quantile_of_buckets({1: 100}, bounds, 0.5) == pytest.approx(0.055)
    assert quantile_of_buckets({0: 99, 3: 1}, bounds, 0.999) == 1.0
    assert quantile([3, 1, 2], 0.5) == 2
    assert quantile([], 0.5) is None
