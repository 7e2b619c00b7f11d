"""Limits on the cost of computing ticks of a schedule, in steps.

A step is one candidate that is examined: a year, month, week or day of a rule, a month of a cron expression, a tick of
a preview. Steps are counted instead of seconds, so that the same request gets the same answer on every machine; for the
same reason a cached answer is never used while steps are counted. A step takes 0.3 to 3 microseconds.
"""

from __future__ import annotations

from math import inf
from typing import NoReturn

from detent.errors import UsageError

QUESTION_STEPS = 30_000
"""The limit for one schedule of a request. Measured, parsing and the next tick: cron 1 to 120 steps, rules 10 to 150,
the next leap day that is a Monday 2,400, every tenth day if it is a leap day 6,000; ten ticks of a preview 10 to 1,300,
a thousand daily ones 3,000. The whole budget lasts 10 to 100 ms."""

BATCH_STEPS = 50_000
STEPS_PER_ROW = 500
"""The limit for all schedules of a batch together: BATCH_STEPS, plus STEPS_PER_ROW for each row. A row of a typical
file costs 1 to 20, and up to 450 with a key template, whose ticks of the coming year are compared."""

RANGE_STEPS = 100_000
"""The limit for the ticks in a range of a stored schedule (a backfill, the end of a pause). Daily ticks since 1971
take 20,000."""


class CostlySchedule(UsageError):  # noqa: N818 - it says what is wrong
    """A schedule whose ticks take more steps than a request may use."""


class Steps:
    """Counts steps and refuses those beyond a limit; without a limit it only counts."""

    __slots__ = ("limit", "purpose", "spent", "whole")

    def __init__(self, limit: float = inf, purpose: str = "compute its ticks", whole: Steps | None = None) -> None:
        self.limit = limit
        self.purpose = purpose
        self.spent = 0
        self.whole = whole

    def spend(self, number: int = 1) -> None:
        self.spent += number
        if self.spent > self.limit:
            self._refuse()
        if self.whole is not None:
            self.whole.spend(number)

    def _refuse(self) -> NoReturn:
        raise CostlySchedule(
            f"This schedule needs more than {self.limit:,.0f} steps to {self.purpose}: use fewer BY parts or a cron "
            "expression, choose days that come more often, or ask for fewer ticks or a shorter range.",
            "/schedule",
        )


def batch_limit(rows: int) -> int:
    return BATCH_STEPS + STEPS_PER_ROW * rows


class BatchSteps(Steps):
    """The steps of all schedules of one batch."""

    __slots__ = ()

    def __init__(self, rows: int) -> None:
        super().__init__(batch_limit(rows))

    def _refuse(self) -> NoReturn:
        raise CostlySchedule(
            f"The schedules of this batch need more than {self.limit:,.0f} steps together, and this one is beyond: "
            "send it in another batch, or use schedules whose ticks come more often.",
            "/schedule",
        )
