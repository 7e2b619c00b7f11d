"""Dead runs, grouped by error pattern."""

from __future__ import annotations

from typing import Any

from detent.api.dead_letters import DeadLetterQuery, GroupQuery, dead_groups, page_of_dead_letters
from detent.dashboard.page import PageRequest, PageView
from detent.domain.refusal import shown

ROWS = 40
GROUPS = 50
# Grouping one error takes some 20 µs, so only the newest dead runs are grouped.
MAX_GROUPED = 2_000


async def load(page: PageRequest) -> dict[str, Any]:
    group, job = page.query.get("group") or None, page.query.get("job") or None
    groups = await dead_groups(page.api, GroupQuery(job=job), MAX_GROUPED)
    query = DeadLetterQuery(job=job, group=group, cursor=page.query.get("cursor") or None, limit=ROWS)
    found = await page_of_dead_letters(page.api, query, MAX_GROUPED)
    chosen = next((each for each in groups.items if each.group == group), None)
    return {
        "groups": groups,
        "max_groups": GROUPS,
        "group": group,
        "chosen": chosen,
        "job": job,
        "job_shown": shown(job) if job else "",
        "runs": found.items,
        "following": found.next_cursor,
    }


view = PageView("dead_letters", "/dead-letters", load, ("groups", "letters"))
