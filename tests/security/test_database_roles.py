"""What a statement of the product can do to the database and to the machine of its server, even if it was injected."""

from __future__ import annotations

import re
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from detent.errors import UsageError
from detent.node.session import Session
from detent.settings.settings import Settings
from detent.store import Store, grants
from detent.store import embedded_host as host
from detent.store.db import connect
from detent.store.embedded import EmbeddedServer
from detent.store.statement import STATEMENTS
from detent.upkeep.archive import Folder
from detent.upkeep.retention import Keeper
from tests.api.api_client import ApiClient
from tests.api.api_server import Readiness, serving
from tests.support import factories
from tests.support.postgres import RUNTIME_ROLE, TENANT_ROLE, Postgres, as_runtime_role
from tests.support.sessions import no_op
from tests.support.waiting import until

FAST = {"fsync": "off", "full_page_writes": "off", "shared_buffers": "16MB"}
REFUSED = asyncpg.InsufficientPrivilegeError

BEYOND_THE_DATABASE = (
    "COPY (SELECT 1) TO PROGRAM 'id'",
    "COPY (SELECT 1) TO '/tmp/detent-written-by-the-server'",
    "SELECT pg_read_file('/etc/passwd')",
    "SELECT pg_ls_dir('/')",
    "SELECT lo_import('/etc/passwd')",
    "CREATE FUNCTION run(text) RETURNS integer LANGUAGE c AS 'libc.so.6', 'system'",
    "ALTER SYSTEM SET archive_command = 'id'",
    "CREATE ROLE another SUPERUSER",
    "ALTER ROLE CURRENT_USER SUPERUSER",
    "SET ROLE detent_admin",
    "SET SESSION AUTHORIZATION detent_admin",
    "CREATE DATABASE another",
    "SELECT passwd FROM pg_shadow",
)
BEYOND_ITS_WORK = (
    "DROP TABLE jobs",
    "TRUNCATE jobs",
    "ALTER TABLE jobs DISABLE TRIGGER USER",
    "ALTER TABLE run_history DETACH PARTITION {part}",
    "DROP TABLE {part}",
    "UPDATE {part} SET result = 'x'",
    "CREATE TABLE jobs_of_mine (job bigint)",
    "CREATE FUNCTION run_id(bigint, timestamptz, integer) RETURNS uuid LANGUAGE sql AS 'SELECT NULL::uuid'",
    "CREATE OR REPLACE FUNCTION drop_history_part(child text) RETURNS boolean LANGUAGE sql AS 'SELECT true'",
    "UPDATE schema_migrations SET sha256 = 'x'",
    "INSERT INTO history_parts (parent, name, since, until) VALUES ('attempts', 'jobs', '2020-01-01', '2020-01-02')",
    "UPDATE history_parts SET name = 'jobs'",
    "SELECT drop_history_part('jobs')",
    "SELECT detach_history_part('{part}')",
    "SELECT make_history_part('jobs', now())",
    "SELECT setval('jobs_job_seq', 1)",
    "ALTER ROLE CURRENT_USER BYPASSRLS",
)


# What no plan shows: what the triggers of `jobs` and `tenants` need, what the function does that enqueues, and what
# nodes of the version before on-demand runs write, which may share the role during an upgrade.
UNSEEN = {
    *(("expectations", "INSERT"), ("expectations", "DELETE"), ("tenant_jobs", "INSERT")),
    *(("unique_keys", "INSERT"), ("unique_keys", "UPDATE"), ("run_payloads", "INSERT")),
}


@pytest.fixture
def reach(database_url: str) -> dict[str, Any]:
    """The store of these tests has a role that owns nothing."""
    return {"url": as_runtime_role(database_url)}


@pytest.fixture
async def runtime(reach: dict[str, Any]) -> AsyncIterator[Any]:
    connection = await connect(reach["url"], "detent")
    yield connection
    await connection.close()


@pytest.fixture
async def api(database_url: str) -> AsyncIterator[ApiClient]:
    async with serving(as_runtime_role(database_url), Readiness({"database": True})) as client:
        yield client


