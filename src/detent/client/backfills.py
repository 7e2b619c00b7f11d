"""The part of the API about ticks beside the schedule and about dead runs, as programs call it; see `operations.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from detent.client.operation import Operation, Request, Result
from detent.client.transport import Answer, segment
from detent.contract.run import DeadGroups, Discarded, Redriven
from detent.contract.tick import Backfilled, BackfillRequest, CatchUpState, DroppedTicks, TickOrder

PREFIX = "/api/v1"


def backfill_job(
    job: str | UUID,
    from_: datetime,
    to: datetime | None = None,
    *,
    newest_first: bool = False,
    concurrency: int = 1,
    reprocess: bool = False,
    dry_run: bool = False,
) -> Request[Backfilled]:
    """Let the past ticks of a stretch of time run; ticks that ran are left out, unless they are to run again."""
    order: TickOrder = "newest" if newest_first else "oldest"
    body = BackfillRequest(
        from_=from_, to=to, order=order, concurrency=concurrency, reprocess=reprocess, dry_run=dry_run
    )
    return Request("POST", f"{_job(job)}/backfill", _reader(Backfilled), body=body, once=True)


def get_catchup(job: str | UUID) -> Request[CatchUpState]:
    """Look at what a job still has to make up for: missed ticks that are to run, and backfills."""
    return Request("GET", f"{_job(job)}/catchup", _reader(CatchUpState))


def drop_catchup(job: str | UUID) -> Request[DroppedTicks]:
    """Give up what a job still has to make up for."""
    return Request("POST", f"{_job(job)}/catchup/drop", _reader(DroppedTicks))


def list_dead_groups(job: str | UUID | None = None) -> Request[DeadGroups]:
    """Dead runs by what their errors have in common, the largest groups first."""
    query = {"job": None if job is None else str(job)}
    return Request("GET", f"{PREFIX}/dead-letters/groups", _reader(DeadGroups), query=query)


def redrive_dead_letters(
    runs: Sequence[str | UUID] | None = None,
    *,
    job: str | UUID | None = None,
    group: str | None = None,
    before: datetime | None = None,
    limit: int = 1000,
) -> Request[Redriven]:
    """Let dead runs go on as themselves, with all their tries anew: these; or all there are, or those of one job or of
    one group, or that were dead at a time, at most `limit` now."""
    body = _dead_runs(runs, job, group, before, limit)
    return Request("POST", f"{PREFIX}/dead-letters/redrive", _reader(Redriven), body=body, once=True)


def discard_dead_letters(
    runs: Sequence[str | UUID] | None = None,
    *,
    job: str | UUID | None = None,
    group: str | None = None,
    before: datetime | None = None,
    limit: int = 1000,
) -> Request[Discarded]:
    """Deal with dead runs for good, named as for a re-drive: they stay in history, and are listed no more."""
    body = _dead_runs(runs, job, group, before, limit)
    return Request("POST", f"{PREFIX}/dead-letters/discard", _reader(Discarded), body=body, once=True)


def _dead_runs(
    runs: Sequence[str | UUID] | None,
    job: str | UUID | None,
    group: str | None,
    before: datetime | None,
    limit: int,
) -> dict[str, object]:
    chosen: dict[str, object] = {"all": True} if runs is None else {"runs": [str(run) for run in runs]}
    filters = {"job": None if job is None else str(job), "group": group, "before": before}
    return {**chosen, **{name: value for name, value in filters.items() if value is not None}, "limit": limit}


class LateOperations:
    """The verbs of the clients about backfills, ticks to make up for, and dead runs."""

    backfill_job = Operation(backfill_job)
    get_catchup = Operation(get_catchup)
    drop_catchup = Operation(drop_catchup)
    list_dead_groups = Operation(list_dead_groups)
    redrive_dead_letters = Operation(redrive_dead_letters)
    discard_dead_letters = Operation(discard_dead_letters)


def _job(job: str | UUID) -> str:
    return f"{PREFIX}/jobs/{segment(str(job))}"


def _reader(kind: type[Result]) -> Callable[[Answer], Result]:
    return lambda answer: msgspec.json.decode(answer.raw, type=kind)
