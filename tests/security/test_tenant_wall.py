"""The second wall: a statement that forgot the tenant of its request shows and changes nothing of another tenant."""

from __future__ import annotations

import asyncio
import dataclasses
import re
from collections.abc import AsyncIterator
from contextlib import ExitStack
from datetime import timedelta
from difflib import unified_diff
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from detent.api.access_watch import AccessWatch, OpenAccess
from detent.domain.identity import RunKey
from detent.jobs import JobOperations
from detent.jobs.target_check import TargetCheck
from detent.store import Store, grants, role
from detent.store.db import Database, PoolName, connect
from detent.store.tenant_wall import walled
from detent.targets.policies import ClusterPolicies
from detent.telemetry.metrics import Metrics
from detent.worker.pull import PulledRuns
from tests.security.test_database_roles import explainable
from tests.support import factories
from tests.support.pgbouncer import running_pgbouncer
from tests.support.postgres import RUNTIME_ROLE, TENANT_ROLE, Postgres, as_runtime_role
from tests.support.waiting import until

OURS, RIVAL = 2, 3
KEY_OF = {OURS: "c" * 10, RIVAL: "d" * 10}
# A row of a tenant or of a job in each table that the verbs below do not fill.
ROWS = {
    "alert_rules": "(tenant, name, definition, events) VALUES ({tenant}, 'r', '{{}}', '{{}}')",
    "alerts": "(tenant, rule, severity, events, flush_at) VALUES ({tenant}, {tenant}, 1, 1, now())",
    "alert_events": "(job, kind) VALUES ({job}, 'dead')",
    "alert_jobs": "(alert, job, kind, events, fresh, last_at) VALUES ({tenant}, {job}, 'dead', 1, 1, now())",
    "api_keys": "(id, tenant, digest, scope) VALUES (repeat(chr(97 + {tenant}), 10), {tenant}, sha256(''), 'read')",
    "incidents": "(tenant, job, kind, within, tick, misses) VALUES ({tenant}, {job}, 'start', '1s', now(), 1)",
    "job_counts": "(tenant, status, jobs) VALUES ({tenant}, 'active', 1)",
    "job_reservations": "(tenant, jobs) VALUES ({tenant}, 1)",
    "limits": "(tenant, queue, max_concurrent) VALUES ({tenant}, 'q', 1)",
    "pull_workers": "(tenant, name) VALUES ({tenant}, 'w')",
    "pull_leases": "(job, scheduled_at, serial, token, worker, tenant, lane, ends_at, lease, lease_until)"
    " VALUES ({job}, now(), 0, 1, 1, {tenant}, 0, now(), '1s', now())",
    "requests": "(tenant, key, digest, status, headers, body) VALUES ({tenant}, 'k', sha256(''), 200, '{{}}', '')",
    "run_minutes": "(tenant, minute, status, bucket, runs) VALUES ({tenant}, now(), 1, 0, 1)",
    "catchups": "(job, partition, kind, schedule, since, until, next_tick, left_over)"
    " VALUES ({job}, 0, 'missed', 1, now(), now(), now(), 1)",
    "expectations": "(job, kind, partition, within, notify_after, judged, check_at)"
    " VALUES ({job}, 'start', 0, '1s', 1, now(), now())",
    "job_revisions": "(job, revision, definition) VALUES ({job}, 1, '{{}}')",
    "live_runs": "(job, scheduled_at, token, not_before, queue, revision, lane, priority)"
    " VALUES ({job}, now(), 1, now(), 1, 1, 0, 5)",
    "backlog": "(job, scheduled_at, not_before, token, serial, queue, revision, priority)"
    " VALUES ({job}, now(), now(), 1, 201326592, 1, 1, 5)",
    "enqueue_grants": "(tenant, role) VALUES ({tenant}, 'app')",
    "unique_keys": "(job, key, scheduled_at, serial) VALUES ({job}, 'k', now(), 201326592)",
    # Of a job, and of a tenant whose jobs share their keys.
    "key_places": "(scope, key, place, job, lane, scheduled_at) VALUES ({job}, 'k', 0, {job}, 40000, now())",
    "dead_letters": "(job, scheduled_at, serial, token, revision, attempt, finished_at)"
    " VALUES ({job}, now(), 0, 1, 1, 1, now())",
    "effect_marks": "(scope, key, job, scheduled_at, serial, kept_until)"
    " VALUES (-{tenant}, 'k', {job}, now(), 0, now())",
    "key_rates": "(scope, key, next_at) VALUES (-{tenant}, 'k', now())",
    "request_budgets": "(tenant, tokens, granted, refilled_at) VALUES ({tenant}, 1, 1, now())",
    "tenant_targets": "(tenant, pattern) VALUES ({tenant}, 'private')",
    "queues": "(tenant, name, needs) VALUES ({tenant}, 'q', '')",
    "role_bindings": "(tenant, subject_kind, subject, role) VALUES ({tenant}, 'group', 'staff', 'viewer')",
    "run_payloads": "(job, scheduled_at, payload) VALUES ({job}, now(), '{{}}')",
    "run_progress": "(job, scheduled_at, serial, token, at, fraction, message)"
    " VALUES ({job}, now(), 0, 1, now(), 0.5, '')",
    "run_steps": "(job, scheduled_at, serial, name, attempt, token, took)"
    " VALUES ({job}, now(), 0, 'charge', 1, 1, '1s')",
    "secrets": "(tenant, name) VALUES ({tenant}, 's')",
    "secret_versions": "(tenant, name, version, key_id, wrapped, nonce, ciphertext)"
    " VALUES ({tenant}, 's', 1, 'k', '', '', '')",
    "segments": "(job, since, until, schedule, opened, closed)"
    " VALUES ({job}, now(), now() + interval '1h', 1, 'created', 'edited')",
    "set_aside": "(job, kind, tick, generation, why, node) VALUES ({job}, 'tick', now(), 1, 'x', 1)",
    "skips": "(job, tick) VALUES ({job}, now())",
}
# A session is found by a digest that only its browser can produce, before the tenant of the request is known.
BEFORE_TENANT = {"sessions"}
HELD = (*grants.OF_TENANTS, *grants.OF_JOBS, *grants.OF_SCOPES)


