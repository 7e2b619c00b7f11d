"""What a role for run time is granted: a role that nodes connect as, and that owns nothing.

Each privilege is here because a statement of `sql/` or a trigger needs it; `tests/security/test_database_roles.py` runs
the product with exactly these, and compares them with the statements. What only the owner of history can do (make,
detach and drop a partition) is done by functions that belong to the migrator and run with its rights.
"""

from __future__ import annotations

from detent.errors import Unavailable, UsageError
from detent.store import sql
from detent.store.connection import Connection

_READ = "SELECT"
_APPEND = "SELECT, INSERT, DELETE"
_ALL = "SELECT, INSERT, UPDATE, DELETE"

TABLES = {
    "api_keys": "SELECT, INSERT, UPDATE",
    "attempts": "SELECT, INSERT, UPDATE",
    "catchups": _ALL,
    "changes": _APPEND,
    "cluster": "SELECT, UPDATE",
    "cursors": _ALL,
    "elections": _APPEND,
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
    "limits": _ALL,
    "live_runs": _ALL,
    "node_take_overs": _ALL,
    "nodes": _ALL,
    "notices": _ALL,
    "partitions": "SELECT, UPDATE",
    "pull_leases": _ALL,
    "pull_workers": _ALL,
    "queues": _ALL,
    "request_budgets": "SELECT, INSERT, UPDATE",
    "requests": _ALL,
    "run_history": _ALL,
    "run_minutes": _ALL,
    "run_payloads": _APPEND,
    "runs": _READ,
    "schedules": _ALL,
    "schema_migrations": _READ,
    "segments": _ALL,
    "sessions": _ALL,
    "set_aside": _ALL,
    "set_aside_jobs": _READ,
    "skips": _ALL,
    "spans": _READ,
    "tally": "SELECT, UPDATE",
    "tenant_jobs": "SELECT, INSERT, UPDATE",
    "tenant_targets": _APPEND,
    "tenants": "SELECT, INSERT, UPDATE",
    "told_incidents": _READ,
    "turns": "SELECT, INSERT, UPDATE",
    "whereabouts": _READ,
}

FUNCTIONS = (
    "make_history_part(text, timestamptz)",
    "detach_history_part(text)",
    "drop_history_part(text)",
)
# The numbers of new jobs are taken in advance, several at a time.
SEQUENCES = ("jobs_job_seq",)


def statements(role: str, schema: str) -> list[str]:
    """They replace whatever the role had in this schema; `role` is quoted where it needs it."""
    inside = f'"{schema}"'
    kinds = ("TABLES", "SEQUENCES", "FUNCTIONS")
    every = [f"REVOKE ALL ON ALL {kind} IN SCHEMA {inside} FROM {role};" for kind in kinds]
    tables = [f"GRANT {privileges} ON {inside}.{table} TO {role};" for table, privileges in TABLES.items()]
    sequences = [f"GRANT USAGE ON SEQUENCE {inside}.{each} TO {role};" for each in SEQUENCES]
    functions = [f"GRANT EXECUTE ON FUNCTION {inside}.{each} TO {role};" for each in FUNCTIONS]
    return [*every, f"GRANT USAGE ON SCHEMA {inside} TO {role};", *tables, *sequences, *functions, _parts(role, schema)]


def _parts(role: str, schema: str) -> str:
    """Partitions of history, which are read and emptied under their own names once they are detached."""
    return sql.database.GRANT_PARTS.text.format(schema=schema, role=role.replace("'", "''"))


def script(role: str, schema: str) -> str:
    """The same for psql; `role` as it is called."""
    quoted = '"' + role.replace('"', '""') + '"'
    return "\n".join(["BEGIN;", *statements(quoted, schema), "COMMIT;"]) + "\n"


async def give(connection: Connection, role: str, schema: str) -> list[str]:
    """Grant the role what it needs for run time, and nothing else; returns the statements."""
    row = await connection.fetchrow(sql.database.READ_ROLE_RIGHTS.text, role)
    if row is None:
        raise UsageError(f"--runtime-role is {role!r}, and there is no such role: create it with CREATE ROLE … LOGIN.")
    if row["superuser"] or row["owner"]:
        what = "is a superuser" if row["superuser"] else "owns the tables"
        raise UsageError(
            f"--runtime-role is {role!r}, which {what}: give a role that nodes connect as and that owns nothing."
        )
    if not row["grantable"]:
        raise Unavailable(
            f"Only the owner of the tables can grant {role} what it needs: run this with the role that migrated them."
        )
    granted = statements(row["role"], schema)
    async with connection.transaction():
        for each in granted:
            await connection.execute(each)
    return granted
