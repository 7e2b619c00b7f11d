"""Migrations on a real server: once, in order, by one process, and never over objects that detent did not create."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from detent.errors import Unavailable
from detent.jobs import older_nodes
from detent.store import migrate
from detent.store.db import connect
from detent.store.limits import STANDARD
from tests.support.postgres import Postgres
from tests.support.waiting import until

ON_DEMAND_RUNS = 21
HASHED_BY_NAME = next(each.version for each in migrate.known() if each.name.endswith("hashed_by_name"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "0001_first.sql").write_text("CREATE TABLE first (a integer);\nINSERT INTO first VALUES (1);\n")
    return tmp_path


@asynccontextmanager
async def opened(url: str, schema: str = "detent") -> AsyncIterator[Any]:
    connection = await connect(url, schema)
    try:
        yield connection
    finally:
        await connection.close()


@pytest.fixture
async def connection(empty_database_url: str) -> AsyncIterator[Any]:
    async with opened(empty_database_url) as connection:
        yield connection


async def refusal(work: Any) -> str:
    with pytest.raises(Unavailable) as caught:
        await work
    return caught.value.message


async def test_migrations_are_applied_once_and_in_order(connection: Any, folder: Path) -> None:
    (folder / "0002_second.sql").write_text("ALTER TABLE first ADD COLUMN b integer DEFAULT 2;\n")
    assert await migrate.migrate(connection, folder) == ["0001_first", "0002_second"]
    assert await migrate.migrate(connection, folder) == []
    assert tuple(await connection.fetchrow("SELECT a, b FROM detent.first")) == (1, 2)
    states = await migrate.status(connection, folder)
    assert [(state.version, state.name, state.state) for state in states] == [
        (1, "0001_first", "applied"),
        (2, "0002_second", "applied"),
    ]
    assert all(state.applied_at is not None and len(state.sha256) == 64 for state in states)


async def test_a_later_release_applies_only_what_is_new(connection: Any, folder: Path) -> None:
    await migrate.migrate(connection, folder)
    (folder / "0002_second.sql").write_text("CREATE TABLE second (a integer);\n")
    assert [migration.name for migration in await migrate.pending(connection, folder)] == ["0002_second"]
    assert await migrate.migrate(connection, folder) == ["0002_second"]


async def test_looking_at_an_empty_database_changes_nothing(connection: Any, folder: Path) -> None:
    states = await migrate.status(connection, folder)
    assert [state.state for state in states] == ["pending"]
    assert await connection.fetchval("SELECT count(*) FROM pg_namespace WHERE nspname = 'detent'") == 0


async def test_a_database_that_was_not_migrated_is_refused_with_what_to_run(connection: Any, folder: Path) -> None:
    name = await connection.fetchval("SELECT current_database()")
    assert await refusal(migrate.check(connection, folder)) == (
        f"The database {name} has not been migrated (0 of 1 migrations applied): "
        "run `detent db migrate` or start with --migrate."
    )
    await migrate.migrate(connection, folder)
    await migrate.check(connection, folder)


async def test_a_file_that_was_changed_after_it_was_applied_is_refused_by_name(connection: Any, folder: Path) -> None:
    await migrate.migrate(connection, folder)
    (folder / "0001_first.sql").write_text("CREATE TABLE other (a integer);\n")
    for work in (migrate.check(connection, folder), migrate.migrate(connection, folder)):
        assert (await refusal(work)).startswith("Migration 0001_first.sql was changed after it was applied to ")
    assert [state.state for state in await migrate.status(connection, folder)] == ["changed"]


async def test_a_database_of_a_newer_release_is_refused(connection: Any, folder: Path) -> None:
    newer = folder / "0002_future.sql"
    newer.write_text("CREATE TABLE future (a integer);\n")
    await migrate.migrate(connection, folder)
    newer.unlink()
    for work in (migrate.check(connection, folder), migrate.migrate(connection, folder)):
        sentence = await refusal(work)
        assert "was made by a newer detent (it has migration 0002_future" in sentence
    assert [state.state for state in await migrate.status(connection, folder)] == ["applied", "unknown"]


async def test_a_migration_that_names_this_release_as_compatible_is_no_reason_to_refuse(
    connection: Any, folder: Path
) -> None:
    newer = [folder / "0002_wider.sql", folder / "0003_wider_still.sql"]
    newer[0].write_text("-- detent: compatible with 0001\nALTER TABLE first ADD COLUMN b integer;\n")
    newer[1].write_text(
        "-- detent: no-transaction\n-- detent: compatible with 0001\n"
        "CREATE INDEX CONCURRENTLY IF NOT EXISTS first_b ON first (b);\n"
    )
    await migrate.migrate(connection, folder)
    for file in newer:
        file.unlink()
    await migrate.check(connection, folder)
    assert await migrate.migrate(connection, folder) == []
    assert [state.state for state in await migrate.status(connection, folder)] == ["applied", "newer", "newer"]


async def test_every_unknown_migration_must_name_this_release(connection: Any, folder: Path) -> None:
    newer = [folder / "0002_other.sql", folder / "0003_wider.sql"]
    newer[0].write_text("ALTER TABLE first RENAME COLUMN a TO z;\n")
    newer[1].write_text("-- detent: compatible with 0002\nALTER TABLE first ADD COLUMN b integer;\n")
    await migrate.migrate(connection, folder)
    newer[1].unlink()
    await migrate.check(connection, folder)
    newer[0].unlink()
    assert "it has migration 0002_other" in await refusal(migrate.check(connection, folder))
    assert [state.state for state in await migrate.status(connection, folder)] == ["applied", "unknown", "unknown"]


@pytest.mark.parametrize("directive", ["compatible with 0002", "compatible with 1", "no transaction"])
def test_a_migration_that_asks_for_what_there_is_not_is_refused(folder: Path, directive: str) -> None:
    (folder / "0002_odd.sql").write_text(f"-- detent: {directive}\nSELECT 1;\n")
    with pytest.raises(ValueError, match=r"0002_odd\.sql has an unknown directive"):
        migrate.known(folder)


async def test_a_table_of_migrations_without_compatibility_is_read_and_widened(connection: Any, folder: Path) -> None:
    await migrate.migrate(connection, folder)
    await connection.execute("ALTER TABLE schema_migrations DROP COLUMN compatible")
    await migrate.check(connection, folder)
    (folder / "0002_second.sql").write_text("-- detent: compatible with 0001\nSELECT 1;\n")
    assert await migrate.migrate(connection, folder) == ["0002_second"]
    assert await connection.fetchval("SELECT compatible FROM schema_migrations WHERE version = 2") == 1


NODES = """
CREATE TABLE nodes (
    node bigint, evicted boolean, expires_at timestamptz, host text, pid integer, roles text[], knows integer
);
INSERT INTO nodes VALUES (1, false, now() + interval '1 hour', 'here', 7, '{scheduler,worker}', 2),
                         (2, true, now() + interval '1 hour', 'here', 8, '{worker}', 1),
                         (3, false, now() - interval '1 hour', 'here', 9, '{worker}', 1);
