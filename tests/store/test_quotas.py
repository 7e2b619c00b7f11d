"""Quotas of tenants: how many jobs there may be, counted exactly whatever happens, and how large a payload."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from detent.domain.job import JobSpec
from detent.errors import Conflict, QuotaReached, UsageError
from detent.jobs import JobOperations
from detent.store import Store, sql
from detent.store import tenants as tenants_module
from detent.store.db import POOLS, PoolName
from detent.store.tenants import reserved, use_quota
from tests.support.factories import add_node
from tests.support.waiting import until

LIMIT = 5


def spec(name: str | None = None, **fields: Any) -> JobSpec:
    document = {"schedule": "every 1h", "target": {"type": "http", "url": "http://127.0.0.1:9/"}, **fields}
    return msgspec.convert(document | ({"name": name} if name else {}), JobSpec)


@pytest.fixture
async def tenant(verbs: Store, look: Any) -> int:
    await look.execute(
        "DELETE FROM job_reservations; DELETE FROM limits; DELETE FROM queues WHERE tenant > 1;"
        " DELETE FROM tenant_jobs WHERE tenant > 1; DELETE FROM tenants WHERE tenant > 1"
    )
    await verbs.tenants.add("acme")
    await verbs.tenants.change("acme", {"max_jobs": LIMIT})
    number = await verbs.tenants.number("acme")
    assert number is not None
    return number


async def used(verbs: Store) -> int:
    return (await verbs.tenants.get("acme")).jobs


async def test_a_new_tenant_may_have_a_hundred_thousand_jobs_and_the_default_one_any_number(verbs: Store) -> None:
    made = await verbs.tenants.add("fresh")
    assert (made.max_jobs, made.jobs, made.weight) == (100_000, 0, 1)
    assert (made.max_concurrent, made.max_runs_per_second, made.max_payload_bytes) == (None, None, None)
    assert (await verbs.tenants.get("default")).max_jobs is None


async def test_the_job_after_the_last_one_is_refused_with_what_is_used_and_who_can_raise_it(
    verbs: Store, tenant: int
) -> None:
    await JobOperations(verbs).registration.add([spec() for _ in range(LIMIT)], tenant=tenant)
    with pytest.raises(QuotaReached) as caught:
        await JobOperations(verbs).registration.add([spec()], tenant=tenant)
    assert (caught.value.limit, caught.value.used) == (LIMIT, LIMIT)
    for part in ("'acme'", "5 jobs", "may have 5", "administrator", "detent tenant quota acme"):
        assert part in caught.value.message
    assert await used(verbs) == LIMIT


async def test_a_batch_that_does_not_fit_registers_nothing_and_keeps_no_room(verbs: Store, tenant: int) -> None:
    await JobOperations(verbs).batches.create([spec(), spec()], tenant=tenant)
    for verb in (JobOperations(verbs).batches.create, JobOperations(verbs).batches.upsert):
        with pytest.raises(QuotaReached):
            await verb([spec(f"job-{number}") for number in range(LIMIT)], tenant=tenant)
    assert await used(verbs) == 2
    assert len((await verbs.jobs.list(tenant=tenant))[0]) == 2


async def test_an_upsert_counts_only_the_jobs_that_are_new(verbs: Store, tenant: int) -> None:
    for _ in range(2):
        await JobOperations(verbs).batches.upsert([spec(f"job-{number}") for number in range(LIMIT)], tenant=tenant)
        await JobOperations(verbs).registration.upsert(spec("job-1", priority=7), tenant=tenant)
    assert await used(verbs) == LIMIT
    with pytest.raises(QuotaReached):
        await JobOperations(verbs).registration.upsert(spec("one-more"), tenant=tenant)


async def test_what_is_refused_for_another_reason_gives_its_room_back(verbs: Store, tenant: int, look: Any) -> None:
    await JobOperations(verbs).registration.add([spec("taken")], tenant=tenant)
    with pytest.raises(Conflict):
        await JobOperations(verbs).registration.add([spec("taken")], tenant=tenant)
    with pytest.raises(UsageError):
        await JobOperations(verbs).registration.add([spec(schedule="every tuesday")], tenant=tenant)
    with pytest.raises(UsageError):
        await JobOperations(verbs).batches.create([spec(), UsageError("unreadable")], tenant=tenant)
    assert await used(verbs) == 1
    assert await look.fetchval("SELECT count(*) FROM job_reservations") == 0


async def test_a_deleted_job_makes_room_once(verbs: Store, tenant: int) -> None:
    first, *_ = await JobOperations(verbs).registration.add([spec() for _ in range(LIMIT)], tenant=tenant)
    await JobOperations(verbs).lifecycle.pause(first.id, tenant=tenant)
    assert await used(verbs) == LIMIT
    await JobOperations(verbs).lifecycle.delete(first.id, tenant=tenant)
    assert await used(verbs) == LIMIT - 1
    await JobOperations(verbs).registration.add([spec()], tenant=tenant)
    assert await used(verbs) == LIMIT


async def test_registrations_at_the_same_time_never_go_beyond_the_limit(verbs: Store, tenant: int) -> None:
    tried = await asyncio.gather(
        *(JobOperations(verbs).registration.add([spec()], tenant=tenant) for _ in range(3 * LIMIT)),
        return_exceptions=True,
    )
    assert sum(isinstance(each, list) for each in tried) == LIMIT
    assert sum(isinstance(each, QuotaReached) for each in tried) == 2 * LIMIT
    assert await used(verbs) == LIMIT


async def test_a_registration_does_not_wait_for_one_that_is_under_way(verbs: Store, tenant: int) -> None:
    """The row of the counter is locked for a statement, not until the jobs are committed."""
    await JobOperations(verbs).registration.add(
        [spec("first")], tenant=tenant
    )  # with its queue and its schedule, which are shared
    inserted, go_on = asyncio.Event(), asyncio.Event()

    async def slowly() -> None:
        async with verbs.database.joined():
            await JobOperations(verbs).registration.add([spec("slow")], tenant=tenant)
            inserted.set()
            await go_on.wait()

    slow = asyncio.create_task(slowly())
    await inserted.wait()
    await JobOperations(verbs).registration.add([spec("quick")], tenant=tenant)
    assert await used(verbs) == 3
    go_on.set()
    await slow


async def test_a_transaction_that_is_rolled_back_leaves_a_reservation_that_is_given_up_later(
    verbs: Store, tenant: int, look: Any
) -> None:
    with pytest.raises(LookupError):
        async with verbs.database.joined():
            await JobOperations(verbs).registration.add([spec(), spec()], tenant=tenant)
            raise LookupError
    assert await used(verbs) == 2
    assert await verbs.tenants.release_stale() == 0
    await look.execute("UPDATE job_reservations SET made_at = now() - $1::interval", timedelta(minutes=11))
    assert await verbs.tenants.release_stale() == 2
    assert await used(verbs) == 0


async def test_a_reservation_that_was_given_up_meanwhile_registers_nothing(verbs: Store, tenant: int) -> None:
    database = verbs.database
    with pytest.raises(Exception, match="took too long"):
        async with reserved(database, tenant, 1, 1000) as room:
            await tenants_module._release(database, room.reservation or 0)
            await database.transaction(PoolName.REQUEST, lambda connection: use_quota(connection, room))
    assert await used(verbs) == 0


async def test_a_wrong_count_is_put_right_also_while_jobs_are_being_registered(
    verbs: Store, tenant: int, look: Any
) -> None:
    await JobOperations(verbs).registration.add([spec(), spec()], tenant=tenant)
    async with reserved(verbs.database, tenant, 1, 1000):
        await look.execute("UPDATE tenant_jobs SET jobs = jobs + 40 WHERE tenant = $1", tenant)
        assert await verbs.tenants.recount() >= 1
        assert await used(verbs) == 3
        assert await verbs.tenants.recount() == 0


async def test_a_lower_limit_keeps_the_jobs_there_are(verbs: Store, tenant: int) -> None:
    jobs = await JobOperations(verbs).registration.add([spec() for _ in range(LIMIT)], tenant=tenant)
    await verbs.tenants.change("acme", {"max_jobs": 1})
    assert (await verbs.jobs.list(tenant=tenant))[0][0].id == jobs[0].id
    with pytest.raises(QuotaReached):
        await JobOperations(verbs).registration.add([spec()], tenant=tenant)
    await verbs.tenants.change("acme", {"max_jobs": None})
    await JobOperations(verbs).registration.add([spec()], tenant=tenant)


async def test_a_tenants_payloads_may_be_smaller_than_the_servers(verbs: Store, tenant: int) -> None:
    await verbs.tenants.change("acme", {"max_payload_bytes": 20})
    (job,) = await JobOperations(verbs).registration.add([spec(payload="x" * 10)], tenant=tenant)
    large = "x" * 40
    with pytest.raises(UsageError, match="20 are allowed"):
        await JobOperations(verbs).registration.add([spec(payload=large)], tenant=tenant)
    with pytest.raises(UsageError, match="20 are allowed"):
        await JobOperations(verbs).batches.create([spec(payload=large)], tenant=tenant)
    with pytest.raises(UsageError, match="20 are allowed"):
        await JobOperations(verbs).registration.patch(job.id, {"payload": large}, tenant=tenant)
    await JobOperations(verbs).registration.add([spec(payload=large)])
    assert await used(verbs) == 1


async def test_quotas_are_changed_one_by_one(verbs: Store, tenant: int) -> None:
    await asyncio.gather(
        verbs.tenants.change("acme", {"max_concurrent": 3}),
        verbs.tenants.change("acme", {"max_runs_per_second": 2.5}),
        verbs.tenants.change("acme", {"weight": 4}),
    )
    made = await verbs.tenants.get("acme")
    assert (made.max_jobs, made.max_concurrent, made.max_runs_per_second, made.weight) == (LIMIT, 3, 2.5, 4)
    after = await verbs.tenants.change("acme", {"max_concurrent": None})
    assert (after.max_concurrent, after.max_runs_per_second) == (None, 2.5)


async def test_a_change_of_limits_is_reported_to_the_nodes(verbs: Store, tenant: int, look: Any) -> None:
    heard: list[str] = []
    await look.add_listener("detent_runs", lambda *told: heard.append(told[-1]))
    await verbs.tenants.change("acme", {"max_concurrent": 3})
    await until(lambda: "queues" in heard)


# --- the counter, and those who wait for it ---


@pytest.fixture
async def counter_held(tenant: int, another: Any) -> AsyncIterator[None]:
    """Another transaction has changed the tenant's counter and is not over yet."""
    transaction = another.transaction()
    await transaction.start()
    await another.execute("UPDATE tenant_jobs SET jobs = jobs WHERE tenant = $1", tenant)
    yield
    await transaction.rollback()


