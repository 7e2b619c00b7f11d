"""Two tenants on one server: what the one has in every field that text can be written into, and keys of all kinds."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import asyncpg
import msgspec

from detent.contract.key import KeyScope
from detent.contract.role_binding import RoleBindingSpec
from detent.domain.alert_rule import AlertRuleFields
from detent.domain.identity import decode_run_id, run_id
from detent.domain.job import JobSpec
from detent.domain.on_demand import NewRun
from detent.domain.run_output import OutputChunk, OutputLine, ProgressMark, encode_lines
from detent.domain.secret_keys import read_master_keys
from detent.jobs import JobOperations
from detent.jobs.secrets import SecretCommands
from detent.runtime.envelope import MasterKeys, generate_master_key
from detent.store import Store
from detent.store.jobs import DEFAULT_TENANT

MARKER = "zq7rival"
SECRET_KEY = generate_master_key()
SCOPES: tuple[KeyScope, ...] = ("read", "work", "secrets", "operate", "write", "admin")

JOB = {"schedule": "every 1h", "target": {"type": "http", "url": "http://127.0.0.1:9/"}}
MARKED_JOB = {
    "name": f"{MARKER}-name",
    "schedule": "every 1h",
    "target": {
        "type": "http",
        "url": f"http://127.0.0.1:9/{MARKER}-url",
        "headers": {f"x-{MARKER}": f"{MARKER}-header"},
    },
    "payload": {f"{MARKER}-field": f"{MARKER}-payload"},
    "queue": f"{MARKER}-queue",
    "tags": [f"{MARKER}-tag"],
    "idempotency_key_template": f"{MARKER}-{{{{job_id}}}}-{{{{scheduled_at_unix}}}}",
}

MARKED_TASK = {field: MARKED_JOB[field] for field in ("target", "payload", "queue", "tags")}


@dataclass
class World:
    """`keys` go by tenant and scope; `bad_keys` by what is wrong with them."""

    keys: dict[str, dict[str, str]] = field(default_factory=dict)
    bad_keys: dict[str, str] = field(default_factory=dict)
    job: str = ""
    job_name: str = f"{MARKER}-name"
    task_name: str = f"{MARKER}-task"
    run: str = ""
    dead_run: str = ""
    key: str = ""
    binding: str = ""


async def made_world(store: Store, sql: Any) -> World:
    world = World()
    for name in ("acme", f"{MARKER}-tenant"):
        await store.tenants.add(name)
    for name in ("default", "acme", f"{MARKER}-tenant"):
        number = await store.tenants.number(name)
        assert number is not None
        kind = "rival" if name.startswith(MARKER) else name
        made = {scope: await store.keys.add(scope, tenant=number, name=f"{name}-key") for scope in SCOPES}
        world.keys[kind] = {scope: key.key for scope, key in made.items()}
        if kind == "rival":
            world.key = made["admin"].id
            await _add_rows(store, sql, world, number)
            spec = RoleBindingSpec(subject_kind="group", subject=f"{MARKER}-group", role="viewer", tag=f"{MARKER}-tag")
            bound = await store.role_bindings.add(spec, tenant=number, by=f"{MARKER}-author")
            world.binding = str(bound.id)
            hook = {"type": "webhook", "url": f"http://127.0.0.1:9/{MARKER}-hook"}
            rule = msgspec.convert(
                {"events": ["deadline"], "receiver": hook, "tags": [f"{MARKER}-tag"]}, AlertRuleFields
            )
            await store.alert_rules.add(f"{MARKER}-rule", rule, tenant=number, by=f"{MARKER}-author")
            await store.alert_rules.add_test(f"{MARKER}-rule", {"rule": f"{MARKER}-rule"}, tenant=number)
    await _add_bad_keys(store, sql, world)
    return world


async def _add_rows(store: Store, sql: Any, world: World, tenant: int) -> None:
    changes: list[dict[str, Any]] = [{}, {"name": f"{MARKER}-paused"}, {"name": f"{MARKER}-plain", "queue": "default"}]
    specs = [msgspec.convert(MARKED_JOB | change, JobSpec) for change in changes]
    job, paused, plain = await JobOperations(store).registration.add(specs, tenant=tenant)
    await JobOperations(store).lifecycle.pause(paused.id, f"{MARKER}-reason", tenant=tenant)
    world.job = str(job.id)
    secrets = SecretCommands(store, MasterKeys(read_master_keys(SECRET_KEY)))
    await secrets.set(tenant, f"{MARKER}-secret", f"{MARKER}-value", by=f"{MARKER}-author")
    dead = await JobOperations(store).lifecycle.trigger(job.id, tenant=tenant)
    await sql.execute("DELETE FROM live_runs WHERE job = $1", dead.job)
    await sql.execute(
        "INSERT INTO run_history (job, scheduled_at, token, node, started_at, finished_at, serial, revision, attempt,"
        " status, reason, result) VALUES ($1, $2, 1, 1, now(), now(), $3, 1, 1, 2, $4, $5)",
        *dead,
        f"{MARKER}-reason",
        f'"{MARKER}-result"',
    )
    await sql.execute(
        "INSERT INTO attempts (job, scheduled_at, serial, token, node, started_at, finished_at, attempt, outcome,"
        " error) VALUES ($1, $2, $3, 1, 1, now(), now(), 1, 'failed', $4)",
        *dead,
        f"{MARKER}-error",
    )
    line = OutputLine(1, 0, "info", f"{MARKER}-logger", f"{MARKER}-line")
    run = str(run_id(dead))
    await store.output.add([OutputChunk(run, 1, 1, 1, 1, 1, encode_lines([line]))])
    await store.output.add_progress([ProgressMark(run, 1, 0.5, f"{MARKER}-progress", 0.0)])
    world.dead_run = str(run_id(dead))
    await JobOperations(store).lifecycle.trigger(plain.id, tenant=tenant)
    task = msgspec.convert({**MARKED_TASK, "name": world.task_name}, JobSpec)
    await JobOperations(store).registration.add([task], tenant=tenant)
    waiting = NewRun(payload=f"{MARKER}-payload", unique_key=f"{MARKER}-key", concurrency_key=f"{MARKER}-place")
    await JobOperations(store).enqueuing.enqueue_one(waiting, name=world.task_name, tenant=tenant)
    world.run = str(run_id(await JobOperations(store).lifecycle.trigger(job.id, tenant=tenant)))


async def _add_bad_keys(store: Store, sql: Any, world: World) -> None:
    good = world.keys["rival"]["admin"]
    revoked = await store.keys.add("admin", tenant=DEFAULT_TENANT)
    await store.keys.revoke(revoked.id, tenant=DEFAULT_TENANT)
    expired = await store.keys.add("admin", tenant=DEFAULT_TENANT, expires_in_seconds=3600)
    await sql.execute("UPDATE api_keys SET expires_at = now() WHERE id = $1", expired.id)
    other_secret = f"dtn_{world.key}_{world.keys['acme']['admin'].rpartition('_')[2]}"
    world.bad_keys = {
        "revoked": f"Bearer {revoked.key}",
        "expired": f"Bearer {expired.key}",
        "of an unknown id": f"Bearer dtn_aaaaaaaaaa_{'a' * 52}",
        "with the secret of another": f"Bearer {other_secret}",
        "shortened": f"Bearer {good[:-1]}",
        "in capitals": f"Bearer {good.upper()}",
        "of another scheme": f"Basic {good}",
        "without a scheme": good,
        "empty": "Bearer ",
        "something else": "Bearer x'; DROP TABLE api_keys; --",
    }


async def rows_of_rival(sql: asyncpg.Connection) -> list[Any]:
    """All rows of the rival, which no other tenant may change."""
    owned = "SELECT job FROM jobs JOIN tenants t USING (tenant) WHERE t.name LIKE $1"
    rows: list[Any] = []
    for table in ("jobs", "cursors", "live_runs", "backlog", "unique_keys", "run_history", "attempts", "run_logs"):
        rows += await sql.fetch(f"SELECT * FROM {table} WHERE job IN ({owned}) ORDER BY {table}.*::text", f"{MARKER}%")
    for table in ("run_progress", "job_revisions"):
        rows += await sql.fetch(f"SELECT * FROM {table} WHERE job IN ({owned}) ORDER BY {table}.*::text", f"{MARKER}%")
    secrets = "SELECT s.* FROM {} s JOIN tenants t USING (tenant) WHERE t.name LIKE $1 ORDER BY s.*::text"
    for table in ("secrets", "secret_versions", "role_bindings", "alert_rules"):
        rows += await sql.fetch(secrets.format(table), f"{MARKER}%")
    rows += await sql.fetch(
        "SELECT k.id, k.digest, k.scope, k.revoked_at, k.expires_at FROM api_keys k JOIN tenants t USING (tenant)"
        " WHERE t.name LIKE $1 ORDER BY k.id",
        f"{MARKER}%",
    )
    return rows


def nobodys(world: World, text: str) -> str:
    """The same text with ids and names that do not exist, as long as those of the rival."""
    pairs = {
        world.job: "01980a3e-7c3f-7000-8000-00000000002a",
        world.run: _run_of_nobody(world.run),
        world.dead_run: _run_of_nobody(world.dead_run),
        world.key: "aaaaaaaaaa",
        MARKER: "xx7xxxxx",
    }
    return re.sub("|".join(map(re.escape, pairs)), lambda found: pairs[found[0]], text)


def _run_of_nobody(run: str) -> str:
    key = decode_run_id(UUID(run))
    assert key is not None
    return str(run_id(key._replace(job=(1 << 40) + 1)))
