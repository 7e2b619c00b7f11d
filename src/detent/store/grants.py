"""The privileges of the run-time role: the role that nodes connect as, which owns nothing.

Each privilege is here because a statement of `sql/` or a trigger needs it; `tests/security/test_database_roles.py` runs
the product with exactly these, and compares them with the statements. What only the owner of history can do (create,
detach and drop a partition) is done by functions that belong to the owner role and run with its rights.
"""

from __future__ import annotations

from detent.errors import Unavailable, UsageError
from detent.store import sql
from detent.store.connection import Connection

TENANT_FLAG = "--tenant-role"

_READ = "SELECT"
_APPEND = "SELECT, INSERT, DELETE"
_ALL = "SELECT, INSERT, UPDATE, DELETE"

TABLES = {
    # Added by note_alert_event.
    "alert_events": "SELECT, UPDATE, DELETE",
    "alert_jobs": _ALL,
    "alert_rules": _ALL,
    "alerts": _ALL,
    "api_keys": _ALL,
    "attempts": _ALL,
    "audit_chain": _READ,
    # Added, never changed: `position` and the hashes are written by chain_audit_events.
    "audit_events": "SELECT, INSERT (tenant, tenant_name, actor_kind, actor_id, actor_name, address, action, "
    "object_kind, object_id, object_name, before, after, request_id)",
    "backlog": _ALL,
    "backlog_heads": _READ,
    "callback_keys": "SELECT, INSERT",
    "catchups": _ALL,
    "changes": _APPEND,
    "cluster": "SELECT, UPDATE",
    "cursors": _ALL,
    # Added by note_dead_letter.
    "dead_letters": "SELECT, UPDATE, DELETE",
    "effect_marks": _ALL,
    "elections": _APPEND,
    "enqueue_grants": _APPEND,
    "expectations": _ALL,
    "former_nodes": _ALL,
    "history_bounds": _READ,
    # Not its name: drop_history_part drops what this table names.
    "history_parts": "SELECT, UPDATE (detached_at, archive, rows, sha256, archived_at, dropped_at)",
    "incidents": _ALL,
    "job_counts": _ALL,
    "job_reservations": _ALL,
    "job_revisions": _APPEND,
    "jobs": _ALL,
    "key_places": _ALL,
    "key_rates": _ALL,
    "limits": _ALL,
    "live_runs": _ALL,
    "node_take_overs": _ALL,
    "nodes": _ALL,
    "notices": _ALL,
    "partitions": "SELECT, UPDATE",
    "pull_leases": _ALL,
    "pull_workers": _ALL,
    "queues": _ALL,
    "request_budgets": _ALL,
    "requests": _ALL,
    "role_bindings": _APPEND,
    "run_history": _ALL,
    "run_logs": _ALL,
    "run_minutes": _ALL,
    "run_payloads": _APPEND,
    "run_progress": _ALL,
    "run_steps": _ALL,
    "runs": _READ,
    "schedules": _ALL,
    "schema_migrations": _READ,
    "secret_versions": _ALL,
    "secrets": _ALL,
    "segments": _ALL,
    "sessions": _ALL,
    "set_aside": _ALL,
    "set_aside_jobs": _READ,
    "skips": _ALL,
    "spans": _READ,
    "suspended_queues": _APPEND,
    "tally": "SELECT, UPDATE",
    "tenant_jobs": _ALL,
    "tenant_targets": _APPEND,
    "tenants": _ALL,
    "told_incidents": _READ,
    "turns": "SELECT, INSERT, UPDATE",
    "unique_keys": _ALL,
    "whereabouts": _READ,
}

# Whose rows name their tenant, and whose rows belong to a job.
OF_TENANTS = (
    *(
        "alert_rules",
        "alerts",
        "api_keys",
        "audit_events",
        "enqueue_grants",
        "incidents",
        "job_counts",
        "job_reservations",
        "jobs",
        "limits",
    ),
    *(
        "pull_leases",
        "pull_workers",
        "queues",
        "request_budgets",
        "requests",
        "role_bindings",
        "run_minutes",
        "secret_versions",
        "secrets",
    ),
    *("tenant_jobs", "tenant_targets", "tenants"),
)
# Not history itself: under a policy the server no longer says for which time a partition is missing, and a node has to
# know it to add one.
OF_JOBS = (
    *(
        "alert_events",
        "alert_jobs",
        "backlog",
        "catchups",
        "cursors",
        "dead_letters",
        "expectations",
        "job_revisions",
        "live_runs",
        "run_payloads",
    ),
    *("run_progress", "run_steps", "segments", "set_aside", "skips", "unique_keys"),
)
# Whose rows have a scope: a job, or below zero the tenant whose jobs share the keys.
OF_SCOPES = ("effect_marks", "key_places", "key_rates")
VIEWS = ("backlog_heads", "runs", "set_aside_jobs", "spans", "told_incidents")

FUNCTIONS = (
    "make_history_part(text, timestamptz)",
    "detach_history_part(text)",
    "drop_history_part(text)",
    "chain_audit_events(bigint, bigint[], bytea[])",
    "purge_audit_events(timestamptz, integer)",
    "grant_enqueue(text)",
    "revoke_enqueue(text)",
)
# The numbers of new jobs are taken in advance, several at a time; the serials of on-demand runs by enqueue_runs.
SEQUENCES = ("jobs_job_seq", "on_demand_serials")


