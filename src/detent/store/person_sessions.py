"""Browser sessions of people, who logged in at the OpenID provider.

Only the digest of a session's token is stored, and the provider's tokens are encrypted by the caller: nothing in these
rows lets anybody act as the person.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from datetime import timedelta
from typing import NamedTuple

from detent.domain.audit_event import NewEvent
from detent.domain.person import Person
from detent.domain.roles import BoundRole
from detent.store import sql
from detent.store.audit_log import record
from detent.store.connection import Connection
from detent.store.db import Database, PoolName
from detent.store.keys import read_bindings
from detent.store.web_sessions import LASTS, session_digest

# While a request asks the provider, no other does.
CHECK_TAKES = timedelta(seconds=60)

Seal = Callable[[str], bytes]


class PersonHolder(NamedTuple):
    """Whose session it is. `due`: the provider is to be asked again; `tokens` are its sealed ones."""

    tenant: int
    person: Person
    bindings: tuple[BoundRole, ...]
    due: bool
    tokens: bytes


class PersonSessionStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def open(
        self, person: Person, seal: Seal, *, tenant: int, check_after: timedelta, valid_for: timedelta
    ) -> str:
        """The token of a new session, returned only this once; `seal` encrypts the provider's tokens with it."""
        token = secrets.token_urlsafe(32)
        columns = (tenant, person.subject, person.name, person.email, list(person.groups), seal(token))

        async def work(connection: Connection) -> None:
            digest = session_digest(token)
            await connection.fetch(sql.session.OPEN_FOR_PERSON.text, digest, *columns, LASTS, check_after, valid_for)
            await record(connection, NewEvent("session.open", tenant, "user", person.subject, person.shown))

        await self._database.transaction(PoolName.REQUEST, work)
        return token

    async def holder(self, digest: bytes) -> PersonHolder | None:
        """None when it is the session of a key, unknown, or has ended."""
        rows = await self._database.fetch(PoolName.REQUEST, sql.session.FIND_PERSON, digest)
        if not rows:
            return None
        row = rows[0]
        person = Person(row["subject"], row["name"], row["email"], tuple(row["groups"]))
        return PersonHolder(row["tenant"], person, read_bindings(row["bindings"]), row["due"], row["tokens"])

    async def take_check(self, digest: bytes) -> bytes | None:
        """The sealed tokens, for the request that is to ask the provider; None: another one does."""
        rows = await self._database.fetch(PoolName.REQUEST, sql.session.TAKE_CHECK, digest, CHECK_TAKES)
        return rows[0]["tokens"] if rows else None

    async def confirm(
        self, digest: bytes, person: Person, tokens: bytes, *, check_after: timedelta, valid_for: timedelta
    ) -> None:
        about = (person.name, person.email, list(person.groups), tokens)
        await self._database.fetch(PoolName.REQUEST, sql.session.CONFIRM, digest, *about, check_after, valid_for)

    async def close(self, digest: bytes, person: Person, action: str, *, tenant: int) -> None:
        """`action`: the event that says why."""

        async def work(connection: Connection) -> None:
            await connection.fetch(sql.session.END.text, digest)
            await record(connection, NewEvent(action, tenant, "user", person.subject, person.shown))

        await self._database.transaction(PoolName.REQUEST, work)