@pytest.fixture
def data_dir() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="detent-test-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o711)
        yield Path(name) / "data"


def server_in(data_dir: Path) -> EmbeddedServer:
    return EmbeddedServer(data_dir, options=FAST, system_dir=data_dir.parent / "system")


# --- the embedded server ---


async def allowed(connection: Any, statements: Sequence[str]) -> list[str]:
    """Those that are not refused for want of a privilege."""
    found = []
    for statement in statements:
        try:
            await connection.execute(statement)
        except REFUSED:
            continue
        found.append(statement)
    return found


async def test_a_statement_of_the_product_reaches_nothing_outside_of_its_database(sql: Any) -> None:
    assert await allowed(sql, BEYOND_THE_DATABASE) == []


async def older_data_folder(data_dir: Path) -> None:
    """As older versions made it: one role, which is initdb's superuser, owns everything."""
    account = await host.account_for(data_dir / "postgres")
    binaries, _ = await host.binaries_for(account, host.bundled_binaries(), data_dir.parent / "system")
    await host.home_for(account, data_dir, data_dir.parent / "system")
    cluster = data_dir / "postgres"
    cluster.mkdir(mode=0o700)
    host.give(account, cluster)
    code, output = await host.run(
        account, binaries / "initdb", "-D", cluster, "-U", "detent", "--auth-local=trust", "--auth-host=reject",
        "--encoding=UTF8", "--locale=C", "--no-instructions", "--no-sync",
    )  # fmt: skip
    assert not code, output
    with (cluster / "postgresql.conf").open("a") as file:
        file.write("\ninclude_if_exists = 'detent.conf'\n")


OLDER_CONTENT = """
CREATE SCHEMA detent; SET search_path = detent;
CREATE TYPE mood AS ENUM ('glad'); CREATE TYPE pair AS (a integer, b integer); CREATE SEQUENCE apart;
CREATE TABLE kept (number bigint GENERATED ALWAYS AS IDENTITY, day date, mood mood) PARTITION BY RANGE (day);
CREATE TABLE kept_2020 PARTITION OF kept FOR VALUES FROM ('2020-01-01') TO ('2021-01-01');
CREATE VIEW seen AS SELECT * FROM kept;
CREATE FUNCTION answer() RETURNS integer LANGUAGE sql AS 'SELECT 42';
INSERT INTO kept (day, mood) VALUES ('2020-05-05', 'glad');
"""
OWNED_BY_SUPERUSER = """
SELECT count(*) FROM pg_shdepend d JOIN pg_database b ON b.oid = d.dbid
 WHERE b.datname = 'detent' AND d.refobjid = 'detent_admin'::regrole AND d.deptype = 'o'
"""


