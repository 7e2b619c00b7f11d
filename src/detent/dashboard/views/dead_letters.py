"""Runs that were given up, by what their errors have in common."""

from __future__ import annotations

from typing import Any

from detent.api.dead_letters import DeadLetterQuery, GroupQuery, dead_groups, page_of_dead_letters
from detent.dashboard.page import Page, View
from detent.domain.refusal import shown

ROWS = 40
GROUPS = 50
# To group an error it has to be read and matched, which takes some 20 µs: of very many, the newest are.
AMONG = 2_000


async def look(page: Page) -> dict[str, Any]:
    group, job = page.query.get("group") or None, page.query.get("job") or None
    groups = await dead_groups(page.api, GroupQuery(job=job), AMONG)
    query = DeadLetterQuery(job=job, group=group, cursor=page.query.get("cursor") or None, limit=ROWS)
    found = await page_of_dead_letters(page.api, query, AMONG)
    chosen = next((each for each in groups.items if each.group == group), None)
    return {
        "groups": groups,
        "most": GROUPS,
        "group": group,
        "chosen": chosen,
        "job": job,
        "job_shown": shown(job) if job else "",
        "runs": found.items,
        "following": found.next_cursor,
    }


view = View("dead_letters", "/dead-letters", look, ("groups", "letters"))
