"""Two tenants on one node, one of which floods it: the other's runs start in time. Full counts, in `make test-long`."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from detent.domain.job import JobSpec
from detent.domain.run import Call, Outcome, Succeeded
from detent.jobs import JobOperations
from detent.store import Store
from tests.support.waiting import until

HTTP = {"type": "http", "url": "http://127.0.0.1:9/"}
FLOOD = 200_000
QUIET_JOBS = 20


async def add_tenant(store: Store, name: str) -> int:
    await store.tenants.add(name)
    await store.tenants.change(name, {"max_jobs": None})
    number = await store.tenants.number(name)
    assert number is not None
    return number


async def add_flood(store: Store, look: Any, tenant: int, due: Any) -> None:
    """As many jobs as there are runs, all due at one instant."""
    await JobOperations(store).registration.add(
        [msgspec.convert({"schedule": "every 1d", "target": HTTP, "name": "flood"}, JobSpec)], tenant=tenant
    )
    await look.execute(
        "INSERT INTO jobs (id, tenant, name, partition, target, definition)"
        " SELECT gen_random_uuid(), tenant, 'flood-' || n, n % 256, target, definition"
        " FROM jobs, generate_series(1, $1::integer) AS n WHERE name = 'flood'",
        FLOOD, timeout=120,
    )  # fmt: skip
    await look.execute(
        "INSERT INTO cursors (job, next_tick, fire_at, queue, schedule, partition)"
        " SELECT j.job, $1, $1, c.queue, c.schedule, j.partition"
        " FROM jobs j, cursors c JOIN jobs f USING (job) WHERE f.name = 'flood' AND j.name LIKE 'flood-%'",
        due, timeout=120,
    )  # fmt: skip


@pytest.mark.long
@pytest.mark.timeout(1800)
async def test_two_hundred_thousand_due_runs_of_one_tenant_do_not_hold_up_another(
    look: Any, store: Store, start: Any
) -> None:
    """Behind the flood, a tick would be late by what is left of it, and most others would be skipped. The bound in
    seconds is that of `chaos.fairness`: other work on this machine makes both tenants late."""
    noisy, quiet = await add_tenant(store, "noisy"), await add_tenant(store, "quiet")
    await look.execute("SET statement_timeout = 0")
    due = await look.fetchval("SELECT date_trunc('second', now() + interval '60 seconds')")
    await add_flood(store, look, noisy, due)
    documents = [{"schedule": "every 1s", "target": HTTP, "name": f"quiet-{n}"} for n in range(QUIET_JOBS)]
    await JobOperations(store).registration.add(
        [msgspec.convert(document, JobSpec) for document in documents], tenant=quiet
    )

    async def short(_call: Call) -> Outcome:
        await asyncio.sleep(0.001)
        return Succeeded()

    await start(short, concurrency=100)

    async def flooding() -> bool:
        counted = (
            "SELECT count(*) FROM run_history h JOIN jobs j USING (job) WHERE j.tenant = $1 AND h.scheduled_at = $2"
        )
        return bool(await look.fetchval(counted, noisy, due) >= FLOOD)

    await until(flooding, timeout=1200, what="the end of the flood")
    ended = await look.fetchval(
        "SELECT max(finished_at) FROM run_history h JOIN jobs j USING (job) WHERE j.tenant = $1", noisy
    )
    late = await look.fetchrow(
        "SELECT count(*) AS runs, percentile_cont(0.99) WITHIN GROUP (ORDER BY h.started_at - h.scheduled_at) AS p99"
        " FROM run_history h JOIN jobs j USING (job)"
        " WHERE j.tenant = $1 AND h.status = 1 AND h.scheduled_at BETWEEN $2 AND $3",
        quiet, due, ended,
    )  # fmt: skip
    skipped = await look.fetchval(
        "SELECT count(*) FROM run_history h JOIN jobs j USING (job)"
        " WHERE j.tenant = $1 AND h.status <> 1 AND h.scheduled_at BETWEEN $2 AND $3",
        quiet, due, ended,
    )  # fmt: skip
    assert late["runs"] >= QUIET_JOBS and skipped <= late["runs"] / 50
    assert late["p99"] < (ended - due) / 4, f"p99 {late['p99']} over {late['runs']} runs beside the flood"
