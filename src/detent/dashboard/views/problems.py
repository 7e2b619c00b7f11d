"""What somebody should look at, each with what to do about it."""

from __future__ import annotations

from typing import Any

from detent.dashboard.page import Page, View
from detent.dashboard.problems import ADVICE, look_for_problems


async def look(page: Page) -> dict[str, Any]:
    looked = await look_for_problems(page)
    mild = sum(problem.things for problem in looked.found if not problem.grave)
    return {"found": looked.found, "checked": len(ADVICE), "alarms": looked.alarms, "mild": mild}


view = View("problems", "/cluster/problems", look, ("found",))
