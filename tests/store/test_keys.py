"""Keys and tenants in the database: what is kept of a key, and whom it lets in."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from detent.api.auth import ANONYMOUS
from detent.domain.identity import RunKey, decode_run_id
from detent.errors import Conflict, NotFound
from detent.jobs import JobOperations
from detent.store import Store, history
from detent.store.db import LockTimeout
from detent.store.jobs import DEFAULT_TENANT
from detent.store.keys import Credential, KeyHolder, read_key
from tests.support.factories import LONG_AGO, add_job, add_live_run

FORM = re.compile(r"dtn_[a-z2-7]{10}_[a-z2-7]{52}")


def credential(text: str) -> Credential:
    found = read_key(text)
    assert found is not None
    return found


async def dump(sql: Any) -> str:
    """Every row of every table, as text."""
    tables = await sql.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'detent'")
    rows = [await sql.fetch(f'SELECT t.*::text FROM "{table["tablename"]}" t') for table in tables]
    return "\n".join(str(list(row.values())) for found in rows for row in found)


async def test_a_key_lets_in_its_holder(store: Store) -> None:
    await store.tenants.add("acme")
    tenant = await store.tenants.number("acme")
    assert tenant is not None and tenant != DEFAULT_TENANT
    made = await store.keys.add("operate", tenant=tenant, name="deploys")
    assert FORM.fullmatch(made.key)
    assert (made.scope, made.tenant, made.name, made.status) == ("operate", "acme", "deploys", "active")
    assert await store.keys.holder(credential(made.key)) == KeyHolder(tenant, "operate", "deploys")


async def test_the_database_does_not_hold_the_key(store: Store, sql: Any) -> None:
    made = await store.keys.add("admin", tenant=DEFAULT_TENANT, name="seen")
    assert await store.keys.holder(credential(made.key))
    text = await dump(sql)
    assert made.id in text
    secret = made.key.rpartition("_")[2]
    for part in (made.key, secret, secret[:20], secret[-20:]):
        assert part not in text and part.upper() not in text
        assert part.encode().hex() not in text


async def test_keys_are_never_the_same_twice(store: Store) -> None:
    made = [await store.keys.add("read", tenant=DEFAULT_TENANT) for _ in range(50)]
    assert len({key.id for key in made}) == len({key.key.rpartition("_")[2] for key in made}) == 50


async def test_the_repr_of_a_new_key_does_not_show_it(store: Store) -> None:
    made = await store.keys.add("read", tenant=DEFAULT_TENANT)
    assert made.key not in repr(made) and made.key not in f"{made!s}"


@pytest.mark.parametrize(
    "text",
    ["", "dtn_", "x", f"dtn_aaaaaaaaaa_{'a' * 51}", f"dtn_aaaaaaaaaa_{'a' * 53}", f"dtn_AAAAAAAAAA_{'a' * 52}",
     f"dtn_aaaaaaaaaa_{'1' * 52}", f"dtn_aaaaaaaaaa_{'a' * 52}\n", f"abc_aaaaaaaaaa_{'a' * 52}"],
)  # fmt: skip
def test_text_without_the_form_of_a_key_is_not_parsed(text: str) -> None:
    assert read_key(text) is None


async def test_a_key_that_is_not_good_is_refused(store: Store, sql: Any) -> None:
    good = await store.keys.add("admin", tenant=DEFAULT_TENANT)
    other = await store.keys.add("admin", tenant=DEFAULT_TENANT)
    swapped = f"dtn_{good.id}_{other.key.rpartition('_')[2]}"
    unknown = f"dtn_aaaaaaaaaa_{good.key.rpartition('_')[2]}"
    expired = await store.keys.add("admin", tenant=DEFAULT_TENANT, expires_in_seconds=3600)
    assert await store.keys.holder(credential(expired.key))
    await sql.execute("UPDATE api_keys SET expires_at = now() WHERE id = $1", expired.id)
    await store.keys.revoke(other.id, tenant=DEFAULT_TENANT)
    for text in (swapped, unknown, expired.key, other.key):
        assert await store.keys.holder(credential(text)) is None
    assert await store.keys.holder(credential(good.key))
    keys, _ = await store.keys.list(tenant=DEFAULT_TENANT)
    assert [key.status for key in keys] == ["active", "revoked", "expired"]


async def test_the_digest_of_one_key_does_not_fit_the_row_of_another(store: Store, sql: Any) -> None:
    mine, other = [await store.keys.add("read", tenant=DEFAULT_TENANT) for _ in range(2)]
    await sql.execute(
        "UPDATE api_keys SET digest = (SELECT digest FROM api_keys WHERE id = $1) WHERE id = $2", mine.id, other.id
    )
    assert await store.keys.holder(credential(f"dtn_{other.id}_{mine.key.rpartition('_')[2]}")) is None


async def test_a_key_expires_when_the_database_says_so(store: Store, sql: Any) -> None:
    made = await store.keys.add("read", tenant=DEFAULT_TENANT, expires_in_seconds=90 * 86_400)
    days = await sql.fetchval("SELECT extract(day FROM expires_at - created_at) FROM api_keys WHERE id = $1", made.id)
    assert days == 90


async def test_a_key_is_revoked_once_and_only_by_its_tenant(store: Store) -> None:
    await store.tenants.add("acme")
    tenant = await store.tenants.number("acme")
    assert tenant is not None
    made = await store.keys.add("read", tenant=DEFAULT_TENANT)
    with pytest.raises(NotFound):
        await store.keys.revoke(made.id, tenant=tenant)
    assert await store.keys.holder(credential(made.key))
    first = await store.keys.revoke(made.id, tenant=DEFAULT_TENANT)
    again = await store.keys.revoke(made.id, tenant=DEFAULT_TENANT)
    assert first.status == "revoked" and first.revoked_at == again.revoked_at
    with pytest.raises(NotFound):
        await store.keys.revoke("aaaaaaaaaa", tenant=DEFAULT_TENANT)


async def test_the_last_use_is_written_once_in_five_minutes(store: Store, sql: Any) -> None:
    made = await store.keys.add("read", tenant=DEFAULT_TENANT)
    query = "SELECT last_used_at FROM api_keys WHERE id = $1"
    assert await sql.fetchval(query, made.id) is None
    await store.keys.holder(credential(made.key))
    first = await sql.fetchval(query, made.id)
    assert first is not None
    await store.keys.holder(credential(made.key))
    assert await sql.fetchval(query, made.id) == first
    await sql.execute("UPDATE api_keys SET last_used_at = now() - interval '6 minutes'")
    await store.keys.holder(credential(made.key))
    assert await sql.fetchval(query, made.id) > first


async def test_no_request_waits_for_a_locked_key_row(store: Store, sql: Any) -> None:
    made = await store.keys.add("read", tenant=DEFAULT_TENANT)
    async with sql.transaction():
        await sql.execute("SELECT FROM api_keys FOR UPDATE")
        async with asyncio.timeout(30):
            assert await asyncio.gather(*(store.keys.holder(credential(made.key)) for _ in range(8)))


async def test_keys_are_listed_in_pages_for_one_tenant(store: Store) -> None:
    await store.tenants.add("acme")
    tenant = await store.tenants.number("acme")
    assert tenant is not None
    made = []
    for number in range(7):
        await store.keys.add("read", tenant=DEFAULT_TENANT)
        made.append((await store.keys.add("read", tenant=tenant, name=str(number))).id)
    after: int | None = 0
    seen = []
    while after is not None:
        page, after = await store.keys.list(tenant=tenant, after=after, limit=3)
        seen += [key.id for key in page]
    assert seen == made


async def test_whether_any_valid_key_exists(store: Store, sql: Any) -> None:
    assert not await store.keys.exists()
    first = await store.keys.add("read", tenant=DEFAULT_TENANT, expires_in_seconds=60)
    second = await store.keys.add("admin", tenant=DEFAULT_TENANT)
    assert await store.keys.exists()
    await store.keys.revoke(second.id, tenant=DEFAULT_TENANT)
    assert await store.keys.exists()
    await sql.execute("UPDATE api_keys SET expires_at = now() WHERE id = $1", first.id)
    assert not await store.keys.exists()


async def test_a_tenant_has_its_name_alone(store: Store) -> None:
    await store.tenants.add("acme")
    with pytest.raises(Conflict):
        await store.tenants.add("acme")
    tenants, following = await store.tenants.list()
    assert ([tenant.name for tenant in tenants], following) == (["default", "acme"], None)
    assert await store.tenants.number("nobody") is None


@pytest.mark.parametrize("few", [0, 100])
async def test_runs_are_found_for_their_tenant_alone_whether_it_has_few_jobs_or_many(
    store: Store, sql: Any, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(history, "FEW_JOBS", few)
    monkeypatch.setattr(history, "MAX_EXAMINED", 10)
    await store.tenants.add("acme")
    tenant = await store.tenants.number("acme")
    assert tenant is not None
    jobs = [await add_job(sql, name=f"j{number}") for number in range(4)]
    await sql.execute("UPDATE jobs SET tenant = $1 WHERE job = ANY ($2)", tenant, jobs[:2])
    start = datetime.now(UTC) - timedelta(hours=2)
    await sql.execute(
        "INSERT INTO run_history (job, scheduled_at, finished_at, serial, revision, status)"
        " SELECT j, $2::timestamptz + n * interval '1 second', now(), 0, 1, 4 FROM unnest($1::bigint[]) j,"
        " generate_series(1, 30) n",
        jobs,
        start,
    )
    for job in jobs:
        await add_live_run(sql, job, start + timedelta(hours=1))
    for owner, mine in ((tenant, jobs[:2]), (DEFAULT_TENANT, jobs[2:])):
        seen: list[RunKey] = []
        after: RunKey | None = None
        while True:
            page, after = await store.runs.list(tenant=owner, after=after, limit=7)
            seen += [decoded(run.id) for run in page]
            if after is None:
                break
        assert len(seen) == 62 and seen == sorted(seen, key=lambda key: (key.scheduled_at, key.job), reverse=True)
        assert {key.job for key in seen} == set(mine)


def decoded(run: UUID) -> RunKey:
    key = decode_run_id(run)
    assert key is not None
    return key


async def test_a_run_of_another_tenant_is_neither_found_nor_cancelled(store: Store, sql: Any) -> None:
    await store.tenants.add("acme")
    tenant = await store.tenants.number("acme")
    assert tenant is not None
    job = await add_job(sql)
    await add_live_run(sql, job, LONG_AGO)
    key = RunKey(job, LONG_AGO, 0)
    assert await store.runs.get(key, tenant=tenant) is None
    with pytest.raises(NotFound):
        await JobOperations(store).runs.cancel(key, tenant=tenant)
    assert await sql.fetchval("SELECT count(*) FROM live_runs WHERE NOT cancel") == 1
    assert await store.runs.get(key, tenant=DEFAULT_TENANT)


async def test_who_names_the_runs_of_another_tenant_does_not_lock_them(store: Store, sql: Any) -> None:
    await store.tenants.add("acme")
    tenant = await store.tenants.number("acme")
    assert tenant is not None
    job = await add_job(sql)
    async with sql.transaction():
        await sql.execute("SELECT FROM cursors WHERE job = $1 FOR UPDATE", job)
        done = await store.reruns.redrive([RunKey(job, LONG_AGO, 0)], tenant=tenant)
        assert (done.runs, done.waiting) == ([], [])
        with pytest.raises(LockTimeout):
            await store.reruns.redrive([RunKey(job, LONG_AGO, 0)], tenant=DEFAULT_TENANT)


async def test_a_request_for_no_tenant_finds_nothing(store: Store, sql: Any) -> None:
    job = await add_job(sql, name="j")
    await add_live_run(sql, job, LONG_AGO)
    nobody = ANONYMOUS.tenant
    assert await store.jobs.list(tenant=nobody) == ([], None)
    assert await store.jobs.find("j", tenant=nobody) is None
    assert await store.runs.list(tenant=nobody) == ([], None)
    assert await store.runs.get(RunKey(job, LONG_AGO, 0), tenant=nobody) is None
    assert await store.keys.list(tenant=nobody) == ([], None)
