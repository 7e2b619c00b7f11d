"""Summary figures of the last hour."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from typing import Any

from detent.dashboard.charts import STATUSES, quantile_of_buckets
from detent.dashboard.page import PageRequest
from detent.telemetry.metrics import LATENESS

HOUR = timedelta(hours=1)


async def last_hour(page: PageRequest) -> dict[str, Any]:
    since, tenant = page.now - HOUR, page.tenant
    ended = await page.api.store.overview.ended(since, 24 * HOUR, tenant=tenant)
    late = await page.api.store.overview.lateness(since, 24 * HOUR, tenant=tenant)
    counts: dict[str, int] = defaultdict(int)
    buckets: dict[int, int] = defaultdict(int)
    for row in ended:
        counts[STATUSES[row["status"]]] += row["runs"]
    for row in late:
        buckets[row["bucket"]] += row["runs"]
    decided = counts["succeeded"] + counts["dead"]
    return {
        **counts,
        "ended": decided + counts["cancelled"],
        "per_second": (decided + counts["cancelled"]) / HOUR.total_seconds(),
        "success_rate": None if not decided else counts["succeeded"] / decided,
        "p50": quantile_of_buckets(buckets, LATENESS, 0.5),
        "p99": quantile_of_buckets(buckets, LATENESS, 0.99),
    }
