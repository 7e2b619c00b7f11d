"""Past and future of many jobs on one axis."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

import msgspec

from detent.api.jobs import JobQuery, list_jobs
from detent.dashboard.drawings import Axis, clock_marks, lane
from detent.dashboard.page import Page, View
from detent.errors import DetentError, UsageError
from detent.model import JobSpec
from detent.registration import schedule_of
from detent.shapes import Job
from detent.store.overview import Step

LANES = 30
STEPS = 180
MOST_PLANNED = 2_000
ZOOMS = {
    "1h": timedelta(hours=1),
    "6h": timedelta(hours=6),
    "24h": timedelta(hours=24),
    "3d": timedelta(days=3),
    "7d": timedelta(days=7),
}
NOW_AT = 0.6  # so much of the axis is past
FIELDS = tuple(JobSpec.__struct_fields__)


async def look(page: Page) -> dict[str, Any]:
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
        "still": [],
        "following": None,
    }
    try:
        query = JobQuery(search=search or None, cursor=page.query.get("cursor") or None, limit=LANES)
        found = await list_jobs(page.api, query)
    except UsageError as error:
        return {**values, "wrong": error.message}
    steps = await _past(page, found.items, axis)
    planned = await asyncio.to_thread(_planned, found.items, await _numbers(page, found.items), axis, page.now)
    lanes = [{"job": job, "marks": lane(steps[job.id], planned[job.id], axis)} for job in found.items]
    busy = [each for each in lanes if each["marks"]]
    still = [each["job"] for each in lanes if not each["marks"]]
    return {**values, "lanes": busy, "still": still, "following": found.next_cursor}


def _axis(page: Page, length: timedelta) -> Axis:
    """Around now, or from where somebody moved it to."""
    try:
        since = datetime.fromisoformat(page.query["from"])
        if since.tzinfo is None or not 1971 <= since.year <= 9000:
            raise ValueError
    except (KeyError, ValueError):
        step = length / STEPS
        since = page.now - length * NOW_AT
        since -= timedelta(seconds=since.timestamp() % step.total_seconds())  # or every mark would tremble
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


async def _past(page: Page, jobs: list[Job], axis: Axis) -> dict[UUID, list[Step]]:
    found: dict[UUID, list[Step]] = defaultdict(list)
    until = min(axis.until, page.now + timedelta(days=1))  # a run that is caught up with may have a tick to come
    if axis.since < until:
        for step in await page.api.store.overview.timeline(
            [job.id for job in jobs], axis.since, axis.until, axis.steps, tenant=page.tenant
        ):
            found[step.job].append(step)
    return found


async def _numbers(page: Page, jobs: list[Job]) -> dict[UUID, int]:
    """What `H` in a schedule is hashed from."""
    found = {job.id: await page.api.store.jobs.number(job.id, tenant=page.tenant) for job in jobs if _hashes(job)}
    return {job: number for job, number in found.items() if number is not None}


def _hashes(job: Job) -> bool:
    written = job.schedule if isinstance(job.schedule, str) else str(job.schedule.get("cron", ""))
    return "H" in written


def _planned(jobs: list[Job], numbers: dict[UUID, int], axis: Axis, now: datetime) -> dict[UUID, list[datetime]]:
    return {job.id: _ticks(job, numbers.get(job.id, 0), axis, now) for job in jobs}


def _ticks(job: Job, number: int, axis: Axis, now: datetime) -> list[datetime]:
    """The ticks that are still to come: one for each step of the axis is enough to draw them."""
    if job.status != "active" or job.next_run_at is None or axis.until <= now:
        return []
    try:
        spec = msgspec.convert({name: getattr(job, name) for name in FIELDS}, JobSpec, from_attributes=True)
        schedule = schedule_of(spec, number, job.created_at)
    except (DetentError, msgspec.ValidationError):
        return []
    ticks: list[datetime] = []
    after = max(axis.since, now)
    while len(ticks) < MOST_PLANNED and (tick := schedule.next_after(after)) is not None and tick < axis.until:
        ticks.append(tick)
        # The next one that stands in another step: what fires every second would else take a thousand times as long.
        after = max(tick, axis.since + (axis.step_of(tick) + 1) * axis.step - timedelta(microseconds=1))
    return ticks


view = View("timeline", "/timeline", look, ("lanes",))
