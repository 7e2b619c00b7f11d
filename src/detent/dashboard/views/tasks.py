"""The tasks (jobs without a schedule), each with its unfinished runs."""

from __future__ import annotations

from typing import Any

from detent.api.tasks import TaskQuery, list_tasks
from detent.dashboard.page import PageRequest, PageView

ROWS = 40


async def load(page: PageRequest) -> dict[str, Any]:
    found = await list_tasks(page.api, TaskQuery(cursor=page.query.get("cursor") or None, limit=ROWS))
    return {"rows": found.items, "following": found.next_cursor}


view = PageView("tasks", "/tasks", load, ("rows",))
