"""Migrations: numbered SQL files, each applied once, in order, by one process at a time.

A file `NNNN_name.sql` runs in one transaction together with its row in `schema_migrations`, so a crash leaves it
applied or not begun. Its first lines may contain directives:

    -- detent: no-transaction        one statement that PostgreSQL refuses inside a transaction, such as CREATE INDEX
                                     CONCURRENTLY; it must be repeatable, because a crash may happen between the
                                     statement and its row
    -- detent: compatible with NNNN  code with the migrations up to NNNN can work with the new schema

The row has the checksum and the compatibility of the file. A file that was changed after it was applied is refused. So
is a database with migrations that this code does not have, unless each of them is compatible with this code: that is a
rolling upgrade, during which old and new nodes share one schema.

Conversely, a migration is not applied while nodes are alive that it is not compatible with. A node that joins checks
the schema under a lock that the migration holds too (see `may_join`), so neither can miss the other.

Files name no schema. Like every connection of detent, this one has a single schema in its `search_path`, where the
tables are created. It must be a direct connection: the lock that excludes a second migrator belongs to the session,
which a pooler would reassign.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

import asyncpg

from detent.errors import Unavailable
from detent.store import sql
from detent.store.connection import Connection

OLDEST_SERVER = 15
DIRECTIVE = "-- detent: "

_FILE_NAME = re.compile(r"(\d{4})_[a-z0-9_]+\.sql")
_COMPATIBLE = re.compile(r"compatible with (\d{4})")
_SCHEMA_NAME = re.compile(r'"?([a-z_][a-z0-9_]*)"?')
_LOCK_PATIENCE = 60.0
_LOCK_POLL = 0.1
_NODES_PATIENCE = 10.0  # a node that was killed counts as alive until its lease has run out
_LONGEST = 86_400.0  # seconds; the driver's own limit, which cannot be switched off for one call


@dataclass(frozen=True, slots=True)
class Migration:
    version: int
    name: str
    text: str
    in_transaction: bool = True
    compatible: int | None = None

    @property
    def file(self) -> str:
        return f"{self.name}.sql"

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class MigrationState:
    """One migration as the code and the database see it; `state` is applied, pending or changed, and for those that
    the code does not know: newer, if it may work with them, else unknown."""

    version: int
    name: str
    state: str
    sha256: str
    applied_at: datetime | None


def known(folder: Traversable | None = None) -> list[Migration]:
    """The migrations of this code, in order: as they were when this process began, whatever is installed over it."""
    return _ours() if folder is None else _all_in(folder)


@cache
def _ours() -> list[Migration]:
    return _all_in(resources.files("detent.store").joinpath("migrations"))


def _all_in(folder: Traversable) -> list[Migration]:
    found = []
    for entry in folder.iterdir():
        if entry.name.endswith(".sql"):
            name = _FILE_NAME.fullmatch(entry.name)
            if name is None:
                raise ValueError(f"{entry.name} is not named like a migration (NNNN_name.sql)")
            found.append(_read(int(name[1]), entry.name[:-4], entry.read_text("utf-8")))
    found.sort(key=lambda migration: migration.version)
    if [migration.version for migration in found] != list(range(1, len(found) + 1)):
        raise ValueError(f"the migrations are not numbered 1, 2, 3, …: {[each.name for each in found]}")
    return found


def _read(version: int, name: str, text: str) -> Migration:
    in_transaction, compatible = True, None
    for line in text.splitlines():
        if not line.startswith(DIRECTIVE):
            break
        asked = line.removeprefix(DIRECTIVE).strip()
        if asked == "no-transaction":
            in_transaction = False
        elif (number := _COMPATIBLE.fullmatch(asked)) and int(number[1]) < version:
            compatible = int(number[1])
        else:
            raise ValueError(f"{name}.sql has an unknown directive: {line}")
    return Migration(version, name, text, in_transaction, compatible)


async def status(connection: Connection, folder: Traversable | None = None) -> list[MigrationState]:
    """Every migration that the code or the database knows."""
    rows = {row["version"]: row for row in await _applied(connection)}
    mine = [_state(migration, rows.pop(migration.version, None)) for migration in known(folder)]
    return mine + [_unknown(row, len(mine)) for row in rows.values()]


def _unknown(row: Any, last_known: int) -> MigrationState:
    fits = row["compatible"] is not None and row["compatible"] <= last_known
    state = "newer" if fits else "unknown"
    return MigrationState(row["version"], row["name"], state, row["sha256"], row["applied_at"])


def _state(migration: Migration, row: Any) -> MigrationState:
    if row is None:
        return MigrationState(migration.version, migration.name, "pending", migration.sha256, None)
    state = "applied" if row["sha256"] == migration.sha256 else "changed"
    return MigrationState(migration.version, migration.name, state, migration.sha256, row["applied_at"])


async def pending(connection: Connection, folder: Traversable | None = None) -> list[Migration]:
    """What is still to be applied; raises Unavailable for a database that this code must not touch."""
    where = await _where(connection)
    states = await status(connection, folder)
    for state in states:
        if state.state == "unknown":
            raise Unavailable(
                f"{where} was made by a newer detent (it has migration {state.name}, which this one does not know "
                "and cannot work with): upgrade this detent."
            )
        if state.state == "changed":
            raise Unavailable(
                f"Migration {state.name}.sql was changed after it was applied to {_inside(where)}: "
                "restore the file, and make the change in a new migration."
            )
    waiting = {state.version for state in states if state.state == "pending"}
    return [migration for migration in known(folder) if migration.version in waiting]


async def check(connection: Connection, folder: Traversable | None = None) -> None:
    """Raise Unavailable unless this code can work with the database as it is."""
    waiting = await pending(connection, folder)
    if waiting:
        total = len(known(folder))
        raise Unavailable(
            f"{await _where(connection)} has not been migrated ({total - len(waiting)} of {total} migrations "
            "applied): run `detent db migrate` or start with --migrate."
        )


async def migrate(
    connection: Connection, folder: Traversable | None = None, *, patience: float = _LOCK_PATIENCE
) -> list[str]:
    """Apply what is pending and return its names; wait up to `patience` seconds for another migrator."""
    if not await pending(connection, folder):
        return []
    async with _unhurried(connection), _alone(connection, patience):
        await _make_room(connection)
        applied = []
        for migration in await pending(connection, folder):  # again: another migrator may have been here
            await _wait_for_nodes(connection, migration)
            await _apply(connection, migration)
            applied.append(migration.name)
        return applied


def script(schema: str = "detent", folder: Traversable | None = None) -> str:
    """All migrations as one script for psql, with the bookkeeping that lets `check` pass afterwards."""
    parts = [_create_schema(schema), f'SET search_path = "{schema}"', sql.migration.CREATE_TABLE.text.strip()]
    parts.append(sql.migration.UPGRADE_TABLE.text.partition("\n")[2].strip())
    for migration in known(folder):
        body = migration.text.strip().rstrip(";")
        record = re.sub(
            r"VALUES \(.*\)",
            f"VALUES ({migration.version}, '{migration.name}', '{migration.sha256}', {migration.compatible or 'NULL'})",
            sql.migration.RECORD.text.partition("\n")[2].strip(),
        )
        begin, commit = (["BEGIN"], ["COMMIT"]) if migration.in_transaction else ([], [])
        parts += [f"-- {migration.file}", *begin, body, record, *commit]
    lines = [part if part.startswith("-- ") and "\n" not in part else f"{part};" for part in parts]
    return "\n\n".join(lines) + "\n"


async def _applied(connection: Connection) -> Sequence[Any]:
    _require_server(connection, await _where(connection))
    try:
        async with connection.transaction():
            rows: Sequence[Any] = await connection.fetch(sql.migration.LIST_APPLIED.text)
            return rows
    except asyncpg.UndefinedTableError:
        return []


def _require_server(connection: Connection, where: str) -> None:
    version = connection.get_server_version()
    if version.major < OLDEST_SERVER:
        raise Unavailable(
            f"{where} is PostgreSQL {version.major}.{version.minor}: detent needs PostgreSQL {OLDEST_SERVER} or newer."
        )


async def _where(connection: Connection) -> str:
    """The subject of a sentence about this database."""
    (row,) = await connection.fetch(sql.migration.READ_SCHEMA.text)
    if row["address"] is None:
        return f"The database {row['database']}"
    return f"The database at {row['address']}:{row['port']}/{row['database']}"


def _inside(where: str) -> str:
    return where[:1].lower() + where[1:]


async def _schema(connection: Connection) -> tuple[str, bool]:
    (row,) = await connection.fetch(sql.migration.READ_SCHEMA.text)
    name = _SCHEMA_NAME.fullmatch(row["search_path"])
    if name is None:
        raise ValueError(f"the connection must use one schema, not {row['search_path']}")
    return name[1], row["present"]


def _create_schema(schema: str) -> str:
    return f'CREATE SCHEMA IF NOT EXISTS "{schema}"'


async def _make_room(connection: Connection) -> None:
    schema, present = await _schema(connection)
    try:
        if not present:  # checked first: "if not exists" still needs the right to create one
            await connection.execute(_create_schema(schema))
        await connection.execute(sql.migration.CREATE_TABLE.text)
        # Asked first: the upgrade locks out readers of the table.
        if await connection.fetchval(sql.migration.CHECK_OLDER_TABLE.text):
            await connection.execute(sql.migration.UPGRADE_TABLE.text)
    except asyncpg.PostgresError as error:
        raise Unavailable(
            f"{await _where(connection)} cannot be migrated ({error}): let its owner run `detent db migrate`."
        ) from error


async def may_join(connection: Connection) -> None:
    """Inside the transaction that makes a node known: raise Unavailable unless its code can work with the schema. Until
    that transaction has ended, no migration begins that would change the answer."""
    key = await _key(connection, "join")
    try:
        async with connection.transaction():  # a savepoint: the sentence below needs a connection that still answers
            await connection.fetch(sql.migration.LOCK_FOR_JOIN.text, key)
    except asyncpg.LockNotAvailableError as error:
        raise Unavailable(f"{await _where(connection)} is being migrated: try again when that is done.") from error
    await check(connection)


async def _wait_for_nodes(connection: Connection, migration: Migration) -> None:
    clock = asyncio.get_running_loop().time
    began = clock()
    while strangers := await _strangers(connection, migration):
        if clock() - began > _NODES_PATIENCE:
            raise _not_beside(migration, strangers)
        await asyncio.sleep(_LOCK_POLL)


async def _strangers(connection: Connection, migration: Migration) -> list[str]:
    """Nodes that are alive and could not work with the schema after this migration."""
    if not await connection.fetchval(sql.migration.CHECK_NODES_TABLE.text):
        return []
    rows = await connection.fetch(sql.migration.LIST_INCOMPATIBLE_NODES.text, migration.compatible)
    return [f"{'+'.join(row['roles'])} on {row['host']}, process {row['pid']}" for row in rows]


def _not_beside(migration: Migration, strangers: Sequence[str]) -> Unavailable:
    return Unavailable(
        f"Migration {migration.file} cannot be applied while nodes run that could not work with it "
        f"({'; '.join(strangers)}): stop them first."
    )


async def _apply(connection: Connection, migration: Migration) -> None:
    try:
        if migration.in_transaction:
            async with connection.transaction():
                await connection.fetch(sql.migration.LOCK_OUT_JOINS.text, await _key(connection, "join"))
                if strangers := await _strangers(connection, migration):
                    raise _not_beside(migration, strangers)
                await _run(connection, migration)
        else:
            await _run(connection, migration)
    except asyncpg.PostgresError as error:
        kept = "nothing of it was kept" if migration.in_transaction else "it can be repeated"
        raise Unavailable(f"Migration {migration.file} failed, {kept}: {error}.") from error


async def _run(connection: Connection, migration: Migration) -> None:
    await connection.execute(migration.text, timeout=_LONGEST)
    record = (migration.version, migration.name, migration.sha256, migration.compatible)
    await connection.execute(sql.migration.RECORD.text, *record, timeout=_LONGEST)


@asynccontextmanager
async def _unhurried(connection: Connection) -> AsyncIterator[None]:
    await connection.execute(sql.migration.LIFT_LIMITS.text)
    try:
        yield
    finally:
        if not connection.is_closed():
            await connection.execute(sql.migration.RESTORE_LIMITS.text)


async def _key(connection: Connection, purpose: str) -> int:
    """The key of this schema's advisory lock for `purpose`."""
    schema, _ = await _schema(connection)
    return int.from_bytes(hashlib.sha256(f"detent {purpose} {schema}".encode()).digest()[:8], signed=True)


@asynccontextmanager
async def _alone(connection: Connection, patience: float) -> AsyncIterator[None]:
    key = await _key(connection, "migrate")
    clock = asyncio.get_running_loop().time
    began = clock()
    while not await connection.fetchval(sql.migration.LOCK.text, key):
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
            await connection.execute(sql.migration.UNLOCK.text, key)