async def test_the_data_folder_of_an_older_version_keeps_its_rows_and_loses_its_superuser(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await older_data_folder(data_dir)
    with monkeypatch.context() as patch:
        patch.setattr("detent.store.embedded.needs_separation", _never)
        patch.setattr("detent.store.embedded.EmbeddedRoles.complete", _make_older_database)
        older = server_in(data_dir)
        await older.start()
    try:
        connection = await asyncpg.connect(older.url)
        await connection.execute(OLDER_CONTENT)
        await connection.execute("COPY (SELECT 1) TO PROGRAM 'cat > /dev/null'")  # this is what must not work
        await connection.close()
        for _ in range(2):
            async with server_in(data_dir) as server:
                await check_separated(server)
    finally:
        await older.stop()


async def check_separated(server: EmbeddedServer) -> None:
    connection = await asyncpg.connect(server.url, server_settings={"search_path": "detent"})
    assert tuple(await connection.fetchrow("SELECT number, mood FROM seen")) == (1, "glad")
    await connection.execute("INSERT INTO kept (day) VALUES ('2020-06-06'); DELETE FROM kept WHERE number > 1")
    await connection.execute("ALTER TABLE kept_2020 SET (fillfactor = 90); ALTER SEQUENCE apart RESTART")
    await connection.execute("CREATE OR REPLACE FUNCTION answer() RETURNS integer LANGUAGE sql AS 'SELECT 43'")
    assert await allowed(connection, BEYOND_THE_DATABASE) == []
    await connection.close()
    admin = await asyncpg.connect(server.admin_url)
    assert await admin.fetchval(OWNED_BY_SUPERUSER) == 0
    roles = await admin.fetch("SELECT rolname FROM pg_roles WHERE rolsuper")
    assert [row["rolname"] for row in roles] == ["detent_admin"]
    # As a start that was interrupted before its last step leaves it: the next one finishes it.
    await admin.execute("CREATE ROLE detent_substitute SUPERUSER LOGIN")
    await admin.close()


async def _never(_connection: Any) -> bool:
    return False


async def _make_older_database(roles: Any) -> None:
    async with roles._as("detent", "postgres") as connection:
        await connection.execute("CREATE DATABASE detent")


# --- a role for run time ---


async def test_the_role_for_run_time_can_do_nothing_beyond_its_work(runtime: Any) -> None:
    part = await runtime.fetchval("SELECT name FROM history_bounds WHERE parent = 'run_history' ORDER BY until DESC")
    statements = [statement.format(part=part) for statement in (*BEYOND_THE_DATABASE, *BEYOND_ITS_WORK)]
    assert await allowed(runtime, statements) == []


async def test_a_table_of_the_session_is_not_taken_for_one_of_the_functions_of_the_owner(runtime: Any) -> None:
    await runtime.execute(
        "CREATE TEMP TABLE history_parts AS SELECT 'jobs'::text AS name, 'run_history'::text AS parent,"
        " NULL::timestamptz AS dropped_at"
    )
    with pytest.raises(REFUSED):
        await runtime.execute("SELECT drop_history_part('jobs')")


async def test_every_table_and_view_is_in_the_grants(look: Any) -> None:
    rows = await look.fetch(
        "SELECT relname FROM pg_class WHERE relnamespace = 'detent'::regnamespace AND relkind IN ('r', 'p', 'v')"
        " AND NOT relispartition"
    )
    assert {row["relname"] for row in rows} == set(grants.TABLES)


def explainable() -> Iterator[tuple[str, str]]:
    """Every statement of run time that has a plan, with its name."""
    for name, statement in sorted(STATEMENTS.items()):
        if name.partition("/")[0] in ("migration", "embedded_role", "bench", "demo", "celery_beat"):
            continue
        if name == "task/enqueue_as_caller":  # for roles of applications
            continue
        text = re.sub(r"--[^\n]*\n", "\n", statement.text).strip()
        text = text.replace('"{schema}".', "")  # on connections of handlers
        if "{name}" in text:  # a partition of history, reached here by its parent
            table = {"history/archive_attempts": "attempts", "history/archive_logs": "run_logs"}.get(
                name, "run_history"
            )
            text = text.format(
                name=table,
                parent=table,
                key="job, scheduled_at, serial",
                same="p.job = late.job",
                verb="",
                ended="finished_at",
            )
        if re.match(r"SELECT|WITH|INSERT|UPDATE|DELETE", text):
            yield name, text


async def test_every_statement_is_allowed_to_the_role_for_run_time(runtime: Any) -> None:
    if runtime.get_server_version().major < 16:
        pytest.skip("older servers cannot explain a statement without its arguments")
    refused = []
    for name, text in explainable():
        try:
            await runtime.execute(f"EXPLAIN (GENERIC_PLAN) {text}")
        except REFUSED as error:
            refused.append(f"{name}: {error}")
    assert not refused


@pytest.mark.long
async def test_the_role_for_run_time_has_no_privilege_that_no_statement_needs(look: Any, runtime: Any) -> None:
    """Each privilege is taken away in turn, and a statement has to miss it."""
    idle = []
    for table, privileges in grants.TABLES.items():
        texts = [text for _, text in explainable() if table in text]
        for privilege in re.findall(r"[A-Z]+(?: \([^)]*\))?", privileges):
            await look.execute(f"REVOKE {privilege} ON {table} FROM {RUNTIME_ROLE}")
            needed = (table, privilege) in UNSEEN or await any_refused(runtime, texts)
            if not needed:
                idle.append(f"{privilege} on {table}")
            await look.execute(f"GRANT {privilege} ON {table} TO {RUNTIME_ROLE}")
    assert idle == []


async def any_refused(runtime: Any, texts: list[str]) -> bool:
    for text in texts:
        try:
            await runtime.execute(f"EXPLAIN (GENERIC_PLAN) {text}")
        except REFUSED:
            return True
    return False


async def acl(connection: Any) -> set[tuple[str, str, str]]:
    rows = await connection.fetch(
        "SELECT c.relname, a.privilege_type, a.grantee::regrole::text FROM pg_class c, aclexplode(c.relacl) a"
        " WHERE c.relnamespace = 'detent'::regnamespace AND a.grantee <> c.relowner"
        " UNION ALL SELECT c.relname || '.' || t.attname, a.privilege_type, a.grantee::regrole::text"
        " FROM pg_attribute t JOIN pg_class c ON c.oid = t.attrelid, aclexplode(t.attacl) a"
        " WHERE c.relnamespace = 'detent'::regnamespace"
    )
    return {(row[0], row[1], row[2]) for row in rows}


async def test_the_printed_script_grants_the_same_and_takes_away_what_was_granted_before(look: Any) -> None:
    granted = await acl(look)
    assert {grantee for _, _, grantee in granted} == {RUNTIME_ROLE, TENANT_ROLE}
    await look.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA detent TO {RUNTIME_ROLE}")
    assert await acl(look) > granted
    await look.execute(grants.script(RUNTIME_ROLE, "detent"))
    assert await acl(look) == granted


@pytest.mark.parametrize(("role", "reason"), [("nobody", "no such role"), ("detent", "owns the tables")])
async def test_a_role_that_is_not_there_or_owns_the_tables_is_granted_nothing(
    look: Any, role: str, reason: str
) -> None:
    with pytest.raises(UsageError, match=reason):
        await grants.give(look, role, "detent")


async def test_a_superuser_is_granted_nothing(look: Any) -> None:
    with pytest.raises(UsageError, match="superuser"):
        await grants.give(look, "detent_admin", "detent")


@pytest.fixture
async def odd_role(postgres: Postgres, database_url: str) -> AsyncIterator[str]:
    """A role whose name has every character that ends a quotation."""
    name = "odd \"$$' role"
    quoted = '"odd ""$$\' role"'
    await postgres.execute(f"CREATE ROLE {quoted} NOINHERIT")
    yield name
    admin = await asyncpg.connect(postgres.admin_url(urlsplit(database_url).path[1:]))
    await admin.execute(f"DROP OWNED BY {quoted}; DROP ROLE {quoted}")
    await admin.close()


async def test_a_role_of_any_name_is_granted_the_same(look: Any, odd_role: str) -> None:
    granted = {(what, privilege) for what, privilege, grantee in await acl(look) if grantee == RUNTIME_ROLE}
    await grants.give(look, odd_role, "detent")
    given = {(what, privilege) for what, privilege, grantee in await acl(look) if "odd" in grantee}
    assert given == granted
    await look.execute(grants.script(odd_role, "detent"))
    await look.execute(grants.wall_script(odd_role, "detent"))
    rule = await look.fetchval("SELECT qual FROM pg_policies WHERE tablename = 'jobs' AND policyname = 'one_tenant'")
    assert "'odd \"$$'' role'" in rule


@pytest.mark.parametrize("membership", ["INHERIT", "NOINHERIT"])
async def test_a_member_of_the_owner_is_granted_nothing(
    look: Any, postgres: Postgres, odd_role: str, membership: str
) -> None:
    """Without inheriting, too: one statement makes it the owner."""
    quoted = '"' + odd_role.replace('"', '""') + '"'
    await postgres.execute(f"GRANT detent TO {quoted}", f"ALTER ROLE {quoted} {membership}")
    for verb in (grants.give, grants.raise_wall):
        with pytest.raises(UsageError, match="a member of their owner: give a role that owns nothing"):
            await verb(look, odd_role, "detent")


async def test_a_role_that_bypasses_policies_is_no_wall(look: Any, postgres: Postgres, odd_role: str) -> None:
    quoted = '"' + odd_role.replace('"', '""') + '"'
    await postgres.execute(f"ALTER ROLE {quoted} BYPASSRLS")
    with pytest.raises(UsageError, match=r"to which no policy applies: run ALTER ROLE .* NOBYPASSRLS"):
        await grants.raise_wall(look, odd_role, "detent")


async def test_the_product_runs_as_a_role_that_owns_nothing(look: Any, store: Store, api: ApiClient) -> None:
    await store.tenants.add("acme")
    key = await store.keys.add("admin", tenant=1)
    api.session.headers["Authorization"] = f"Bearer {key.key}"
    job = await api.create(name="often", schedule="every 1s", retry_base_seconds=0)
    many = [{"name": f"many-{n}", "schedule": "every 1h", "target": job["target"]} for n in range(20)]
    await api.good("POST", "/api/v1/jobs/batch", json=many)
    session = Session(store, Settings(concurrency=10), ("scheduler", "worker"), {"http": no_op}, [])
    await session.open()
    try:
        await api.good("POST", f"/api/v1/jobs/{job['id']}/trigger", 202)
        done = "SELECT count(*) >= 2 FROM run_history h JOIN jobs j USING (job) WHERE j.name = 'often' AND h.status = 1"
        await until(lambda: look.fetchval(done), what="runs by the clock and by hand")
        await api.good("PATCH", f"/api/v1/jobs/{job['id']}", json={"expect_start_within": 60})
        await api.good("DELETE", f"/api/v1/jobs/{job['id']}", 204)
    finally:
        await session.close(0)


async def old_history(look: Any, runtime: Any) -> datetime:
    """History with one day, of long ago, that was made by the role for run time; its beginning."""
    for row in await look.fetch("SELECT name FROM history_bounds"):
        await look.execute(f"DROP TABLE {row['name']}")
    await look.execute("DELETE FROM history_parts")
    first: datetime = await look.fetchval("SELECT date_trunc('day', now(), 'UTC') - interval '200 days'")
    await runtime.fetch("SELECT make_history_day($1)", first.date())
    await look.execute("UPDATE history_parts SET made_at = until")
    return first


async def test_a_role_that_does_not_own_history_makes_archives_and_drops_its_partitions(
    look: Any, store: Store, runtime: Any, tmp_path: Path
) -> None:
    """Made ahead and on demand, detached, emptied of what ended lately, archived and dropped."""
    job = await factories.add_job(look, None)
    first = await old_history(look, runtime)
    for serial, finished in enumerate((first, first + timedelta(days=200))):
        await look.execute(
            "INSERT INTO run_history (job, scheduled_at, token, finished_at, serial, revision, attempt, status)"
            " VALUES ($1, $2, 1, $3, $4, 1, 1, 1)", job, first, finished, serial
        )  # fmt: skip
    await Keeper(store, 1, 90, Folder(tmp_path), lambda: None).tick()
    parts = await look.fetch("SELECT name, rows FROM history_parts WHERE dropped_at IS NOT NULL ORDER BY name DESC")
    assert [row["rows"] for row in parts] == [0, 1, 0]
    assert await look.fetchval("SELECT to_regclass($1) IS NULL", parts[1]["name"])
    assert await look.fetchval("SELECT serial FROM run_history WHERE job = $1", job) == 1
    assert await store.upkeep.make_history_days(7) == 8


async def test_a_detach_by_the_owners_function_waits_for_a_reader_no_longer_than_it_may_block_others(
    look: Any, runtime: Any
) -> None:
    await old_history(look, runtime)
    name = await look.fetchval("SELECT name FROM history_bounds WHERE parent = 'run_history'")
    async with look.transaction():
        await look.fetch("SELECT count(*) FROM run_history")
        with pytest.raises(asyncpg.LockNotAvailableError):
            await runtime.execute("SELECT detach_history_part($1)", name)
    await runtime.execute("SELECT detach_history_part($1)", name)
    assert await runtime.fetchval("SELECT drop_history_part($1)", name)
