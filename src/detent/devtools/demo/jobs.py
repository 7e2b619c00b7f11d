"""The jobs of `detent demo`: those of a small shop, each with its behaviour."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, NamedTuple

from detent.domain.job import JobSpec
from detent.domain.registration import read_document


class Behaviour(NamedTuple):
    """The typical duration of a run; the percentage of attempts that fail, and their error, with `{url}` for the
    target's; and for how many past days the runs of some hours all failed."""

    seconds: float
    failing: float = 0.4
    error: str = "HTTP 503 from {url}"
    broken_days: float = 0


class SampleJob(NamedTuple):
    spec: JobSpec
    behaviour: Behaviour
    paused: str | None = None
    over: bool = False


DOWN = "HTTP 502 from {url}"
OVERLOADED = "HTTP 504 from {url}"
SLOW = "No answer within 30 s."

# name, schedule, zone, tags, behaviour, other fields
TABLE: tuple[tuple[str, str, str, str, Behaviour, dict[str, Any]], ...] = (
    (
        "checkout-health",
        "every 1m",
        "UTC",
        "shop,probe",
        Behaviour(0.12, 0.3),
        {"priority": 2, "expect_start_within": 120},
    ),
    ("fraud-scoring", "every 2m", "UTC", "risk", Behaviour(0.8, 1.2, "HTTP 500 from {url}"), {}),
    ("inventory-sync", "*/5 * * * *", "UTC", "shop", Behaviour(2.4, 3), {"concurrent_policy": "QUEUE"}),
    ("webhook-retry-sweep", "every 5m", "UTC", "integration", Behaviour(1.1, 1), {}),
    ("cache-warm", "*/10 * * * *", "UTC", "shop", Behaviour(5.5, 0.5), {"concurrent_policy": "REPLACE"}),
    ("telemetry-rollup", "every 10m", "UTC", "ops", Behaviour(8, 0.5), {"missed_window": "RUN_ALL"}),
    (
        "price-import",
        "*/15 6-22 * * *",
        "Europe/Berlin",
        "shop,import",
        Behaviour(14, 4, SLOW),
        {"timeout_seconds": 30},
    ),
    ("session-cleanup", "every 30m", "UTC", "ops", Behaviour(3, 0.2), {}),
    (
        "payment-reconcile",
        "0 * * * *",
        "Europe/Berlin",
        "billing",
        Behaviour(22, 6, OVERLOADED, 1.2),
        {"max_retries": 4, "expect_finish_within": 1800},
    ),
    ("rotate-logs", "H * * * *", "UTC", "ops", Behaviour(0.6, 0.1), {"missed_window": "SKIP"}),
    ("search-reindex", "every 6h", "UTC", "shop", Behaviour(1260, 2), {"timeout_seconds": 3600}),
    (
        "nightly-report",
        "30 2 * * *",
        "America/New_York",
        "reports,nightly",
        Behaviour(95, 5),
        {"max_retries": 5, "expect_start_within": 300, "expect_finish_within": 1800},
    ),
    ("backup-database", "15 1 * * *", "UTC", "ops,nightly", Behaviour(640, 1), {"timeout_seconds": 7200}),
    (
        "partner-export",
        "0 */3 * * *",
        "Asia/Tokyo",
        "integration",
        Behaviour(31, 8, DOWN, 2.1),
        {"max_retries": 3, "expect_finish_within": 3600, "notify_after": 2},
    ),
    ("certificate-check", "0 4 * * *", "UTC", "ops,probe", Behaviour(4, 0.5), {}),
    ("gdpr-erasure", "0 0 * * *", "Europe/Berlin", "legal,nightly", Behaviour(41, 1), {"delivery": "at_most_once"}),
    ("mail-digest", "0 7 * * MON-FRI", "Europe/London", "mail", Behaviour(58, 3), {}),
    ("currency-rates", "5 16 * * MON-FRI", "Europe/Berlin", "billing,import", Behaviour(2, 4), {}),
    ("backup-verify", "0 5 * * SUN", "UTC", "ops", Behaviour(1900, 5), {"timeout_seconds": 7200}),
    ("board-report", "0 17 LW * *", "America/New_York", "reports", Behaviour(130, 0), {}),
    ("invoice-run", "0 6 1 * *", "Europe/Berlin", "billing", Behaviour(410, 2), {"timeout_seconds": 3600}),
)
NEWSLETTER = "RRULE:FREQ=WEEKLY;BYDAY=TU;BYHOUR=9;BYMINUTE=0;BYSECOND=0"


def demo_jobs(now: datetime, echo_url: str) -> list[SampleJob]:
    """The jobs, in the order in which they are registered."""
    made = [
        SampleJob(_http(name, schedule, zone, tags, behaviour, echo_url, **fields), behaviour)
        for name, schedule, zone, tags, behaviour, fields in TABLE
    ]
    weekly = Behaviour(310, 2)
    made.append(SampleJob(_http("newsletter", NEWSLETTER, "Europe/Paris", "mail", weekly, echo_url), weekly))
    thumbs = _document(
        "image-thumbnails", "every 15m", "UTC", "shop", {"type": "shell", "command": "make-thumbs --all"}
    )
    failed = Behaviour(19, 2, "The command exited with status 2.")
    made.append(SampleJob(read_document(thumbs), failed, paused="the storage is being moved"))
    past = (now - timedelta(days=11)).replace(hour=20, minute=0, second=0, microsecond=0)
    moved = _document("move-to-new-bucket", past.isoformat(), "UTC", "ops", {"type": "python", "function": "shop.move"})
    made.append(SampleJob(read_document(moved), Behaviour(2700, 0), over=True))
    closing = f"{now.year}-12-31T22:00:00" if now.month < 12 else f"{now.year + 1}-06-30T22:00:00"
    once = _http("year-end-close", closing, "Europe/Berlin", "billing", Behaviour(900, 0), echo_url)
    made.append(SampleJob(once, Behaviour(900, 0)))
    return made


def _http(name: str, schedule: str, zone: str, tags: str, behaviour: Behaviour, url: str, **fields: Any) -> JobSpec:
    milliseconds = min(int(behaviour.seconds * 1000), 20_000)
    target = {"type": "http", "url": f"{url}?ms={milliseconds}&fail={round(behaviour.failing)}"}
    payload = {"source": name, "dry": False}
    return read_document({**_document(name, schedule, zone, tags, target), "payload": payload, **fields})


def _document(name: str, schedule: str, zone: str, tags: str, target: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "schedule": schedule, "timezone": zone, "tags": tags.split(","), "target": target}
