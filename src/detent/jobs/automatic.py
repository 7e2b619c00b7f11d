"""Changes that nodes make without an operator: pauses end, jobs whose runs all die or whose targets are gone
are paused, one-offs are deleted.

Any node may make them. Each change compares the job with what was read, so two nodes that try the same change make it
once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from detent.domain.audit_event import Actor
from detent.domain.run import GoneTarget
from detent.errors import Conflict, NotFound, UsageError
from detent.jobs.lifecycle import JobLifecycle
from detent.runtime.clock import monotonic
from detent.store import Store
from detent.store.audit_log import acting
from detent.store.db import Row
from detent.telemetry.log import logger

log = logger("jobs")

ITSELF = "detent"
GONE_REASON = "the target answered 410 Gone"
MAX_RESUMED = 1000
CHECK_AGAIN = 0.5
LONGEST_WAIT = 60.0
MAX_DELETED = 1000


class RefusedResumption(NamedTuple):
    """A job that could not be resumed when its pause ended: how long to wait, and until when."""

    wait: float
    again_at: float


class AutomaticChanges:
    def __init__(self, store: Store, lifecycle: JobLifecycle) -> None:
        self._store = store
        self._lifecycle = lifecycle
        self._refused: dict[UUID, RefusedResumption] = {}

    async def end_pauses(self) -> float | None:
        """Resume jobs whose pause has ended; returns the seconds until the next pause ends, if there is one. A job that
        cannot be resumed is tried less and less often."""
        rows = await self._store.jobs.ending_pauses(MAX_RESUMED)
        due = [row for row in rows if row["seconds"] <= 0]
        self._refused = {row["id"]: self._refused[row["id"]] for row in due if row["id"] in self._refused}
        waits = [await self._end_pause(row) for row in due]
        waits += [float(row["seconds"]) for row in rows[len(due) : len(due) + 1]]
        return min((wait for wait in waits if wait is not None), default=CHECK_AGAIN) if rows else None

    async def _end_pause(self, row: Row) -> float | None:
        """The seconds until the next try; None: it was resumed."""
        known = self._refused.get(row["id"])
        if known is not None and known.again_at > monotonic():
            return known.again_at - monotonic()
        if await _if_unchanged(self._lifecycle.resume, row["id"], tenant=row["tenant"], by=ITSELF):
            return None
        wait = CHECK_AGAIN if known is None else min(2 * known.wait, LONGEST_WAIT)
        self._refused[row["id"]] = RefusedResumption(wait, monotonic() + wait)
        return wait

    async def pause_failing(self, jobs: Sequence[int]) -> list[UUID]:
        """Pause those of the jobs whose last runs, as many as the job tolerates, were all dead."""
        rows = await self._store.jobs.dead_streaks(jobs)
        for row in rows:
            reason = f"the last {row['bears']} runs were dead" if row["bears"] > 1 else "the last run was dead"
            with acting(Actor("detent", name=ITSELF)):  # it may run inside the report of a worker that pulls
                await _if_unchanged(self._lifecycle.pause, row["id"], reason, tenant=row["tenant"], by=ITSELF)
            log.warning("job paused: its runs are dead", job=str(row["id"]), runs=row["bears"])
        return [row["id"] for row in rows]

    async def pause_gone(self, targets: Sequence[GoneTarget]) -> list[UUID]:
        """Pause the jobs of these targets, unless one was edited or resumed since its call."""
        rows = await self._store.jobs.gone(targets)
        for row in rows:
            with acting(Actor("detent", name=ITSELF)):
                still = partial(_still_gone, row)
                await _if_unchanged(
                    self._lifecycle.pause, row["id"], GONE_REASON, tenant=row["tenant"], by=ITSELF, only_if=still
                )
            log.warning("job paused: its target answered 410 Gone", job=str(row["id"]))
        return [row["id"] for row in rows]

    async def delete_completed(self) -> int:
        """Delete one-off jobs that completed long enough ago; returns how many."""
        count = 0
        while deleted := await self._store.jobs.delete_completed(MAX_DELETED, ITSELF):
            count += deleted
        return count


def _still_gone(found: Row, row: Row) -> bool:
    """Whether the job, as it is about to be paused, is still the one that was called."""
    resumed = row["since"] != row["created_at"] and row["since"] > found["called_at"]
    return row["status"] == "active" and row["revision"] == found["revision"] and not resumed


async def _if_unchanged(verb: Callable[..., Awaitable[Any]], job: UUID, *arguments: Any, **options: Any) -> bool:
    """A job that another node or client changed meanwhile does not keep the others from being changed."""
    try:
        await verb(job, *arguments, **options)
    except (NotFound, Conflict, UsageError) as error:
        log.warning("job not changed", job=str(job), error=str(error))
        return False
    return True
