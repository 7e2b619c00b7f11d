"""Stored counts: each run is counted once in its minute, whichever node counts, and late runs are found."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from detent.store import Store
from detent.telemetry.metrics import LATENESS
from tests.support.factories import add_job

MINUTE = timedelta(minutes=1)


async def add_run(look: Any, job: int, ago: str, status: int = 1, late: str = "5 ms", ticks: int | None = None) -> None:
    ran = status <= 3
    await look.execute(
        "INSERT INTO run_history (job, scheduled_at, token, node, started_at, finished_at, serial, revision, attempt,"
        " status, ticks, until) SELECT $1, t, CASE WHEN $5::boolean THEN 1 END, 1, t + $4::text::interval,"
        " t + interval '1 s', 0, 1, CASE WHEN $5 THEN 1 END, $3, $6::integer,"
        " CASE WHEN $6::integer IS NOT NULL THEN t END"
        " FROM (SELECT date_trunc('minute', now()) - $2::text::interval AS t) v",
        job, ago, status, late, ran, ticks,
    )  # fmt: skip


async def folded(verbs: Store, look: Any) -> dict[tuple[int, int], int]:
    """All that ended in the last hour, by status and bucket."""
    await look.execute("UPDATE tally SET folded_until = now() - interval '59 minutes'")
    for _ in range(70):
        mark = await verbs.tallies.mark()
        if await verbs.tallies.fold(mark, LATENESS) >= mark.foldable:
            break
    return await counted(look)


async def counted(look: Any) -> dict[tuple[int, int], int]:
    rows = await look.fetch("SELECT status, bucket, sum(runs)::bigint AS runs FROM run_minutes GROUP BY 1, 2")
    return {(row["status"], row["bucket"]): row["runs"] for row in rows}


async def test_each_run_is_folded_into_its_minute_once(verbs: Store, look: Any) -> None:
    await look.execute("DELETE FROM run_minutes")
    job = await add_job(look)
    await add_run(look, job, "3 minutes")
    await add_run(look, job, "5 minutes", status=2, late="2 s")
    await add_run(look, job, "7 minutes", status=5, ticks=40)
    expected = {(1, 3): 1, (2, 10): 1, (5, -1): 40}
    assert await folded(verbs, look) == expected
    mark = await verbs.tallies.mark()
    await verbs.tallies.fold(mark, LATENESS)
    assert await counted(look) == expected


async def test_two_nodes_that_fold_at_once_count_once(verbs: Store, look: Any) -> None:
    await look.execute("DELETE FROM run_minutes")
    job = await add_job(look)
    await add_run(look, job, "1 minute")
    await look.execute("UPDATE tally SET folded_until = date_trunc('minute', now()) - interval '61 s'")
    mark = await verbs.tallies.mark()
    await asyncio.gather(*(verbs.tallies.fold(mark, LATENESS) for _ in range(4)), return_exceptions=True)
    assert sum((await counted(look)).values()) == 1


async def test_runs_recorded_late_are_counted_by_a_second_pass(verbs: Store, look: Any) -> None:
    await look.execute("DELETE FROM run_minutes")
    job = await add_job(look)
    await add_run(look, job, "3 minutes")
    await folded(verbs, look)
    other = await add_job(look)
    await add_run(look, other, "3 minutes")
    mark = await verbs.tallies.mark()
    end = mark.now.replace(second=0, microsecond=0)
    for _ in range(2):
        await verbs.tallies.amend(end - 10 * MINUTE, end, mark, LATENESS)
        assert sum((await counted(look)).values()) == 2


async def test_after_a_long_absence_only_the_last_hour_is_made_up_for(verbs: Store, look: Any) -> None:
    await look.execute("DELETE FROM run_minutes; UPDATE tally SET folded_until = now() - interval '3 days'")
    mark = await verbs.tallies.mark()
    assert await verbs.tallies.fold(mark, LATENESS) > mark.now - timedelta(minutes=61)


async def test_few_jobs_are_counted_as_they_are_and_many_as_they_were(
    verbs: Store, look: Any, monkeypatch: Any
) -> None:
    for _ in range(3):
        await add_job(look)
    await look.execute("UPDATE tenant_jobs SET jobs = 3")
    assert (await verbs.overview.jobs(tenant=1)).active == 3
    await verbs.tallies.count_jobs()
    await add_job(look)
    monkeypatch.setattr("detent.store.overview.FEW_JOBS", 2)
    seen = await verbs.overview.jobs(tenant=1)
    assert (seen.active, seen.estimated) == (3, True)


async def test_what_is_next_is_found_the_same_for_few_jobs_and_for_many(verbs: Store, look: Any) -> None:
    now = await look.fetchval("SELECT now()")
    for number in range(20):
        await add_job(look, now + (number + 1) * MINUTE, name=f"job-{number:02}")
    few = await verbs.overview.upcoming(5, 20, tenant=1)
    many = await verbs.overview.upcoming(5, 1_000_000, tenant=1)
    assert [each.name for each in few] == [f"job-{number:02}" for number in range(5)]
    assert few == many