"""


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrate, "_NODES_PATIENCE", 0.2)


@pytest.mark.usefixtures("impatient")
async def test_a_migration_is_not_applied_under_nodes_that_could_not_work_with_it(
    connection: Any, folder: Path
) -> None:
    (folder / "0002_nodes.sql").write_text(NODES)
    await migrate.migrate(connection, folder)
    for directive in ("", "-- detent: no-transaction\n"):
        (folder / "0003_other.sql").write_text(f"{directive}DROP TABLE IF EXISTS first;\n")
        assert await refusal(migrate.migrate(connection, folder)) == (
            "Migration 0003_other.sql cannot be applied while nodes run that could not work with it "
            "(scheduler+worker on here, process 7): stop them first."
        )
    (folder / "0003_other.sql").write_text("-- detent: compatible with 0002\nDROP TABLE first;\n")
    assert await migrate.migrate(connection, folder) == ["0003_other"]


async def test_a_migration_waits_for_a_node_that_was_killed_a_moment_ago(connection: Any, folder: Path) -> None:
    (folder / "0002_nodes.sql").write_text(NODES.replace("'1 hour', 'here', 7", "'300 ms', 'here', 7"))
    (folder / "0003_other.sql").write_text("DROP TABLE first;\n")
    assert await migrate.migrate(connection, folder) == ["0001_first", "0002_nodes", "0003_other"]


async def test_a_node_joins_before_a_migration_or_after_it(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A migration that began while a node was joining finds that node; a node that comes during one waits for its end,
    and finds the schema changed."""
    ours = [migration.text for migration in migrate.known()]
    for migration in migrate.known():
        (tmp_path / migration.file).write_text(migration.text)
    last = len(ours) + 1
    (tmp_path / f"{last:04}_other.sql").write_text("DROP TABLE changes;\n")
    monkeypatch.setattr(migrate, "_NODES_PATIENCE", 0.2)
    async with opened(database_url) as migrator, opened(database_url) as joining:
        async with joining.transaction():
            await migrate.may_join(joining)
            migrating = asyncio.create_task(migrate.migrate(migrator, tmp_path))
            await until(lambda: is_waiting(joining), what="the migration to wait for the node")
            await joining.execute(
                "INSERT INTO nodes (node, ttl, expires_at, host, pid, roles, version, tzdata, knows)"
                " VALUES (1, '1 hour', now() + interval '1 hour', 'here', 7, '{worker}', '', '', $1)",
                len(ours),
            )
        assert "worker on here, process 7" in await refusal(migrating)
        await joining.execute("DELETE FROM nodes")
        assert len(await migrate.migrate(migrator, tmp_path)) == 1
        with pytest.raises(Unavailable, match="was made by a newer detent"):
            async with joining.transaction():
                await migrate.may_join(joining)


