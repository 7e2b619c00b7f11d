"""A tenant is deleted with everything that it owns: in steps, by any node, and nothing else goes with it."""

from __future__ import annotations

import json
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from detent.domain.secret_keys import read_master_keys
from detent.errors import Conflict, NotFound, StorageQuotaReached
from detent.jobs import JobOperations
from detent.jobs.secrets import SecretCommands
from detent.runtime.envelope import MasterKeys
from detent.store import Store, tenant_deletions, tenant_exports
from detent.store import sql as store_sql
from detent.store.db import LockTimeout
from detent.store.tenant_exports import ExportPlace
from detent.upkeep import tenants as tenant_upkeep
from detent.upkeep.tenants import TenantUpkeep
from tests.api.two_tenants import MARKER, SECRET_KEY, World, made_world
from tests.store.test_quotas import spec

NODE = 7
AT_ONCE = timedelta(0)
RIVAL = f"{MARKER}-tenant"
# Its rows outlive what they speak of.
KEPT = {"audit_events"}

WITH_COLUMN = """
SELECT c.relname::text AS name FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
 WHERE c.relnamespace = 'detent'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
   AND a.attname = $1 AND NOT a.attisdropped AND a.atttypid <> 'text'::regtype ORDER BY 1
"""
ROWS_OF_A_TENANT = """
WITH one AS (SELECT job, tenant, partition FROM jobs WHERE tenant = $1 ORDER BY job LIMIT 1),
a AS (INSERT INTO catchups (job, partition, kind, schedule, since, until, next_tick, left_over)
      SELECT job, partition, 'backfill', 1, now(), now(), now(), 1 FROM one),
b AS (INSERT INTO skips (job, tick) SELECT job, now() FROM one),
c AS (INSERT INTO segments (job, since, until, schedule, opened, closed)
      SELECT job, now() - interval '1 day', now(), 1, 'created', 'edited' FROM one),
d AS (INSERT INTO run_payloads (job, scheduled_at, payload) SELECT job, now(), '1' FROM one),
e AS (INSERT INTO set_aside (job, kind, tick, generation, why, node)
      SELECT job, 'tick', now(), 1, 'x', 1 FROM one),
f AS (INSERT INTO expectations (job, kind, partition, within, notify_after, judged, check_at)
      SELECT job, 'start', partition, '1 minute', 1, now(), 'infinity' FROM one),
g AS (INSERT INTO incidents (tenant, job, kind, within, tick, misses)
      SELECT tenant, job, 'start', '1 minute', now(), 1 FROM one RETURNING incident),
h AS (INSERT INTO notices (incident, event, due_at) SELECT incident, 'missed', 'infinity' FROM g),
i AS (INSERT INTO run_minutes SELECT tenant, now(), 1, 0, 1 FROM one),
j AS (INSERT INTO job_counts SELECT tenant, 'active', 3 FROM one),
k AS (INSERT INTO requests (tenant, key, digest, status, headers, body)
      SELECT tenant, 'k', decode(repeat('00', 32), 'hex'), 200, '{}', '' FROM one),
l AS (INSERT INTO request_budgets SELECT tenant, 1, 1, now() FROM one),
m AS (INSERT INTO pull_workers (tenant, name) SELECT tenant, 'w' FROM one),
n AS (INSERT INTO role_bindings (tenant, subject_kind, subject, role)
      SELECT tenant, 'group', 'staff', 'viewer' FROM one),
o AS (INSERT INTO sessions (digest, expires_at, tenant, subject, groups, check_at, valid_until, tokens)
      SELECT sha256('person'), now() + interval '1h', tenant, 'ada', '{staff}', now(), now(), '' FROM one),
p AS (INSERT INTO backlog (job, scheduled_at, not_before, token, serial, queue, revision, priority, keyed, key,
                           parked, payload)
      SELECT job, now() + s * interval '1 ms', now() + s * interval '1 ms', 1, 201326600 + s, 1, 1, s % 3, true,
             'customer', s % 2 = 0, '1' FROM one, generate_series(1, 10) s),
q AS (INSERT INTO unique_keys (job, key, scheduled_at, serial) SELECT job, 'order', now(), 1 FROM one),
r AS (INSERT INTO key_places (scope, key, place, job, lane, scheduled_at)
      SELECT s, 'customer', 0, job, 40000, now() FROM one, unnest(ARRAY[job, -tenant]) s),
t AS (INSERT INTO key_rates (scope, key, next_at)
      SELECT s, 'customer', now() FROM one, unnest(ARRAY[job, -tenant]) s),
v AS (INSERT INTO dead_letters (job, scheduled_at, serial, token, revision, attempt, finished_at)
      SELECT job, now(), 0, 1, 1, 1, now() FROM one),
u2 AS (INSERT INTO run_steps (job, scheduled_at, serial, name, attempt, token, took, result)
      SELECT job, now(), 0, 'charge-' || s, 1, 1, '1s', '1' FROM one, generate_series(1, 3) s),
w AS (INSERT INTO effect_marks (scope, key, job, scheduled_at, serial, kept_until)
      SELECT s, 'invoice', job, now(), 0, 'infinity' FROM one, unnest(ARRAY[job, -tenant]) s),
x AS (INSERT INTO alert_events (job, kind) SELECT job, 'dead' FROM one),
y AS (INSERT INTO alerts (tenant, rule, severity, events, flush_at)
      SELECT r.tenant, r.rule, 2, 1, 'infinity' FROM one JOIN alert_rules r USING (tenant)
      RETURNING alert, rule),
y2 AS (INSERT INTO alert_jobs (alert, job, kind, events, fresh, last_at)
      SELECT alert, job, 'dead', 1, 1, now() FROM one, y),
y3 AS (INSERT INTO notices (rule, alert, event, due_at) SELECT rule, alert, 'opened', 'infinity' FROM y),
u AS (INSERT INTO enqueue_grants (tenant, role) SELECT tenant, 'app' FROM one)
SELECT FROM one
"""


