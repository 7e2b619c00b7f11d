"""The demo's history: never added to a database with jobs, and without an unaccounted tick."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from detent.devtools.demo.fill import fill
from detent.errors import Conflict
from detent.jobs import JobOperations
from detent.store import Store

ECHO = "http://127.0.0.1:9/demo/echo"


async def test_every_tick_of_the_demo_is_accounted_for(store: Store, sql: Any) -> None:
    made = await fill(store, 12, ECHO, beside=False)
    now = await store.upkeep.now()
    audited, following = await JobOperations(store).audit.audit((now - timedelta(days=12), now), limit=500)
    assert following is None
    assert len(audited) == made.jobs
    assert {each.name for each in audited if not each.account.clean} == set()
    states = Counter(row["status"] for row in await sql.fetch("SELECT status FROM run_history"))
    assert all(states[status] for status in (1, 2, 5))  # succeeded, dead, missed
    outcomes = {row["outcome"] for row in await sql.fetch("SELECT DISTINCT outcome FROM attempts")}
    assert {"failed", "lost", "timeout"} <= outcomes
    assert await sql.fetchval("SELECT count(DISTINCT node) FROM elections") == 3
    assert await sql.fetchval("SELECT bool_and(finished_at <= now()) FROM run_history")
    assert {job.status for job in (await store.jobs.list())[0]} == {"active", "paused", "completed"}
    incidents = await store.expectations.incidents(tenant=1, before=None, limit=500)
    assert {incident.expectation for incident in incidents} == {"start", "finish"}
    assert {incident.job for incident in incidents} >= {"checkout-health", "payment-reconcile", "partner-export"}
    still = [incident.id for incident in incidents if incident.closed is None]
    known = await sql.fetch("SELECT incident FROM expectations WHERE incident IS NOT NULL")
    assert sorted(row["incident"] for row in known) == sorted(still)


async def test_the_demo_refuses_a_database_with_jobs(store: Store) -> None:
    await fill(store, 1, ECHO, beside=False)
    with pytest.raises(Conflict, match="already has 25 jobs"):
        await fill(store, 1, ECHO, beside=False)
    assert (await store.overview.jobs(tenant=1)).total == 25
