"""Runs of all jobs, or those that match a search, newest first."""

from __future__ import annotations

from typing import Any

from detent.api.jobs import RunQuery, page_of_runs
from detent.dashboard.page import PageRequest, PageView
from detent.domain.states import RunStatus
from detent.errors import NotFound, UsageError

ROWS = 50
HINTS = ("status:running", "status:pending,retrying", "status:dead", "status:missed,skipped", "since:1h", "job:")


async def load(page: PageRequest) -> dict[str, Any]:
    search = page.query.get("search", "").strip()
    values = {"search": search, "hints": HINTS, "statuses": list(RunStatus), "wrong": None}
    try:
        query = RunQuery(search=search or None, cursor=page.query.get("cursor") or None, limit=ROWS)
        found = await page_of_runs(page.api, query)
    except (UsageError, NotFound) as error:
        return {**values, "wrong": error.message, "runs": [], "following": None}
    return {**values, "runs": found.items, "following": found.next_cursor}


view = PageView("runs", "/runs", load, ("rows",))