@pytest.fixture
async def world(store: Store, sql: Any) -> World:
    """Two tenants; the rival has rows in every table that a tenant can own some of."""
    world = await made_world(store, sql)
    tenant = await number(store)
    secrets = SecretCommands(store, MasterKeys(read_master_keys(SECRET_KEY)))
    await secrets.rotate(tenant, f"{MARKER}-secret", f"{MARKER}-newer", timedelta(minutes=1))
    await store.tenants.change(RIVAL, {"max_concurrent": 3, "signing": f"{MARKER}-secret"}, lambda _: ["private"])
    await sql.execute(
        "INSERT INTO job_revisions (job, revision, definition)"
        " SELECT job, 1000, definition FROM jobs WHERE tenant = $1",
        tenant,
    )
    await sql.fetch(ROWS_OF_A_TENANT, tenant)
    return world


async def number(store: Store) -> int:
    found = await store.tenants.number(RIVAL)
    assert found is not None
    return found


async def rows_of(sql: Any, tenant: int, jobs: list[int]) -> dict[str, int]:
    """How many rows name the tenant or one of its jobs, in all tables that have such a column."""
    found: dict[str, int] = {}
    for column, numbers in (("tenant", [tenant]), ("job", jobs), ("scope", [*jobs, -tenant])):
        for row in await sql.fetch(WITH_COLUMN, column):
            query = f"SELECT count(*) FROM {row['name']} WHERE {column} = ANY ($1::bigint[])"
            found[row["name"]] = max(found.get(row["name"], 0), await sql.fetchval(query, numbers))
    return found


async def jobs_of(sql: Any, tenant: int) -> list[int]:
    return [row["job"] for row in await sql.fetch("SELECT job FROM jobs WHERE tenant = $1", tenant)]


async def begin(store: Store) -> None:
    await store.tenant_lifecycle.suspend(RIVAL, None, "ada")
    await store.tenant_lifecycle.begin_deletion(RIVAL, "ada")