@dataclasses.dataclass
class Unfiltered:
    """A statement that forgot its condition."""

    text: str
    name: str = "unfiltered"


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    opened = Database(as_runtime_role(database_url))
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
async def rows(look: Any, database: Database) -> None:
    """One row of each of two tenants in every table that has a policy."""
    for name, tenant in (("ours", OURS), ("rival", RIVAL)):
        await Store(database).tenants.add(name)
        job = await factories.add_job(look, None, name=name)
        await look.execute("UPDATE jobs SET tenant = $1 WHERE job = $2", tenant, job)
        for table, values in ROWS.items():
            await look.execute(f"INSERT INTO {table} {values.format(tenant=tenant, job=job)}")


def of_rival(table: str) -> str:
    if table in grants.OF_TENANTS:
        return f"SELECT count(*) FROM {table} WHERE tenant = {RIVAL}"
    if table in grants.OF_SCOPES:
        jobs = f"SELECT job FROM jobs WHERE tenant = {RIVAL}"
        return f"SELECT count(*) FROM {table} WHERE scope = -{RIVAL} OR scope IN ({jobs})"
    return f"SELECT count(*) FROM {table} WHERE job IN (SELECT job FROM jobs WHERE tenant = {RIVAL})"


async def test_every_table_whose_rows_name_a_tenant_is_behind_the_wall(look: Any) -> None:
    found = await look.fetch(
        "SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid"
        " WHERE c.relkind = 'r' AND a.attname = 'tenant' AND NOT a.attisdropped"
        " AND c.relnamespace = current_schema()::regnamespace AND NOT c.relispartition"
    )
    assert {row["relname"] for row in found} - BEFORE_TENANT == set(grants.OF_TENANTS)


