"""A tenant is suspended and resumed while a scheduler and a worker really run."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from detent.domain.job import HttpTarget, JobSpec
from detent.jobs import JobOperations
from detent.store import Store
from tests.support.waiting import until

SPEC = JobSpec(schedule="every 1s", target=HttpTarget(url="http://127.0.0.1:9/"), missed_window="RUN_ALL")


async def counts(look: Any, job: int) -> dict[str, int]:
    """The ticks of a job by what became of them."""
    rows = await look.fetch(
        "SELECT status, reason, sum(coalesce(ticks, 1)) AS ticks FROM run_history WHERE job = $1 GROUP BY 1, 2", job
    )
    return {f"{row['status']} {row['reason']}": int(row["ticks"]) for row in rows}


async def test_ticks_of_a_suspension_are_skipped_and_accounted_for_and_later_ones_run(
    store: Store, look: Any, start: Any
) -> None:
    """Whatever the job does with missed ticks: those of a suspension are not missed."""
    await store.tenants.add("acme")
    tenant = await store.tenants.number("acme")
    assert tenant is not None
    (theirs,) = await JobOperations(store).registration.add([SPEC], tenant=tenant)
    (other,) = await JobOperations(store).registration.add([SPEC])
    numbers = {job.id: await look.fetchval("SELECT job FROM jobs WHERE id = $1", job.id) for job in (theirs, other)}
    job = numbers[theirs.id]
    session = await start()

    async def ticks(number: int, kind: str, least: int) -> bool:
        return (await counts(look, number)).get(kind, 0) >= least

    await until(lambda: ticks(job, "1 None", 1), 20, "a run before the suspension")
    await store.tenant_lifecycle.suspend("acme", None, "ada")
    suspended_at = await look.fetchval("SELECT suspended_at FROM tenants WHERE tenant = $1", tenant)
    others = (await counts(look, numbers[other.id])).get("1 None", 0)
    await until(lambda: ticks(job, "4 tenant suspended", 3), 20, "ticks that are skipped")
    await until(lambda: ticks(numbers[other.id], "1 None", others + 2), 20, "runs of the other tenant meanwhile")
    await store.tenant_lifecycle.resume("acme")
    resumed_at = await look.fetchval("SELECT clock_timestamp()")

    async def ran_after() -> bool:
        query = "SELECT count(*) FROM run_history WHERE job = $1 AND status = 1 AND scheduled_at > $2"
        return bool(await look.fetchval(query, job, resumed_at))

    await until(ran_after, 20, "a run after the suspension")
    fired = await look.fetchval(
        "SELECT count(*) FROM run_history WHERE job = $1 AND status = 1 AND scheduled_at BETWEEN $2 AND $3",
        job,
        suspended_at,
        resumed_at - timedelta(seconds=2),
    )
    assert fired == 0
    await session.close(0)
    now = await look.fetchval("SELECT clock_timestamp()")
    window = (now - timedelta(hours=1), now)
    ((_, _, account),), _ = await JobOperations(store).audit.audit(window, tenant=tenant)
    assert account.clean, account
    assert account.accounted["skipped: tenant suspended"] >= 3
    assert not any(name.startswith("missed") for name in account.accounted)


async def test_a_node_that_joins_during_a_suspension_skips_what_was_due_before_it(
    store: Store, look: Any, start: Any
) -> None:
    await store.tenants.add("acme")
    tenant = await store.tenants.number("acme")
    assert tenant is not None
    (theirs,) = await JobOperations(store).registration.add([SPEC], tenant=tenant)
    job = await look.fetchval("SELECT job FROM jobs WHERE id = $1", theirs.id)
    await look.execute(
        "UPDATE cursors SET next_tick = next_tick - interval '1 hour', fire_at = fire_at - interval '1 hour'"
        " WHERE job = $1",
        job,
    )
    await store.tenant_lifecycle.suspend("acme", None, "ada")
    await start()

    async def skipped() -> bool:
        return (await counts(look, job)).get("4 tenant suspended", 0) >= 3_600

    await until(skipped, 20, "the ticks of an hour to be skipped")
    assert set(await counts(look, job)) == {"4 tenant suspended"}
    assert await look.fetchval("SELECT count(*) FROM catchups") == 0
