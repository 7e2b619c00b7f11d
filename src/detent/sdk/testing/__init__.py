"""Test mode: an app's schedules, tasks and functions with a clock that the test moves. No database, no server, no
waiting.

    with app.test(start="2026-03-28T12:00:00Z") as t:
        t.advance(days=2)
    assert [run.scheduled_at.hour for run in t.runs] == [8, 7]

Ticks come from the same schedules as in production, with time zones and DST. Tasks enqueue into the test: their runs
wait for the clock. A function that raises is retried as its job says. A tick whose job still has a run waiting for its
retry follows the job's `concurrent_policy`. Moving the clock runs what becomes due, one after another, in the test's
own thread. Five things are simpler than in production: a function takes no time, so nothing times out; for the same
reason the limits of concurrency keys never hold a run back; the wait before a retry is always the longest that the
policy allows, without jitter; a tick is not spread by `jitter_seconds` or `release`; and `H` in a cron expression
stands for another minute. Only jobs that call a function of the app run.
"""

from __future__ import annotations

from detent.sdk.testing.mode import TestMode
from detent.sdk.testing.records import TestedAttempt, TestedRun

__all__ = ["TestMode", "TestedAttempt", "TestedRun"]
