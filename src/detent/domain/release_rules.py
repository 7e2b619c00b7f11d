"""When runs are released after their tick, and by when they are expected to start. No I/O."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise

from detent.domain.job import JobSpec
from detent.domain.schedule import Schedule
from detent.domain.schedule.stagger import WINDOW_MS
from detent.domain.target_url import TargetError, check_url
from detent.errors import UsageError

GAPS_CHECKED = 16
GAPS_AHEAD = timedelta(days=3660)


def check_expectations(spec: JobSpec) -> None:
    start, finish = spec.expect_start_within, spec.expect_finish_within
    if start is not None and spec.release == "staggered" and start * 1000 <= WINDOW_MS:
        raise UsageError(
            f"expect_start_within is {start:g}, but a staggered release may delay a run by {WINDOW_MS // 1000} "
            f"seconds: give more than {WINDOW_MS // 1000}.",
            "/expect_start_within",
        )
    if start is not None and start <= spec.jitter_seconds:
        raise UsageError(
            f"expect_start_within is {start:g}, but jitter may delay a run by {spec.jitter_seconds:g} s: "
            f"give more than {spec.jitter_seconds:g}.",
            "/expect_start_within",
        )
    if start is not None and finish is not None and finish < start:
        raise UsageError(
            f"expect_finish_within is {finish:g} and expect_start_within is {start:g}: a run cannot finish before it "
            f"starts, so give {start:g} or more.",
            "/expect_finish_within",
        )
    if spec.notify_url is not None:
        try:
            check_url(spec.notify_url)
        except TargetError as error:
            raise UsageError(error.message, "/notify_url") from error


def check_spread(schedule: Schedule, since: datetime) -> None:
    """Jitter must stay below the gap to the next tick, so that runs keep the order of their ticks."""
    if not schedule.spreads:
        return
    ticks = schedule.between(since, since + GAPS_AHEAD, GAPS_CHECKED)
    gaps = [(later - earlier).total_seconds() for earlier, later in pairwise(ticks)]
    if schedule.staggered:
        _check_stagger(schedule, gaps)
        return
    if gaps and schedule.jitter_seconds >= min(gaps):
        raise UsageError(
            f"jitter_seconds is {schedule.jitter_seconds:g}, but ticks come {min(gaps):g} s apart: "
            f"give a jitter below {min(gaps):g}.",
            "/jitter_seconds",
        )


def _check_stagger(schedule: Schedule, gaps: list[float]) -> None:
    if schedule.jitter_seconds:
        raise UsageError(
            "jitter_seconds is given, and release is staggered, which both delay runs: keep one of them.", "/release"
        )
    if gaps and min(gaps) * 1000 <= WINDOW_MS:
        raise UsageError(
            f"release is staggered, over {WINDOW_MS // 1000} seconds, but ticks come {min(gaps):g} s apart: "
            "leave release out.",
            "/release",
        )