async def waiting_for_locks(look: Any) -> int:
    count: int = await look.fetchval(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    )
    return count


async def test_registrations_that_wait_for_the_counter_delay_no_claim_and_no_settle(
    verbs: Store, tenant: int, look: Any, counter_held: None
) -> None:
    node = await add_node(look, 1)
    registrations = [
        asyncio.create_task(JobOperations(verbs).registration.add([spec()], tenant=tenant)) for _ in range(8)
    ]
    await until(lambda: waiting_for_locks(look), what="a registration to wait for the counter")
    assert await verbs.live_runs.claim(node, 1, [1], 10) == []
    assert await verbs.live_runs.reconcile(node) == []
    assert not any(task.done() for task in registrations), "the claim had to wait for the registrations"
    for task in registrations:
        task.cancel()
    await asyncio.gather(*registrations, return_exceptions=True)


async def add_spare_reservations(look: Any, tenant: int, number: int) -> None:
    await look.execute(
        "WITH made AS (INSERT INTO job_reservations (tenant, jobs, spare) SELECT $1, $2, true"
        " FROM generate_series(1, $3) RETURNING jobs)"
        " UPDATE tenant_jobs SET jobs = tenant_jobs.jobs + (SELECT sum(jobs) FROM made) WHERE tenant = $1",
        tenant, tenants_module.AHEAD, number,
    )  # fmt: skip


