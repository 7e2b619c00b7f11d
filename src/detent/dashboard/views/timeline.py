"""Past and scheduled ticks of many jobs on one time axis."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from detent.api.jobs import JobQuery, list_jobs
from detent.contract.job import Job
from detent.dashboard.charts import Axis, DueStep, clock_marks, due_steps, lane
from detent.dashboard.page import PageRequest, PageView
from detent.errors import DetentError, UsageError
from detent.runtime.arithmetic import compute
from detent.runtime.clock import monotonic
from detent.store.ledger import ExpectedTicks
from detent.store.overview import MAX_OF_A_JOB, TimelineStep

LANES = 30
STEPS = 180
DUE_SECONDS = 1.0
ZOOMS = {
    "1h": timedelta(hours=1),
    "6h": timedelta(hours=6),
    "24h": timedelta(hours=24),
    "3d": timedelta(days=3),
    "7d": timedelta(days=7),
}
NOW_AT = 0.6  # this share of the axis is the past


async def load(page: PageRequest) -> dict[str, Any]:
    search, zoom = page.query.get("search", "").strip(), page.query.get("zoom", "6h")
    zoom = zoom if zoom in ZOOMS else "6h"
    axis = _axis(page, ZOOMS[zoom])
    marks = clock_marks(axis)
    values: dict[str, Any] = {
        "search": search,
        "zoom": zoom,
        "zooms": list(ZOOMS),
        "axis": axis,
        "marks": marks,
        "grid": [left for left, _ in marks],
        "now_at": axis.place(page.now),
        "links": _links(search, zoom, axis),
        "wrong": None,
        "lanes": [],
        "idle": [],
        "unknown": [],
        "following": None,
    }
    try:
        query = JobQuery(search=search or None, cursor=page.query.get("cursor") or None, limit=LANES)
        found = await list_jobs(page.api, query)
    except UsageError as error:
        return {**values, "wrong": error.message}
    lanes, unknown = await _lanes(page, found.items, axis)
    busy = [each for each in lanes if each["marks"]]
    idle = [each["job"] for each in lanes if not each["marks"]]
    return {**values, "lanes": busy, "idle": idle, "unknown": unknown, "following": found.next_cursor}


async def _lanes(page: PageRequest, jobs: list[Job], axis: Axis) -> tuple[list[dict[str, Any]], list[Job]]:
    """A lane for each job, and the jobs whose due ticks took too long to compute."""
    ids = [job.id for job in jobs]
    # Cursors first: every tick that they have passed is then in the records that are read later.
    expected = await page.api.store.ledger.expectations(ids, (axis.since, axis.until), tenant=page.tenant)
    kept = await page.api.store.ledger.kept_since()
    steps = await _past(page, jobs, axis)
    due = await compute(_due, expected, axis, page.now)
    lanes = [
        {"job": job, "marks": lane(steps[job.id], due.get(job.id, []), axis, _read_since(steps[job.id], kept))}
        for job in jobs
    ]
    return lanes, [job for job in jobs if job.id not in due]


def _due(expected: Mapping[UUID, ExpectedTicks], axis: Axis, now: datetime) -> dict[UUID, list[DueStep]]:
    """Runs in a thread and stops after DUE_SECONDS: some schedules take long to compute."""
    end = monotonic() + DUE_SECONDS
    found: dict[UUID, list[DueStep]] = {}
    for job, (segments, next_tick) in expected.items():
        if monotonic() > end:
            break
        with contextlib.suppress(DetentError):
            found[job] = due_steps(segments, next_tick, axis, now)
    return found


def _read_since(steps: list[TimelineStep], kept: datetime | None) -> datetime | None:
    """Before this time, a tick without a record may have one that was not read."""
    read = sum(step.rows for step in steps)
    oldest = min((step.first for step in steps if step.first is not None), default=None)
    known = [moment for moment in (kept, oldest if read >= MAX_OF_A_JOB else None) if moment is not None]
    return max(known, default=None)


def _axis(page: PageRequest, length: timedelta) -> Axis:
    """Around now, or from the time in the address."""
    try:
        since = datetime.fromisoformat(page.query["from"])
        if since.tzinfo is None or not 1971 <= since.year <= 9000:
            raise ValueError
    except (KeyError, ValueError):
        step = length / STEPS
        since = page.now - length * NOW_AT
        since -= timedelta(seconds=since.timestamp() % step.total_seconds())  # or marks would move with every refresh
    return Axis(since, since + length, STEPS)


def _links(search: str, zoom: str, axis: Axis) -> dict[str, str]:
    half = (axis.until - axis.since) / 2
    common = {"search": search, "zoom": zoom}
    earlier, later = (axis.since - half).isoformat(), (axis.since + half).isoformat()
    return {
        "earlier": f"/timeline?{urlencode({**common, 'from': earlier})}",
        "later": f"/timeline?{urlencode({**common, 'from': later})}",
        "now": f"/timeline?{urlencode(common)}",
        **{f"zoom {name}": f"/timeline?{urlencode({'search': search, 'zoom': name})}" for name in ZOOMS},
    }


async def _past(page: PageRequest, jobs: list[Job], axis: Axis) -> dict[UUID, list[TimelineStep]]:
    found: dict[UUID, list[TimelineStep]] = defaultdict(list)
    until = min(axis.until, page.now + timedelta(days=1))  # a run may have a tick in the near future
    if axis.since < until:
        for step in await page.api.store.overview.timeline(
            [job.id for job in jobs], axis.since, axis.until, axis.steps, tenant=page.tenant
        ):
            found[step.job].append(step)
    return found


view = PageView("timeline", "/timeline", load, ("lanes",))
