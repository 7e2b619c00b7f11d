"""All jobs, or those that match a search, each with its last runs."""

from __future__ import annotations

from typing import Any

from detent.api.jobs import JobQuery, list_jobs
from detent.contract.job import Job
from detent.dashboard.charts import quantile
from detent.dashboard.page import PageRequest, PageView
from detent.errors import UsageError
from detent.store.overview import RecentRun

ROWS = 40
BARS = 30
HINTS = ("status:paused", "status:active", "next:<1h", "target:http", "target:python", "tag:", "name:", "queue:")


async def load(page: PageRequest) -> dict[str, Any]:
    search = page.query.get("search", "").strip()
    counts = None if page.limited else await page.api.store.overview.jobs(tenant=page.tenant)
    values: dict[str, Any] = {
        "search": search,
        "counts": counts,
        "hints": HINTS,
        "wrong": None,
        "rows": [],
        "following": None,
    }
    try:
        cursor = page.query.get("cursor") or None
        found = await list_jobs(page.api, JobQuery(search=search or None, cursor=cursor, limit=ROWS))
    except UsageError as error:
        return {**values, "wrong": error.message}
    recent = await page.api.store.overview.recent([job.id for job in found.items], BARS, tenant=page.tenant)
    rows = [_row(job, recent[job.id]) for job in found.items]
    return {**values, "rows": rows, "following": found.next_cursor}


def _row(job: Job, runs: list[RecentRun]) -> dict[str, Any]:
    return {
        "job": job,
        "runs": tuple(runs),
        "p95": quantile((run.seconds for run in runs if run.seconds is not None), 0.95),
        "failing": bool(runs) and runs[0].status == "dead",
    }


view = PageView("jobs", "/jobs", load, ("rows",))
