"""The last hour in a few numbers."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from typing import Any

from detent.dashboard.drawings import STATUSES, quantile_of_buckets
from detent.dashboard.page import Page
from detent.telemetry.metrics import LATENESS

HOUR = timedelta(hours=1)


async def last_hour(page: Page) -> dict[str, Any]:
    since, tenant = page.now - HOUR, page.tenant
    ended = await page.api.store.overview.ended(since, 24 * HOUR, tenant=tenant)
    late = await page.api.store.overview.lateness(since, 24 * HOUR, tenant=tenant)
    counts: dict[str, int] = defaultdict(int)
    buckets: dict[int, int] = defaultdict(int)
    for row in ended:
        counts[STATUSES[row["status"]]] += row["runs"]
    for row in late:
        buckets[row["bucket"]] += row["runs"]
    over = counts["succeeded"] + counts["dead"]
    return {
        **counts,
        "ended": over + counts["cancelled"],
        "per_second": (over + counts["cancelled"]) / HOUR.total_seconds(),
        "good_share": None if not over else counts["succeeded"] / over,
        "p50": quantile_of_buckets(buckets, LATENESS, 0.5),
        "p99": quantile_of_buckets(buckets, LATENESS, 0.99),
    }
