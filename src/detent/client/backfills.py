"""Verbs about backfills and catch-up: past ticks that are to run."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from detent.client.operation import Operation, Request
from detent.client.requests import job_path, reader
from detent.contract.tick import Backfilled, BackfillRequest, CatchUpState, DroppedTicks, TickOrder


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
    """Run the past ticks of a period. Ticks that already ran are left out unless `reprocess` is set."""
    order: TickOrder = "newest" if newest_first else "oldest"
    body = BackfillRequest(
        from_=from_, to=to, order=order, concurrency=concurrency, reprocess=reprocess, dry_run=dry_run
    )
    return Request("POST", f"{job_path(job)}/backfill", reader(Backfilled), body=body, once=True)


def get_catchup(job: str | UUID) -> Request[CatchUpState]:
    """Get the past ticks that a job still has to run: of an outage, a pause or a backfill."""
    return Request("GET", f"{job_path(job)}/catchup", reader(CatchUpState))


def drop_catchup(job: str | UUID) -> Request[DroppedTicks]:
    """Drop the past ticks that a job still has to run."""
    return Request("POST", f"{job_path(job)}/catchup/drop", reader(DroppedTicks))


class BackfillVerbs:
    """The verbs of the clients about backfills and catch-up."""

    backfill_job = Operation(backfill_job)
    get_catchup = Operation(get_catchup)
    drop_catchup = Operation(drop_catchup)