async def is_waiting(connection: Any) -> bool:
    answer: bool = await connection.fetchval(
        "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND locktype = 'advisory')"
    )
    return answer


async def test_a_node_that_comes_during_a_migration_is_reported(database_url: str) -> None:
    async with opened(database_url) as migrator, opened(database_url) as joining:
        async with migrator.transaction():
            key = await migrate._key(migrator, "join")
            await migrator.execute(f"SELECT pg_advisory_xact_lock({key})")
            await joining.execute("SET lock_timeout = '50ms'")
            async with joining.transaction():
                sentence = await refusal(migrate.may_join(joining))
        assert sentence.endswith(" is being migrated: try again when that is done.")


async def test_a_migration_that_fails_leaves_nothing_behind(connection: Any, folder: Path) -> None:
    bad = folder / "0002_bad.sql"
    bad.write_text("CREATE TABLE half (a integer);\nSELECT 1 / 0;\n")
    sentence = await refusal(migrate.migrate(connection, folder))
    assert sentence == "Migration 0002_bad.sql failed, nothing of it was kept: division by zero."
    assert await connection.fetchval("SELECT to_regclass('detent.half')") is None
    assert [state.state for state in await migrate.status(connection, folder)] == ["applied", "pending"]
    bad.write_text("CREATE TABLE half (a integer);\n")
    assert await migrate.migrate(connection, folder) == ["0002_bad"]


async def test_an_index_can_be_built_outside_a_transaction(connection: Any, folder: Path) -> None:
    (folder / "0002_index.sql").write_text(
        "-- detent: no-transaction\nCREATE INDEX CONCURRENTLY IF NOT EXISTS first_a ON first (a);\n"
    )
    assert await migrate.migrate(connection, folder) == ["0001_first", "0002_index"]
    assert await connection.fetchval("SELECT to_regclass('detent.first_a')::text") == "first_a"


async def test_two_concurrent_migrators_apply_everything_once(empty_database_url: str, folder: Path) -> None:
    (folder / "0002_slow.sql").write_text("SELECT pg_sleep(0.3);\nCREATE TABLE slow (a integer);\n")
    (folder / "0003_index.sql").write_text("-- detent: no-transaction\nCREATE INDEX CONCURRENTLY slow_a ON slow (a);\n")
    async with opened(empty_database_url) as one, opened(empty_database_url) as two:
        results = await asyncio.gather(migrate.migrate(one, folder), migrate.migrate(two, folder))
    assert sorted(results, key=len) == [[], ["0001_first", "0002_slow", "0003_index"]]


