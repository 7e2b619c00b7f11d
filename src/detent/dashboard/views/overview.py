"""Whether everything is on time, what runs next, and what failed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from detent.dashboard.charts import STATUSES, quantile_of_buckets
from detent.dashboard.figures import HOUR
from detent.dashboard.page import PageRequest, PageView
from detent.dashboard.problems import find_problems
from detent.store.db import Row
from detent.telemetry.metrics import LATENESS

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


async def load(page: PageRequest) -> dict[str, Any]:
    store, tenant = page.api.store, page.tenant
    name = page.query.get("range", "24h")
    span = RANGES.get(name, RANGES["24h"])
    jobs = await store.overview.jobs(tenant=tenant)
    since = _floor(page.now - span.length, span.step)
    ended = await store.overview.ended(since, span.step, tenant=tenant)
    late = await store.overview.lateness(since, span.step, tenant=tenant)
    report = await find_problems(page)
    return {
        "ranges": RANGES,
        "range": name if name in RANGES else "24h",
        "span": span,
        "jobs": jobs,
        "open": await store.overview.open(tenant=tenant),
        "dead": report.dead,
        "figures": report.figures,
        "chart": chart(ended, late, since, page.now, span.step),
        "upcoming": await store.overview.upcoming(UPCOMING, jobs.total, tenant=tenant),
        "groups": await store.overview.dead_groups(GROUPS, tenant=tenant),
        "cluster": report.cluster,
        "alive": [node for node in report.cluster.nodes if node.state == "alive"],
        "alarms": report.alarms,
        # Dead runs are counted and grouped elsewhere on this page.
        "troubles": [problem for problem in report.found if problem.kind != "dead"],
    }


def chart(ended: Iterable[Row], late: Iterable[Row], since: datetime, now: datetime, step: timedelta) -> dict[str, Any]:
    """Columns for the charts: times in seconds, runs per step by status, lateness in seconds."""
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


view = PageView("overview", "/", load, ("problems", "counts", "figures", "charts", "upcoming", "failures"))
