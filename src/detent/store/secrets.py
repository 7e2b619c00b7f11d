"""Encrypted secrets. The caller encrypts and decrypts: nothing here can read a value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import NamedTuple

import msgspec

from detent.contract.secret import Secret
from detent.domain.audit_event import NewEvent
from detent.runtime.envelope import Envelope, SecretPlace
from detent.store import sql
from detent.store.audit_log import record
from detent.store.connection import Connection
from detent.store.db import Database, PoolName, Row

Seal = Callable[[int], Envelope]


class MissingSecrets(Exception):  # noqa: N818 - it says what there are
    """Jobs refer to secrets that the tenant does not have."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(*names)
        self.names = frozenset(names)


class SealedVersion(NamedTuple):
    """One version of a secret; `seconds_left` None: it does not expire."""

    place: SecretPlace
    envelope: Envelope
    seconds_left: float | None = None


class SecretUsers(NamedTuple):
    """What refers to a secret: some of the jobs, whether its tenant signs with it or forwards dead runs with it, and
    some of the alert rules."""

    jobs: list[str]
    signs: bool
    forwards: bool
    rules: list[str]


class SecretStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def all(self, tenant: int, limit: int) -> list[Secret]:
        """The first secrets of a tenant, ordered by name."""
        rows = await self._database.fetch(PoolName.REQUEST, sql.secret.LIST, tenant, limit, None)
        return [_secret(row) for row in rows]

    async def get(self, tenant: int, name: str) -> Secret | None:
        rows = await self._database.fetch(PoolName.REQUEST, sql.secret.LIST, tenant, 1, name)
        return _secret(rows[0]) if rows else None

    async def count(self, tenant: int) -> int:
        (row,) = await self._database.fetch(PoolName.REQUEST, sql.secret.COUNT, tenant)
        return int(row["secrets"])

    async def write(
        self, tenant: int, name: str, seal: Seal, *, keep: timedelta, create: bool, by: str | None, most: int
    ) -> int | None:
        """Add a version, which `seal` encrypts; older ones stay valid for `keep`. Returns how many are valid then, or
        None if there is no such secret. With more than `most` nothing is written."""

        async def change(connection: Connection) -> int | None:
            statement = sql.secret.CREATE_OR_CHANGE if create else sql.secret.CHANGE
            rows = await connection.fetch(statement.text, tenant, name, by)
            if not rows:
                return None
            version = rows[0]["version"]
            (kept,) = await connection.fetch(sql.secret.RETIRE.text, tenant, name, keep.total_seconds())
            if kept["versions"] >= most:
                raise _TooManyError(kept["versions"])
            await connection.fetch(sql.secret.ADD_VERSION.text, tenant, name, version, *seal(version))
            await record(connection, _written(tenant, name, version, keep, create=create))
            return int(kept["versions"]) + 1

        try:
            return await self._database.transaction(PoolName.REQUEST, change)
        except _TooManyError as error:
            return error.versions + 1

    async def delete(self, tenant: int, name: str, limit: int) -> SecretUsers | None:
        """Delete a secret that nothing refers to; otherwise returns what does, up to `limit` jobs. None: no such
        secret."""

        async def change(connection: Connection) -> SecretUsers | None:
            if not await connection.fetch(sql.secret.LOCK.text, tenant, name):
                return None
            # A statement after the lock: it sees the jobs of the registrations that this has waited for.
            (row,) = await connection.fetch(sql.secret.LIST_USERS.text, tenant, name, limit)
            users = SecretUsers(list(row["jobs"]), row["signs"], row["forwards"], list(row["rules"]))
            if not any(users):
                await connection.fetch(sql.secret.DELETE.text, tenant, name)
                await record(connection, NewEvent("secret.delete", tenant, "secret", name, name))
            return users

        return await self._database.transaction(PoolName.REQUEST, change)

    async def purge(self) -> None:
        """Remove versions that have expired."""
        await self._database.fetch(PoolName.WORK, sql.secret.PURGE)

    # -- for those who call targets

    async def values(
        self, wanted: Sequence[tuple[int, str]], *, pool: PoolName = PoolName.WORK
    ) -> Sequence[SealedVersion]:
        """The valid versions of secrets by (tenant, name), the newest of each first."""
        tenants, names = zip(*wanted, strict=True)
        return [_sealed(row) for row in await self._database.fetch(pool, sql.secret.READ_VALUES, tenants, names)]

    async def signing(self, *, pool: PoolName = PoolName.WORK) -> dict[int, str]:
        """The secret that signs the calls of each tenant that has one."""
        rows = await self._database.fetch(pool, sql.secret.READ_SIGNING)
        return {row["tenant"]: row["signing"] for row in rows}

    # -- master keys

    async def key_ids(self) -> dict[str, int]:
        """How many versions are under each master key."""
        rows = await self._database.fetch(PoolName.REQUEST, sql.secret.COUNT_BY_KEY)
        return {row["key_id"]: row["versions"] for row in rows}

    async def under_other_keys(self, key_id: str, limit: int) -> Sequence[SealedVersion]:
        rows = await self._database.fetch(PoolName.REQUEST, sql.secret.LIST_UNDER_OTHER_KEYS, key_id, limit)
        return [_sealed(row) for row in rows]

    async def rewrap(self, changes: Iterable[tuple[SealedVersion, Envelope]]) -> int:
        """Put data keys under another master key; how many were changed."""
        rows = [(*old.place, old.envelope.wrapped, new.wrapped, new.key_id) for old, new in changes]
        if not rows:
            return 0
        *columns, key_ids = zip(*rows, strict=True)

        async def change(connection: Connection) -> int:
            changed = len(await connection.fetch(sql.secret.REWRAP.text, *columns, key_ids[0]))
            if changed:
                facts = {"count": changed, "key_id": key_ids[0]}
                await record(connection, NewEvent("secret-key.rotate", None, "secret-key", key_ids[0], after=facts))
            return changed

        return await self._database.transaction(PoolName.REQUEST, change)


class _TooManyError(Exception):
    def __init__(self, versions: int) -> None:
        super().__init__(versions)
        self.versions = versions


async def keep(connection: Connection, tenant: int, names: Iterable[str]) -> None:
    """Make sure that these secrets exist until the transaction ends; or MissingSecrets."""
    wanted = sorted(set(names))
    if wanted:
        found = {row["name"] for row in await connection.fetch(sql.secret.KEEP.text, tenant, wanted)}
        missing = [name for name in wanted if name not in found]
        if missing:
            raise MissingSecrets(missing)


async def note_references(connection: Connection, references: Iterable[tuple[int, Sequence[str]]]) -> None:
    """Record which secrets these jobs, by number, refer to now."""
    rows = [(job, msgspec.json.encode(names).decode() if names else None) for job, names in references]
    if rows:
        await connection.fetch(sql.secret.NOTE_REFERENCES.text, *zip(*rows, strict=True))


def _written(tenant: int, name: str, version: int, keep: timedelta, *, create: bool) -> NewEvent:
    kept = {"keep_seconds": keep.total_seconds()} if keep else {}
    action = "secret.set" if create else "secret.rotate"
    return NewEvent(action, tenant, "secret", name, name, after={"version": version, **kept})


def _secret(row: Row) -> Secret:
    return Secret(**{name: row[name] for name in Secret.__struct_fields__})


def _sealed(row: Row) -> SealedVersion:
    envelope = Envelope(row["key_id"], row["wrapped"], row["nonce"], row["ciphertext"])
    return SealedVersion(SecretPlace(row["tenant"], row["name"], row["version"]), envelope, row.get("seconds_left"))
