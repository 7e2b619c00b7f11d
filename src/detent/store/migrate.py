"""Migrations: numbered SQL files, each applied once, in order, by one process at a time.

A file `NNNN_name.sql` runs in one transaction together with its row in `schema_migrations`, so a crash leaves it
done or not begun. A file whose first line is `-- detent: no-transaction` holds one statement that PostgreSQL refuses
inside a transaction, such as CREATE INDEX CONCURRENTLY; it has to be written so that it can be repeated, because a
crash may fall between the statement and its row.

The row keeps the checksum of the file. A file that was changed after it was applied is refused, and so is a database
that has been through migrations this code does not know: it belongs to a newer detent.

Files name no schema. Like every connection of detent, the one given here looks in a single schema (`search_path`),
and that is where the tables go. It must be a direct connection: the lock that keeps a second migrator out belongs to
the session, which a pooler would hand on.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

import asyncpg

from detent.errors import Unavailable
from detent.store.db import statement

OLDEST_SERVER = 15
NO_TRANSACTION = "-- detent: no-transaction"

_FILE_NAME = re.compile(r"(\d{4})_[a-z0-9_]+\.sql")
_SCHEMA_NAME = re.compile(r'"?([a-z_][a-z0-9_]*)"?')
_LOCK_PATIENCE = 60.0
_LOCK_POLL = 0.1
_LONGEST = 86_400.0  # seconds; the driver's own limit, which cannot be switched off for one call


@dataclass(frozen=True, slots=True)
class Migration:
    version: int
    name: str
    text: str

    @property
    def file(self) -> str:
        return f"{self.name}.sql"

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def in_transaction(self) -> bool:
        return not self.text.startswith(NO_TRANSACTION)


@dataclass(frozen=True, slots=True)
class MigrationState:
    """One migration as the code and the database see it; `state` is applied, pending, changed or unknown."""

    version: int
    name: str
    state: str
    sha256: str
    applied_at: datetime | None


def known(folder: Traversable | None = None) -> list[Migration]:
    """The migrations of this code, in order."""
    source = folder or resources.files("detent.store").joinpath("migrations")
    found = []
    for entry in source.iterdir():
        if entry.name.endswith(".sql"):
            name = _FILE_NAME.fullmatch(entry.name)
            if name is None:
                raise ValueError(f"{entry.name} is not named like a migration (NNNN_name.sql)")
            found.append(Migration(int(name[1]), entry.name[:-4], entry.read_text("utf-8")))
    found.sort(key=lambda migration: migration.version)
    if [migration.version for migration in found] != list(range(1, len(found) + 1)):
        raise ValueError(f"the migrations are not numbered 1, 2, 3, …: {[each.name for each in found]}")
    return found


async def status(connection: Any, folder: Traversable | None = None) -> list[MigrationState]:
    """Every migration that the code or the database knows."""
    rows = {row["version"]: row for row in await _applied(connection)}
    mine = [_state(migration, rows.pop(migration.version, None)) for migration in known(folder)]
    return mine + [
        MigrationState(row["version"], row["name"], "unknown", row["sha256"], row["applied_at"])
        for row in rows.values()
    ]


def _state(migration: Migration, row: Any) -> MigrationState:
    if row is None:
        return MigrationState(migration.version, migration.name, "pending", migration.sha256, None)
    state = "applied" if row["sha256"] == migration.sha256 else "changed"
    return MigrationState(migration.version, migration.name, state, migration.sha256, row["applied_at"])


async def pending(connection: Any, folder: Traversable | None = None) -> list[Migration]:
    """What is still to be applied; raises Unavailable for a database that this code must not touch."""
    where = await _where(connection)
    states = await status(connection, folder)
    for state in states:
        if state.state == "unknown":
            raise Unavailable(
                f"{where} was made by a newer detent (it has migration {state.name}, which this one does not know): "
                "upgrade this detent."
            )
        if state.state == "changed":
            raise Unavailable(
                f"Migration {state.name}.sql was changed after it was applied to {_inside(where)}: "
                "put the file back as it was, and make the change in a new migration."
            )
    waiting = {state.version for state in states if state.state == "pending"}
    return [migration for migration in known(folder) if migration.version in waiting]


async def check(connection: Any, folder: Traversable | None = None) -> None:
    """Raise Unavailable unless the database is exactly as this code needs it."""
    waiting = await pending(connection, folder)
    if waiting:
        total = len(known(folder))
        raise Unavailable(
            f"{await _where(connection)} has not been migrated ({total - len(waiting)} of {total} migrations "
            "applied): run `detent db migrate` or start with --migrate."
        )


async def migrate(connection: Any, folder: Traversable | None = None, *, patience: float = _LOCK_PATIENCE) -> list[str]:
    """Apply what is pending and return its names; wait up to `patience` seconds for another migrator."""
    if not await pending(connection, folder):
        return []
    async with _unhurried(connection), _alone(connection, patience):
        await _make_room(connection)
        applied = []
        for migration in await pending(connection, folder):  # again: another migrator may have been here
            await _apply(connection, migration)
            applied.append(migration.name)
        return applied


def sql(schema: str = "detent", folder: Traversable | None = None) -> str:
    """All migrations as one script for psql, with the bookkeeping that lets `check` pass afterwards."""
    parts = [_create_schema(schema), f'SET search_path = "{schema}"', statement("migrations_table").strip()]
    for migration in known(folder):
        body = migration.text.strip().rstrip(";")
        record = re.sub(
            r"VALUES \(.*\)",
            f"VALUES ({migration.version}, '{migration.name}', '{migration.sha256}')",
            statement("migrations_record").partition("\n")[2].strip(),
        )
        begin, commit = (["BEGIN"], ["COMMIT"]) if migration.in_transaction else ([], [])
        parts += [f"-- {migration.file}", *begin, body, record, *commit]
    lines = [part if part.startswith("-- ") and "\n" not in part else f"{part};" for part in parts]
    return "\n\n".join(lines) + "\n"


async def _applied(connection: Any) -> Sequence[Any]:
    _require_server(connection, await _where(connection))
    try:
        async with connection.transaction():
            rows: Sequence[Any] = await connection.fetch(statement("migrations_applied"))
            return rows
    except asyncpg.UndefinedTableError:
        return []


def _require_server(connection: Any, where: str) -> None:
    version = connection.get_server_version()
    if version.major < OLDEST_SERVER:
        raise Unavailable(
            f"{where} is PostgreSQL {version.major}.{version.minor}: detent needs PostgreSQL {OLDEST_SERVER} or newer."
        )


async def _where(connection: Any) -> str:
    """The subject of a sentence about this database."""
    row = await connection.fetchrow(statement("migrations_where"))
    if row["address"] is None:
        return f"The database {row['database']}"
    return f"The database at {row['address']}:{row['port']}/{row['database']}"


def _inside(where: str) -> str:
    return where[:1].lower() + where[1:]


async def _schema(connection: Any) -> tuple[str, bool]:
    row = await connection.fetchrow(statement("migrations_where"))
    name = _SCHEMA_NAME.fullmatch(row["search_path"])
    if name is None:
        raise ValueError(f"the connection must look in one schema, not in {row['search_path']}")
    return name[1], row["present"]


def _create_schema(schema: str) -> str:
    return f'CREATE SCHEMA IF NOT EXISTS "{schema}"'


async def _make_room(connection: Any) -> None:
    schema, present = await _schema(connection)
    try:
        if not present:  # asked first: "if not exists" still needs the right to create one
            await connection.execute(_create_schema(schema))
        await connection.execute(statement("migrations_table"))
    except asyncpg.PostgresError as error:
        raise Unavailable(
            f"{await _where(connection)} cannot be migrated ({error}): let its owner run `detent db migrate`."
        ) from error


async def _apply(connection: Any, migration: Migration) -> None:
    try:
        if migration.in_transaction:
            async with connection.transaction():
                await _run(connection, migration)
        else:
            await _run(connection, migration)
    except asyncpg.PostgresError as error:
        kept = "nothing of it was kept" if migration.in_transaction else "it can be repeated"
        raise Unavailable(f"Migration {migration.file} failed, {kept}: {error}.") from error


async def _run(connection: Any, migration: Migration) -> None:
    await connection.execute(migration.text, timeout=_LONGEST)
    record = (migration.version, migration.name, migration.sha256)
    await connection.execute(statement("migrations_record"), *record, timeout=_LONGEST)


@asynccontextmanager
async def _unhurried(connection: Any) -> AsyncIterator[None]:
    await connection.execute(statement("migrations_unhurried"))
    try:
        yield
    finally:
        if not connection.is_closed():
            await connection.execute(statement("migrations_hurried"))


@asynccontextmanager
async def _alone(connection: Any, patience: float) -> AsyncIterator[None]:
    schema, _ = await _schema(connection)
    key = int.from_bytes(hashlib.sha256(f"detent migrate {schema}".encode()).digest()[:8], signed=True)
    clock = asyncio.get_running_loop().time
    began = clock()
    while not await connection.fetchval(statement("migrations_lock"), key):
        if clock() - began > patience:
            raise Unavailable(
                f"Another detent has been migrating {_inside(await _where(connection))} for {patience:.0f} seconds: "
                "wait for it, then try again."
            )
        await asyncio.sleep(_LOCK_POLL)
    try:
        yield
    finally:
        if not connection.is_closed():
            await connection.execute(statement("migrations_unlock"), key)
