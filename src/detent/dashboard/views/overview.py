"""Is everything on time, what is next, what failed and why: one look."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from detent.dashboard.drawings import STATUSES, quantile_of_buckets
from detent.dashboard.page import Page, View
from detent.metrics import LATENESS
from detent.store.db import Row
from detent.store.jobs import DEFAULT_TENANT

HOUR = timedelta(hours=1)
UPCOMING = 10
GROUPS = 6


class Range(NamedTuple):
    name: str
    length: timedelta
    step: timedelta


RANGES = {
    "1h": Range("last hour", HOUR, timedelta(minutes=1)),
    "24h": Range("last 24 hours", 24 * HOUR, timedelta(minutes=10)),
    "7d": Range("last 7 days", 168 * HOUR, HOUR),
}


async def look(page: Page) -> dict[str, Any]:
    store, tenant = page.api.store, page.tenant
    name = page.query.get("range", "24h")
    span = RANGES.get(name, RANGES["24h"])
    jobs = await store.overview.jobs(tenant=tenant)
    since = _floor(page.now - span.length, span.step)
    ended = await store.overview.ended(since, span.step, tenant=tenant)
    late = await store.overview.lateness(since, span.step, tenant=tenant)
    cluster = await store.cluster.look(operator=tenant == DEFAULT_TENANT, throughput=False)
    return {
        "ranges": RANGES,
        "range": name if name in RANGES else "24h",
        "span": span,
        "jobs": jobs,
        "open": await store.overview.open(tenant=tenant),
        "dead": await store.overview.dead(tenant=tenant),
        "figures": await last_hour(page),
        "chart": chart(ended, late, since, page.now, span.step),
        "upcoming": await store.overview.upcoming(UPCOMING, jobs.total, tenant=tenant),
        "groups": await store.overview.dead_groups(GROUPS, tenant=tenant),
        "cluster": cluster,
        "alive": [node for node in cluster.nodes if node.state == "alive"],
    }


async def last_hour(page: Page) -> dict[str, Any]:
    """The last hour in a few numbers."""
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


def chart(ended: Iterable[Row], late: Iterable[Row], since: datetime, now: datetime, step: timedelta) -> dict[str, Any]:
    """Columns for the charts: times in seconds, runs per step by how they ended, lateness in seconds."""
    count = int((now - since) / step) + 1
    times = [int((since + n * step).timestamp()) for n in range(count)]
    place = {at: n for n, at in enumerate(times)}
    series: dict[str, list[int]] = {name: [0] * count for name in ("succeeded", "dead", "other")}
    for row in ended:
        status = STATUSES[row["status"]]
        name = status if status in ("succeeded", "dead") else "other"
        if (n := place.get(int(row["at"].timestamp()))) is not None:
            series[name][n] += row["runs"]
    buckets: dict[int, dict[int, int]] = defaultdict(dict)
    for row in late:
        if (n := place.get(int(row["at"].timestamp()))) is not None:
            buckets[n][row["bucket"]] = row["runs"]
    return {
        "times": times,
        **series,
        "p50": [quantile_of_buckets(buckets[n], LATENESS, 0.5) if n in buckets else None for n in range(count)],
        "p99": [quantile_of_buckets(buckets[n], LATENESS, 0.99) if n in buckets else None for n in range(count)],
        "step": step.total_seconds(),
    }


def _floor(moment: datetime, step: timedelta) -> datetime:
    seconds = step.total_seconds()
    return datetime.fromtimestamp(moment.timestamp() // seconds * seconds, moment.tzinfo)


view = View("overview", "/", look, ("problems", "counts", "figures", "charts", "upcoming", "failures"))
