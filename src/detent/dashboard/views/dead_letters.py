"""Runs that were given up, by what their errors have in common."""

from __future__ import annotations

from typing import Any

from detent.api.dead_letters import DeadLetterQuery, GroupQuery, list_dead_groups, list_dead_letters
from detent.dashboard.page import Page, View
from detent.refusal import shown

ROWS = 40


async def look(page: Page) -> dict[str, Any]:
    group, job = page.query.get("group") or None, page.query.get("job") or None
    groups = await list_dead_groups(page.api, GroupQuery(job=job))
    query = DeadLetterQuery(job=job, group=group, cursor=page.query.get("cursor") or None, limit=ROWS)
    found = await list_dead_letters(page.api, query)
    chosen = next((each for each in groups.items if each.group == group), None)
    return {
        "groups": groups,
        "group": group,
        "chosen": chosen,
        "job": job,
        "job_shown": shown(job) if job else "",
        "runs": found.items,
        "following": found.next_cursor,
    }


view = View("dead_letters", "/dead-letters", look, ("groups", "letters"))