async def test_an_unfiltered_statement_of_a_request_reaches_no_row_of_another_tenant(
    look: Any, database: Database, rows: None
) -> None:
    seen, unfilled = {}, []
    for table in HELD:
        if await look.fetchval(of_rival(table)) != 1:
            unfilled.append(table)
        with walled(OURS):
            found = await database.fetch(PoolName.REQUEST, Unfiltered(f"SELECT count(*) FROM {table}"))  # type: ignore[arg-type]  # stands for a file
        seen[table] = found[0]["count"]
    assert (unfilled, seen) == ([], dict.fromkeys(HELD, 1))
    everything = await database.fetch(PoolName.REQUEST, Unfiltered("SELECT count(*) FROM tenants"))  # type: ignore[arg-type]  # as above
    assert everything[0]["count"] == 3


@pytest.mark.parametrize("verb", ["DELETE FROM {table}", "UPDATE {table} SET {column} = {column}"])
async def test_an_unfiltered_change_of_a_request_changes_no_row_of_another_tenant(
    look: Any, database: Database, rows: None, verb: str
) -> None:
    for table in HELD:
        column = "name" if table == "tenants" else "tenant" if table in grants.OF_TENANTS else "job"
        column = "scope" if table in grants.OF_SCOPES else column
        with walled(OURS):
            async with database.connection(PoolName.REQUEST) as connection:
                assert await rows_changed(connection, verb.format(table=table, column=column)) <= 1, table
        assert await look.fetchval(of_rival(table)) == 1


class Undo(Exception):  # noqa: N818 - no error
    pass


async def rows_changed(connection: Any, statement: str) -> int:
    """By a statement that is undone; 0: the role may not change rows of its own tenant either, or others need them."""
    status = "0"
    try:
        async with connection.transaction():
            status = await connection.execute(statement)
            raise Undo
    except (Undo, asyncpg.InsufficientPrivilegeError, asyncpg.ForeignKeyViolationError):
        return int(status.split()[-1])


