"""The form that creates or edits a job, with a live preview of its schedule."""

from __future__ import annotations

from functools import cache
from typing import Any
from zoneinfo import available_timezones

from detent.api.conditions import ReadHeaders
from detent.api.jobs import get_job
from detent.dashboard.form import GROUPS, changed_groups, values_of
from detent.dashboard.page import PageRequest, PageView

PRESETS = (
    ("every 5 minutes", "*/5 * * * *"),
    ("hourly", "H * * * *"),
    ("daily at 9", "0 9 * * *"),
    ("weekdays at 9", "0 9 * * MON-FRI"),
    ("Mondays", "0 9 * * MON"),
    ("first of the month", "0 6 1 * *"),
    ("last working day", "0 17 LW * *"),
)
RULES = (
    ("every other Friday", "FREQ=WEEKLY;INTERVAL=2;BYDAY=FR;BYHOUR=9;BYMINUTE=0;BYSECOND=0"),
    ("second Tuesday", "FREQ=MONTHLY;BYDAY=2TU;BYHOUR=9;BYMINUTE=0;BYSECOND=0"),
    ("each quarter", "FREQ=MONTHLY;INTERVAL=3;BYMONTHDAY=1;BYHOUR=6;BYMINUTE=0;BYSECOND=0"),
)


async def new(page: PageRequest) -> dict[str, Any]:
    return _values(None, page)


async def edit(page: PageRequest) -> dict[str, Any]:
    reply = await get_job(page.api, page.names["id"], ReadHeaders())
    return _values(reply.value, page)


def _values(job: Any, page: PageRequest) -> dict[str, Any]:
    values = values_of(job, page.query)
    return {
        "job": job,
        "values": values,
        "opened": changed_groups(values),
        "groups": GROUPS,
        "presets": PRESETS,
        "rules": RULES,
        "zones": zones(),
        "methods": ("POST", "GET", "PUT", "PATCH", "DELETE", "HEAD"),
    }


@cache
def zones() -> list[str]:
    """The zones that the form suggests: no aliases, no fixed offsets."""
    return sorted(
        zone for zone in available_timezones() if "/" in zone and not zone.startswith(("Etc/", "posix", "right"))
    )


new_view = PageView("builder", "/jobs/new", new, template="builder.html")
edit_view = PageView("builder", "/jobs/{id}/edit", edit, template="builder.html")