async def test_far_from_the_quota_ten_registrations_at_once_do_not_wait_for_the_counter(
    verbs: Store, tenant: int, look: Any, another: Any
) -> None:
    """Each takes from a spare reservation that no other holds at that moment: as many are enough as a process has
    connections to reserve with. The next test shows how they come about."""
    await verbs.tenants.change("acme", {"max_jobs": 100_000})
    connections, _ = POOLS[PoolName.SEPARATE]
    await add_spare_reservations(look, tenant, connections)
    async with another.transaction():
        await another.execute("UPDATE tenant_jobs SET jobs = jobs WHERE tenant = $1", tenant)
        await asyncio.gather(*(JobOperations(verbs).registration.add([spec()], tenant=tenant) for _ in range(10)))
        assert await used(verbs) == 10
    assert await counts(look, tenant) == (connections * tenants_module.AHEAD,) * 2


async def test_two_reservations_at_the_same_moment_do_not_wait_for_each_other(
    verbs: Store, tenant: int, look: Any, another: Any
) -> None:
    await verbs.tenants.change("acme", {"max_jobs": 100_000})
    await JobOperations(verbs).registration.add([spec("first")], tenant=tenant)
    async with another.transaction():
        await another.fetch(sql.tenant.RESERVE_JOBS.text, *reserving(tenant, 1))
        await JobOperations(verbs).registration.add([spec("second")], tenant=tenant)
    assert await used(verbs) == 3, "two jobs, and a reservation that is not used yet"
    spare = await look.fetchval("SELECT count(*) FROM job_reservations WHERE tenant = $1 AND spare", tenant)
    assert spare == 2, "the second found the first spare reservation locked, and made another one for the next time"