async def test_no_statement_of_a_node_is_planned_otherwise_because_of_the_wall(look: Any, database: Database) -> None:
    async with database.connection(PoolName.WORK) as connection:
        with_wall = await plans(connection)
        for table in HELD:
            await look.execute(f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY")
        for view in grants.VIEWS:
            await look.execute(f"ALTER VIEW {view} RESET (security_invoker)")
        without = await plans(connection)
    assert [line for name in without for line in unified_diff(without[name], with_wall[name], name, lineterm="")] == []


async def plans(connection: Any) -> dict[str, list[str]]:
    """The plans of every statement with which nodes fire, claim, settle and do upkeep."""
    found = {}
    await connection.execute("SET plan_cache_mode = force_generic_plan")
    for name, text in explainable():
        if name.partition("/")[0] in (
            "run",
            "cursor",
            "catch_up",
            "limit",
            "node",
            "partition",
            "upkeep",
            "pull",
            "task",
        ):
            await connection.execute(f"PREPARE planned AS {text}")
            types = await connection.fetchval(
                "SELECT parameter_types::text[] FROM pg_prepared_statements WHERE name = 'planned'"
            )
            given = f"({', '.join(['NULL'] * len(types))})" if types else ""
            found[name] = [_plain(row[0]) for row in await connection.fetch(f"EXPLAIN EXECUTE planned{given}")]
            await connection.execute("DEALLOCATE planned")
    return found


def _plain(line: str) -> str:
    """The sides of an equation in a filter may be shown in either order."""
    return " ".join(sorted(re.findall(r"[\w.]+", line))) if line.lstrip().startswith("Filter:") else line


async def test_a_role_that_inherits_the_tenants_rights_is_not_held_to_one_tenant(
    postgres: Postgres, database_url: str, rows: None
) -> None:
    """Otherwise a membership granted in the usual way would hide every job from the nodes."""
    await postgres.execute("DROP ROLE IF EXISTS heir", f"CREATE ROLE heir LOGIN INHERIT IN ROLE {TENANT_ROLE}")
    heir = await connect(database_url.replace("//detent@", "//heir@"), "detent")
    assert await heir.fetchval("SELECT count(*) FROM jobs") == 2
    await heir.close()
    await postgres.execute("DROP ROLE heir")


async def seen_in_turn(database: Database) -> list[list[str]]:
    """The names of jobs that statements of two tenants, of a node and of a tenant again see."""
    seen = []
    for tenant in (OURS, RIVAL, None, OURS):
        with walled(tenant):
            found = await database.fetch(PoolName.REQUEST, Unfiltered("SELECT name FROM jobs ORDER BY name"))  # type: ignore[arg-type]  # as above
        seen.append([row["name"] for row in found])
    return seen


IN_TURN = [["ours"], ["rival"], ["ours", "rival"], ["ours"]]


async def test_one_connection_serves_tenants_and_nodes_in_turn(database: Database, rows: None) -> None:
    assert await seen_in_turn(database) == IN_TURN


async def test_the_check_of_open_requests_ends_none_of_another_tenant(database: Database, rows: None) -> None:
    """It starts with the first request that stays open, and then looks up the keys of all tenants."""
    watch = AccessWatch(Store(database).web_sessions)
    ended: list[str] = []
    with walled(OURS), ExitStack() as requests:
        for key in (KEY_OF[OURS], KEY_OF[RIVAL], "unknown"):  # in this order they are ended
            requests.enter_context(watch.watching(OpenAccess(key), partial(ended.append, key)))
        await until(lambda: "unknown" in ended, what="the first check")
    await watch.close()
    assert ended == ["unknown"]


async def test_reports_of_several_tenants_that_are_written_together_reach_the_runs_of_each(
    look: Any, database: Database, rows: None
) -> None:
    await look.execute("UPDATE pull_leases SET ends_at = now() + interval '1 hour'")
    leases = await look.fetch("SELECT tenant, job, scheduled_at, serial, token FROM pull_leases ORDER BY tenant")
    store = Store(database)
    pulled = PulledRuns(store, JobOperations(store), Metrics())
    beats = []
    for tenant, *key, token in leases:
        with walled(tenant):
            beats.append(asyncio.create_task(pulled.heartbeat(tenant, RunKey(*key), token, timedelta(minutes=1))))
    assert len(beats) == 2
    assert [extended.cancel for extended in await asyncio.gather(*beats)] == [False, False]


async def test_a_reading_of_the_allow_lists_for_one_tenant_is_one_for_all(database: Database, rows: None) -> None:
    """Otherwise the jobs of the next tenant are registered with a warning about addresses that it may call."""
    policies = ClusterPolicies(TargetCheck(Store(database))._reader, now=lambda: 0.0)
    patterns = []
    for tenant in (OURS, RIVAL):
        with walled(tenant):
            patterns.append([pattern.text for pattern in (await policies.rules_of(tenant)).patterns])
    assert patterns == [["private"], ["private"]]


@pytest.mark.long
async def test_the_wall_stands_behind_a_pooler(postgres: Postgres, database_url: str, rows: None) -> None:
    admin = await connect(postgres.admin_url(urlsplit(database_url).path[1:]), "detent")
    await role.give(admin, RUNTIME_ROLE, "detent")
    await admin.close()
    with running_pgbouncer(postgres.server.url, size=1, users=(RUNTIME_ROLE,)) as bouncer:
        database = Database(bouncer.url(as_runtime_role(database_url)), pooled=True)
        await database.open()
        try:
            assert await seen_in_turn(database) == IN_TURN
        finally:
            await database.close()
