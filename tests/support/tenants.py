"""Tenants with jobs and waiting runs."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from detent.domain.job import JobSpec
from detent.jobs import JobOperations
from detent.store import Store
from tests.support.factories import LONG_AGO

HTTP = {"type": "http", "url": "http://127.0.0.1:9/"}


async def add_tenant(store: Store, name: str, **quotas: Any) -> int:
    await store.tenants.add(name)
    await store.tenants.change(name, quotas)
    number = await store.tenants.number(name)
    assert number is not None
    return number


async def add_job(
    store: Store, look: Any, tenant: int, name: str, queue: str = "default", **fields: Any
) -> tuple[int, int]:
    """Its number, and that of its queue."""
    document = {"schedule": "every 1h", "target": HTTP, "name": name, "queue": queue, **fields}
    await JobOperations(store).registration.add([msgspec.convert(document, JobSpec)], tenant=tenant)
    row = await look.fetchrow("SELECT job, queue FROM cursors WHERE job = (SELECT max(job) FROM jobs)")
    return row["job"], row["queue"]


async def add_ready(look: Any, job: int, queue: int, count: int, at: datetime = LONG_AGO, priority: int = 5) -> None:
    """Runs that wait, in lanes of one job."""
    await look.execute(
        "INSERT INTO live_runs (job, scheduled_at, token, not_before, queue, revision, lane, priority)"
        " SELECT $1, $2::timestamptz + n * interval '1 second', 1 << 22 | 1, $2, $3, 1, n, $4"
        " FROM generate_series(0, $5::integer - 1) AS n",
        job, at, queue, priority, count,
    )  # fmt: skip