async def test_nothing_of_a_deleted_tenant_is_left_in_any_table_but_the_audit_log(
    store: Store, sql: Any, world: World
) -> None:
    tenant = await number(store)
    jobs = await jobs_of(sql, tenant)
    before = await rows_of(sql, tenant, jobs)
    empty = {name for name, rows in before.items() if not rows}
    # Leases and reservations come and go; without them the walk would prove nothing about a table.
    assert empty <= {"pull_leases", "job_reservations", "node_take_overs"}, empty
    await begin(store)
    await TenantUpkeep(store, NODE, AT_ONCE).tick()
    after = await rows_of(sql, tenant, jobs)
    assert {name for name, rows in after.items() if rows} == KEPT
    assert await sql.fetchval("SELECT count(*) FROM notices") == 0
    with pytest.raises(NotFound):
        await store.tenants.get(RIVAL)
    events = await sql.fetch("SELECT action, tenant_name, actor_kind FROM audit_events WHERE tenant = $1", tenant)
    assert [(row["action"], row["tenant_name"]) for row in events][-3:] == [
        ("tenant.suspend", RIVAL), ("tenant.delete", RIVAL), ("tenant.deleted", RIVAL),
    ]  # fmt: skip
    assert events[-1]["actor_kind"] == "detent"


async def test_the_rows_of_other_tenants_stay(store: Store, sql: Any, world: World) -> None:
    acme = await store.tenants.number("acme")
    assert acme is not None
    await JobOperations(store).registration.add([spec("kept")], tenant=acme)
    jobs = await jobs_of(sql, acme)
    before = await rows_of(sql, acme, jobs)
    await begin(store)
    await TenantUpkeep(store, NODE, AT_ONCE).tick()
    assert await rows_of(sql, acme, jobs) == before
    assert await store.keys.exists()


async def test_an_incident_that_outlived_its_job_is_counted_and_stops_no_deletion(
    store: Store, sql: Any, world: World
) -> None:
    tenant = await number(store)
    await sql.execute(
        """
        WITH one AS (INSERT INTO incidents (tenant, job, kind, within, tick, misses)
                     VALUES ($1, 987654, 'start', '1 minute', now(), 1) RETURNING incident)
        INSERT INTO notices (incident, event, due_at) SELECT incident, 'missed', 'infinity' FROM one
        """,
        tenant,
    )
    counted = await store.tenant_deletions.contents(tenant=tenant)
    # With the two messages of the alert rule.
    assert (counted["incidents"], counted["notices"]) == (2, 4)
    await begin(store)
    await TenantUpkeep(store, NODE, AT_ONCE).tick()
    with pytest.raises(NotFound):
        await store.tenants.get(RIVAL)
    assert await sql.fetchval("SELECT count(*) FROM notices") == 0