def reserving(tenant: int, jobs: int) -> tuple[int, ...]:
    return tenant, jobs, tenants_module.AHEAD, tenants_module.FAR


async def counts(look: Any, tenant: int) -> tuple[int, int]:
    """What the counter says, and what it should say."""
    row = await look.fetchrow(
        "SELECT c.jobs, (SELECT count(*) FROM jobs WHERE tenant = c.tenant AND status <> 'deleted') +"
        " (SELECT coalesce(sum(jobs), 0) FROM job_reservations WHERE tenant = c.tenant) AS found"
        " FROM tenant_jobs c WHERE c.tenant = $1",
        tenant,
    )
    return row["jobs"], int(row["found"])


async def test_room_that_was_reserved_ahead_is_there_for_any_job_that_needs_it_at_the_quota(
    verbs: Store, tenant: int, look: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten ahead for each that finds none, up to a quota of 40: all 40 can be registered, and not one more."""
    monkeypatch.setattr(tenants_module, "AHEAD", 10)
    monkeypatch.setattr(tenants_module, "FAR", 10)
    await verbs.tenants.change("acme", {"max_jobs": 40})
    tried = await asyncio.gather(
        *(
            JobOperations(verbs).registration.add([spec() for _ in range(1 + number % 3)], tenant=tenant)
            for number in range(60)
        ),
        return_exceptions=True,
    )
    assert not [each for each in tried if isinstance(each, Exception) and not isinstance(each, QuotaReached)]
    assert sum(len(each) for each in tried if isinstance(each, list)) <= 40
    while await used(verbs) < 40:
        await JobOperations(verbs).registration.add([spec()], tenant=tenant)
    with pytest.raises(QuotaReached) as caught:
        await JobOperations(verbs).registration.add([spec()], tenant=tenant)
    assert caught.value.used == 40
    assert await counts(look, tenant) == (40, 40)


async def test_room_that_was_reserved_ahead_does_not_outlive_a_lower_quota(verbs: Store, tenant: int) -> None:
    await verbs.tenants.change("acme", {"max_jobs": None})
    await JobOperations(verbs).registration.add([spec()], tenant=tenant)
    await verbs.tenants.change("acme", {"max_jobs": 1})
    with pytest.raises(QuotaReached):
        await JobOperations(verbs).registration.add([spec()], tenant=tenant)
    await verbs.tenants.change("acme", {"max_jobs": 2})
    await JobOperations(verbs).registration.add([spec()], tenant=tenant)
    assert await used(verbs) == 2


async def test_room_that_was_reserved_ahead_and_that_no_node_took_is_given_up_without_a_word(
    verbs: Store, tenant: int, look: Any
) -> None:
    await verbs.tenants.change("acme", {"max_jobs": 100_000})
    await JobOperations(verbs).registration.add([spec()], tenant=tenant)
    assert await counts(look, tenant) == (1 + tenants_module.AHEAD, 1 + tenants_module.AHEAD)
    await look.execute("UPDATE job_reservations SET made_at = now() - $1::interval", timedelta(minutes=11))
    assert await verbs.tenants.release_stale() == 0
    assert await counts(look, tenant) == (1, 1)
    assert await verbs.tenants.recount() == 0
