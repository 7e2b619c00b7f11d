"""Runs whose attempt has ended, as a worker passes them to the store."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from detent.domain.run import Claim, End, HeldRun, PlannedRetry, ended


def ended_run(
    claim: Claim,
    started: datetime,
    finished: datetime,
    status: int = 1,
    reason: str | None = None,
    result: str | None = None,
    outcome: str = "succeeded",
    error: str | None = None,
    traceback: str | None = None,
) -> HeldRun:
    end = End(status, reason, result, outcome, error, traceback)
    return ended(claim, started.timestamp(), finished.timestamp(), end)


def failed_run(
    claim: Claim, started: datetime, finished: datetime, outcome: str, error: str, delay: timedelta
) -> HeldRun:
    """The next attempt follows after the delay."""
    end = PlannedRetry(outcome, error, delay)
    return ended(claim, started.timestamp(), finished.timestamp(), end)


def claims_in(runs: Iterable[HeldRun]) -> list[Claim]:
    return [run.claim for run in runs]
