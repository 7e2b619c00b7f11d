"""Problems that need an operator, each with advice."""

from __future__ import annotations

from typing import Any

from detent.dashboard.page import PageRequest, PageView
from detent.dashboard.problems import ADVICE, find_problems


async def load(page: PageRequest) -> dict[str, Any]:
    report = await find_problems(page)
    minor = sum(problem.total for problem in report.found if not problem.urgent)
    return {
        "found": report.found,
        "checked": len(ADVICE),
        "alarms": report.alarms,
        "minor": minor,
        "several_deadlines": any(problem.incidents and problem.total > 1 for problem in report.found),
    }


view = PageView("problems", "/cluster/problems", load, ("found",))