async def test_waiting_for_another_migrator_has_an_end(empty_database_url: str, folder: Path) -> None:
    (folder / "0002_stuck.sql").write_text("SELECT pg_sleep(60);\n")
    async with opened(empty_database_url) as one, opened(empty_database_url) as two:
        stuck = asyncio.create_task(migrate.migrate(one, folder))
        await until(lambda: is_sleeping(two), what="the first migrator to be in its second file")
        sentence = await refusal(migrate.migrate(two, folder, patience=0.1))
        assert sentence.startswith("Another detent has been migrating the database ")
        await two.execute(
            "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(60)%'"
            " AND pid <> pg_backend_pid()"
        )
        assert "canceling statement" in await refusal(stuck)
        (folder / "0002_stuck.sql").write_text("SELECT 1;\n")
        assert await migrate.migrate(two, folder) == ["0002_stuck"]


async def is_sleeping(connection: Any) -> bool:
    answer: bool = await connection.fetchval(
        "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database())"
    )
    return answer


async def test_a_migration_may_take_longer_than_the_limits_of_its_connection(
    empty_database_url: str, folder: Path
) -> None:
    (folder / "0002_slow.sql").write_text("SELECT pg_sleep(0.5);\n")
    connection = await connect(empty_database_url, "detent", STANDARD._replace(statement=0.2))
    try:
        assert await migrate.migrate(connection, folder) == ["0001_first", "0002_slow"]
        assert await connection.fetchval("SHOW statement_timeout") == "200ms"
        assert await connection.fetchval("SHOW lock_timeout") == "2s"
    finally:
        await connection.close()


async def test_two_schemas_of_one_database_are_migrated_apart(empty_database_url: str, folder: Path) -> None:
    async with opened(empty_database_url, "blue") as blue, opened(empty_database_url, "green") as green:
        assert await migrate.migrate(blue, folder) == ["0001_first"]
        assert await migrate.migrate(green, folder) == ["0001_first"]
        assert await blue.fetchval("SELECT count(*) FROM green.first") == 1


async def test_a_user_without_rights_is_reported_who_has_to_migrate(
    empty_database_url: str, folder: Path, postgres: Postgres
) -> None:
    await postgres.execute("DROP ROLE IF EXISTS clerk", "CREATE ROLE clerk LOGIN")
    try:
        async with opened(empty_database_url.replace("//detent@", "//clerk@")) as clerk:
            sentence = await refusal(migrate.migrate(clerk, folder))
            assert "permission denied" in sentence
            assert sentence.endswith("let its owner run `detent db migrate`.")
    finally:
        await postgres.execute("DROP ROLE clerk")


async def test_a_server_older_than_15_is_refused(connection: Any, folder: Path) -> None:
    class Older:
        def __getattr__(self, name: str) -> Any:
            return getattr(connection, name)

        def get_server_version(self) -> Any:
            return SimpleNamespace(major=14, minor=9)

    sentence = await refusal(migrate.check(Older(), folder))
    assert sentence.endswith(" is PostgreSQL 14.9: detent needs PostgreSQL 15 or newer.")


async def test_the_printed_script_does_the_same_as_the_runner(
    postgres: Postgres, empty_database_url: str, connection: Any, folder: Path
) -> None:
    (folder / "0002_index.sql").write_text(
        "-- detent: no-transaction\nCREATE INDEX CONCURRENTLY IF NOT EXISTS first_a ON first (a)\n"
    )
    psql = postgres.server.binaries / "psql"
    script = migrate.script("detent", folder)
    command: list[str | Path] = [psql, "--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", empty_database_url]
    await asyncio.to_thread(subprocess.run, command, input=script, text=True, check=True)
    await migrate.check(connection, folder)
    assert await migrate.migrate(connection, folder) == []


def test_badly_numbered_files_are_refused(folder: Path) -> None:
    (folder / "0003_gap.sql").write_text("SELECT 1;\n")
    with pytest.raises(ValueError, match="not numbered"):
        migrate.known(folder)
    (folder / "0003_gap.sql").rename(folder / "second.sql")
    with pytest.raises(ValueError, match="not named"):
        migrate.known(folder)


async def test_our_own_migrations_leave_nothing_pending(database_url: str) -> None:
    async with opened(database_url) as connection:
        await migrate.check(connection)
        states = await migrate.status(connection)
        assert states
        assert {state.state for state in states} == {"applied"}