async def test_the_payloads_of_a_job_are_deleted_some_at_a_time(
    store: Store, sql: Any, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenant = await number(store)
    await sql.execute(
        "INSERT INTO run_payloads (job, scheduled_at, payload) SELECT min(job), now() + n * interval '1 day', '1'"
        " FROM jobs, generate_series(1, 5) n WHERE tenant = $1 GROUP BY n",
        tenant,
    )
    jobs = await jobs_of(sql, tenant)
    count = "SELECT count(*) FROM run_payloads WHERE job = ANY ($1::bigint[])"
    monkeypatch.setattr(tenant_deletions, "ROWS_AT_ONCE", 2)
    await begin(store)
    steps = store.tenant_deletions
    while await steps.end_jobs(tenant) or await steps.end_runs(tenant):
        pass
    left = [await sql.fetchval(count, jobs)]
    while await steps.delete_jobs(tenant):
        left.append(await sql.fetchval(count, jobs))
    assert max(before - after for before, after in pairwise(left)) == 2 and left[-1] == 0


async def test_a_dry_run_counts_what_the_deletion_deletes(store: Store, sql: Any, world: World) -> None:
    tenant = await number(store)
    counted = await store.tenant_deletions.contents(tenant=tenant)
    found = await rows_of(sql, tenant, await jobs_of(sql, tenant))
    assert {name: rows for name, rows in counted.items() if name != "notices"} == {
        name: rows for name, rows in found.items() if name in counted
    }
    assert found.keys() - counted.keys() == KEPT | {"node_take_overs"} & found.keys()
    assert (await store.tenants.get(RIVAL)).deletion is None


async def test_a_tenant_that_is_not_suspended_is_not_deleted(store: Store, world: World) -> None:
    with pytest.raises(Conflict, match="`detent tenant suspend zq7rival-tenant` first"):
        await store.tenant_lifecycle.begin_deletion(RIVAL, "ada")
    await begin(store)
    for verb in (store.tenant_lifecycle.resume(RIVAL), store.tenant_lifecycle.suspend(RIVAL, "x", None)):
        with pytest.raises(Conflict, match="is being deleted"):
            await verb


async def test_keys_are_revoked_first(store: Store, sql: Any, world: World) -> None:
    tenant = await number(store)
    await begin(store)
    assert await sql.fetchval("SELECT count(*) FROM api_keys WHERE tenant = $1 AND revoked_at IS NULL", tenant) == 0
    assert await jobs_of(sql, tenant)


async def test_another_node_continues_after_every_step_and_the_progress_is_seen(
    store: Store, sql: Any, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each pass ends after one step of each kind at the latest, as if its node had died then."""
    monkeypatch.setattr(tenant_upkeep, "PASS_SECONDS", 0.0)
    monkeypatch.setattr(tenant_deletions, "JOBS_AT_ONCE", 1)
    monkeypatch.setattr(tenant_deletions, "ROWS_AT_ONCE", 1)
    tenant = await number(store)
    counted = await store.tenant_deletions.contents(tenant=tenant)
    await begin(store)
    seen: list[int] = []
    for node in range(1_000):
        await TenantUpkeep(store, node, AT_ONCE).tick()
        if await store.tenants.number(RIVAL) is None:
            break
        deletion = (await store.tenants.get(RIVAL)).deletion
        assert deletion is not None
        seen.append(sum(deletion.deleted.values()))
    assert len(seen) > 10 and seen == sorted(seen)
    rows = await sql.fetchval("SELECT (after->>'rows')::bigint FROM audit_events WHERE action = 'tenant.deleted'")
    # Its waiting runs were cancelled, so they were deleted from history instead. Sessions ended when it began.
    assert rows == sum(counted.values()) - counted["catchups"] - counted["sessions"]


async def test_the_deletion_begins_when_no_server_accepts_its_keys_any_more(
    store: Store, sql: Any, world: World
) -> None:
    await begin(store)
    tenant = await number(store)
    await TenantUpkeep(store, NODE).tick()
    assert await jobs_of(sql, tenant)
    await sql.execute("UPDATE tenants SET deleting_at = deleting_at - interval '5 seconds' WHERE tenant = $1", tenant)
    await TenantUpkeep(store, NODE).tick()
    assert await store.tenants.number(RIVAL) is None


async def test_a_step_that_another_node_is_at_is_left_alone(store: Store, sql: Any, world: World) -> None:
    await begin(store)
    tenant = await number(store)
    async with sql.transaction():
        await sql.fetch("SELECT FROM tenants WHERE tenant = $1 FOR UPDATE", tenant)
        await TenantUpkeep(store, NODE, AT_ONCE).tick()
    assert await jobs_of(sql, tenant)


async def test_a_run_that_a_worker_has_is_asked_to_stop_and_the_deletion_waits_for_its_end(
    store: Store, sql: Any, world: World
) -> None:
    tenant = await number(store)
    held = await sql.fetchval(
        "UPDATE live_runs SET owner = $1 WHERE job = (SELECT min(job) FROM live_runs) RETURNING job", NODE
    )
    await begin(store)
    await TenantUpkeep(store, NODE, AT_ONCE).tick()
    (run,) = await sql.fetch("SELECT job, cancel FROM live_runs")
    assert (run["job"], run["cancel"]) == (held, True)
    assert held in await jobs_of(sql, tenant)
    await sql.execute("DELETE FROM live_runs")
    await TenantUpkeep(store, NODE, AT_ONCE).tick()
    assert await store.tenants.number(RIVAL) is None


# --- export ---


async def exported(store: Store, tenant: int) -> list[Any]:
    rows, place = [], ExportPlace()
    for _ in range(10_000):
        page, following = await store.tenant_exports.page(place, tenant=tenant)
        rows += page
        if following is None:
            return rows
        assert following != place
        place = following
    raise AssertionError("the export does not end")


@pytest.mark.parametrize("size", [None, 1])
async def test_an_export_has_every_row_once_and_neither_values_of_secrets_nor_keys(
    store: Store, sql: Any, world: World, monkeypatch: pytest.MonkeyPatch, size: int | None
) -> None:
    if size is not None:
        monkeypatch.setattr(tenant_exports, "JOBS_OF_A_PAGE", size)
        parts = [part._replace(most=size) for part in tenant_exports.PARTS]
        monkeypatch.setattr(tenant_exports, "PARTS", parts)
    tenant = await number(store)
    rows = await exported(store, tenant)
    found: dict[str, int] = {}
    for row in rows:
        found[row.table] = found.get(row.table, 0) + 1
    counted = await store.tenant_deletions.contents(tenant=tenant)
    assert found.pop("runs") == counted["run_history"] + counted["live_runs"]
    assert found == {name: counted[name] for name in found}
    assert {"jobs", "job_revisions", "run_payloads", "attempts", "secrets", "limits", "incidents"} <= found.keys()
    assert found["alert_rules"] == 1
    text = json.dumps([row.row for row in rows], default=str)
    secrets = await sql.fetch("SELECT wrapped, ciphertext FROM secret_versions")
    assert not any(part.hex() in text for row in secrets for part in row)
    assert not any(row["digest"].hex() in text for row in await sql.fetch("SELECT digest FROM api_keys"))
    assert f"{MARKER}-value" not in text and f"{MARKER}-payload" in text


# --- storage ---


async def test_beyond_its_storage_a_tenant_registers_nothing_more_and_is_told_why(
    store: Store, sql: Any, world: World
) -> None:
    tenant = await number(store)
    registration = JobOperations(store).registration
    await store.tenants.change(RIVAL, {"max_storage_bytes": 1_000})
    assert (await store.tenants.get(RIVAL)).storage_bytes is None
    await registration.add([spec("not measured yet")], tenant=tenant)
    await sql.execute("UPDATE attempts SET error = repeat(md5(random()::text), 1000)")
    await sql.execute("DELETE FROM turns")
    await TenantUpkeep(store, NODE, AT_ONCE).tick()
    stored = (await store.tenants.get(RIVAL)).storage_bytes
    assert stored is not None and stored > 1_000
    with pytest.raises(StorageQuotaReached) as caught:
        await registration.add([spec("one more")], tenant=tenant)
    for part in (f"{RIVAL!r} took {stored} bytes", "may take 1000", f"detent tenant quota {RIVAL} --storage"):
        assert part in caught.value.message
    assert (caught.value.used, caught.value.limit) == (stored, 1_000)
    await store.tenants.change(RIVAL, {"max_storage_bytes": None})
    await registration.add([spec("one more")], tenant=tenant)
    assert (await store.tenants.get(RIVAL)).storage_bytes is None


async def test_jobs_with_too_much_history_for_one_statement_are_measured_one_at_a_time(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenant = await number(store)
    await store.tenants.change(RIVAL, {"max_storage_bytes": 1_000})
    fetch = store.tenants._database.fetch

    async def fetch_little(pool: Any, statement: Any, *arguments: Any) -> Any:
        if statement is store_sql.tenant.MEASURE_STORAGE and arguments[-1] > 1:
            raise LockTimeout("The statement took too long.")
        return await fetch(pool, statement, *arguments)

    whole = [size async for size in store.tenants.measure_storage(tenant)][-1]
    monkeypatch.setattr(store.tenants._database, "fetch", fetch_little)
    assert [size async for size in store.tenants.measure_storage(tenant)][-1] == whole
    assert (await store.tenants.get(RIVAL)).storage_bytes == whole