def statements(role: str, schema: str) -> list[str]:
    """They replace all that the role had in this schema; `role` is quoted where it needs it."""
    return [*_of_tables(role, schema), _parts(role, schema)]


def wall_statements(role: str, schema: str) -> list[str]:
    """Statements for the role that requests of a tenant use: it has the privileges of a node, and sees only the rows of
    that tenant.

    The policies restrict this role and no other, not even roles that inherit its rights. Rows of jobs are not checked
    when they are inserted: the statement that inserts a job, and cannot see it yet, inserts these too."""
    inside = f'"{schema}"'
    other = f"current_user <> '{_unquoted(role)}'"
    number = "nullif(current_setting('detent.tenant', true), '')::integer"
    tenant = f"{other} OR tenant = {number}"
    lines = _of_tables(role, schema)
    for table in OF_TENANTS:
        lines += _policies(f"{inside}.{table}", role, f"USING ({tenant})")
    for table in OF_JOBS:
        own = f"{other} OR EXISTS (SELECT FROM {inside}.jobs j WHERE j.job = {table}.job)"
        lines += _policies(f"{inside}.{table}", role, f"USING ({own}) WITH CHECK (true)")
    for table in OF_SCOPES:
        own = f"{other} OR scope = -{number} OR EXISTS (SELECT FROM {inside}.jobs j WHERE j.job = {table}.scope)"
        lines += _policies(f"{inside}.{table}", role, f"USING ({own}) WITH CHECK (true)")
    # A view reads as its owner otherwise, who is subject to no policy.
    return lines + [f"ALTER VIEW {inside}.{view} SET (security_invoker = true);" for view in VIEWS]


def _policies(table: str, role: str, rule: str) -> list[str]:
    return [
        f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;",
        *(f"DROP POLICY IF EXISTS {name} ON {table};" for name in ("everybody", "one_tenant")),
        f"CREATE POLICY everybody ON {table} USING (true) WITH CHECK (true);",
        f"CREATE POLICY one_tenant ON {table} AS RESTRICTIVE TO {role} {rule};",
    ]


def _of_tables(role: str, schema: str) -> list[str]:
    inside = f'"{schema}"'
    kinds = ("TABLES", "SEQUENCES", "FUNCTIONS")
    every = [f"REVOKE ALL ON ALL {kind} IN SCHEMA {inside} FROM {role};" for kind in kinds]
    tables = [f"GRANT {privileges} ON {inside}.{table} TO {role};" for table, privileges in TABLES.items()]
    sequences = [f"GRANT USAGE ON SEQUENCE {inside}.{each} TO {role};" for each in SEQUENCES]
    functions = [f"GRANT EXECUTE ON FUNCTION {inside}.{each} TO {role};" for each in FUNCTIONS]
    return [*every, f"GRANT USAGE ON SCHEMA {inside} TO {role};", *tables, *sequences, *functions]


def _parts(role: str, schema: str) -> str:
    """Partitions of history, which are read and emptied under their own names once they are detached."""
    mark = f"${'p' * (len(role) + 1)}$"  # longer than the name of the role, which therefore cannot end the block
    return sql.database.GRANT_PARTS.text.format(mark=mark, schema=schema, role=role.replace("'", "''"))


def _unquoted(role: str) -> str:
    name = role[1:-1].replace('""', '"') if role.startswith('"') else role
    return name.replace("'", "''")


def script(role: str, schema: str) -> str:
    """The grants of run time for psql; `role` as it is called."""
    return _script(statements(_quoted(role), schema))


def wall_script(role: str, schema: str) -> str:
    return _script(wall_statements(_quoted(role), schema))


def _script(lines: list[str]) -> str:
    return "\n".join(["BEGIN;", *lines, "COMMIT;"]) + "\n"


def _quoted(role: str) -> str:
    return '"' + role.replace('"', '""') + '"'


async def give(connection: Connection, role: str, schema: str) -> list[str]:
    """Grant the role what it needs for run time, and nothing else; returns the statements."""
    return await _execute(connection, statements(await _checked(connection, "--runtime-role", role), schema))


async def raise_wall(connection: Connection, role: str, schema: str) -> list[str]:
    """Hold connections that take on this role to one tenant; returns the statements."""
    return await _execute(connection, wall_statements(await _checked(connection, TENANT_FLAG, role), schema))


async def _checked(connection: Connection, flag: str, role: str) -> str:
    row = await connection.fetchrow(sql.database.READ_ROLE_RIGHTS.text, role)
    if row is None:
        raise UsageError(f"{flag} is {role!r}, and there is no such role: create it with CREATE ROLE.")
    if row["superuser"] or row["owner"]:
        what = "is a superuser" if row["superuser"] else "owns the tables or is a member of their owner"
        raise UsageError(f"{flag} is {role!r}, which {what}: give a role that owns nothing.")
    if row["bypasses"] and flag == TENANT_FLAG:
        raise UsageError(f"{flag} is {role!r}, to which no policy applies: run ALTER ROLE {row['role']} NOBYPASSRLS.")
    if not row["grantable"]:
        raise Unavailable(
            f"Only the owner of the tables can grant {role} what it needs: run this with the role that migrated them."
        )
    return str(row["role"])


async def _execute(connection: Connection, lines: list[str]) -> list[str]:
    async with connection.transaction():
        for each in lines:
            await connection.execute(each)
    return lines