async def test_our_own_script_can_be_run_by_hand(postgres: Postgres, empty_database_url: str, connection: Any) -> None:
    command: list[str | Path] = [postgres.server.binaries / "psql", "--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1"]
    await asyncio.to_thread(
        subprocess.run,
        [*command, empty_database_url],
        input=migrate.script(),
        text=True,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    await migrate.check(connection)


async def test_the_migration_to_on_demand_runs_takes_no_part_in_a_deadlock(
    empty_database_url: str, tmp_path: Path
) -> None:
    """A statement of a running node has locked the cursors, and locks the live runs next."""
    for migration in migrate.known()[: ON_DEMAND_RUNS - 1]:
        (tmp_path / migration.file).write_text(migration.text)
    async with opened(empty_database_url) as ours, opened(empty_database_url) as node:
        await migrate.migrate(ours, tmp_path)
        async with node.transaction():
            await node.execute("LOCK TABLE cursors IN ROW EXCLUSIVE MODE")
            migrating = asyncio.create_task(migrate.migrate(ours))
            await until(lambda: waits_for_a_lock(node), what="the migration to wait")
            await node.execute("LOCK TABLE live_runs IN ROW EXCLUSIVE MODE")
        assert await migrating == [each.name for each in migrate.known()[ON_DEMAND_RUNS - 1 :]]
        assert await ours.fetchval("SHOW lock_timeout") == "2s"


async def waits_for_a_lock(connection: Any) -> bool:
    answer: bool = await connection.fetchval(
        "SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database"
        " WHERE NOT l.granted AND d.datname = current_database())"
    )
    return answer


async def test_a_job_whose_h_was_hashed_from_its_number_or_whose_weekday_has_two_readings_keeps_its_times(
    empty_database_url: str, tmp_path: Path
) -> None:
    for migration in migrate.known()[: HASHED_BY_NAME - 1]:
        (tmp_path / migration.file).write_text(migration.text)
    written: dict[str, Any] = {
        "text": {"schedule": "H 3 * * *", "dialect": "unix"},
        "object": {"schedule": {"cron": "H 3 * * ?"}, "dialect": "quartz"},
        "two readings": {"schedule": "0 14 ? * 2#1", "dialect": "unix"},
        "in a zone": {"schedule": {"cron": "CRON_TZ=Asia/Tokyo  0 0 14 ? 1-6  MON,3 2030"}},
        "quartz": {"schedule": "0 0 14 ? * 2#1", "dialect": "quartz"},
        "named": {"schedule": "0 14 ? 2 FRI", "dialect": "unix"},
        "day": {"schedule": "0 14 1 2 ?", "dialect": "unix"},
        "thursday": {"schedule": "0 3 * * THU", "dialect": "unix"},
        "task": {"schedule": None, "dialect": "unix"},
    }
    async with opened(empty_database_url) as ours:
        await migrate.migrate(ours, tmp_path)
        for name, definition in written.items():
            await insert_job(ours, name, definition)
        await migrate.migrate(ours)
        rows = await ours.fetch("SELECT name, definition FROM detent.jobs")
    assert HASHED_BY_NAME == older_nodes.SCHEDULES_OF_OTHERS
    now = {row["name"]: json.loads(row["definition"]) for row in rows}
    pinned = {"schedule": "17 3 * * *", "dialect": "unix"}
    assert now == {**written, **dict.fromkeys(("text", "object", "two readings", "in a zone"), pinned)}


async def insert_job(connection: Any, name: str, definition: dict[str, Any]) -> None:
    stored = {"kind": "cron", "cron": "17 3 * * *", "timezone": "UTC"} if definition["schedule"] else {"kind": "never"}
    await connection.execute(
        "WITH s AS (INSERT INTO schedules (stored, digest) VALUES ($2::text::jsonb, sha256($2::text::bytea))"
        "           ON CONFLICT (digest) DO UPDATE SET stored = excluded.stored RETURNING schedule),"
        "     j AS (INSERT INTO jobs (id, name, partition, target, definition)"
        "           VALUES (gen_random_uuid(), $1, 0, 'http', $3::text::jsonb) RETURNING job)"
        " INSERT INTO cursors (job, partition, schedule, queue) SELECT j.job, 0, s.schedule, 1 FROM j, s",
        *(name, json.dumps(stored), json.dumps(definition)),
    )
