"""The database of a process: the one that the settings name, or the embedded PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from detent.errors import DetentError, UsageError
from detent.node.console import say
from detent.node.shell import refuse_owner
from detent.settings.settings import Settings
from detent.store import Database, Store
from detent.telemetry.log import logger

log = logger("database")


@asynccontextmanager
async def prepared_database(
    settings: Settings, failed: Callable[[DetentError], None] | None = None, note: Callable[[str], None] = say
) -> AsyncIterator[str]:
    """The URL of the configured database, or of the embedded one, which runs inside this context. With `failed`, a
    watch restarts the embedded server after a crash, and calls `failed` if it cannot."""
    if settings.database_url is not None:
        await prepare_database(
            settings.database_url, settings.database_schema, migrate=settings.migrate, pooled=settings.pooled
        )
        yield settings.database_url
        return
    from detent.store.embedded import EmbeddedServer
    from detent.store.embedded_watch import watched

    server = EmbeddedServer(settings.data_dir)
    async with server:
        if server.note:
            note(server.note)
        refuse_owner(settings, server.home / "postgres")
        await prepare_database(server.url, settings.database_schema, migrate=True)
        async with watched(server, failed):
            yield server.url


@asynccontextmanager
async def opened_store(url: str, settings: Settings) -> AsyncIterator[Store]:
    database = Database(url, settings.database_schema, pooled=settings.pooled, ttl=settings.lease_ttl_seconds)
    await database.open()
    try:
        yield Store(database)
    finally:
        await database.close()


async def prepare_database(url: str, schema: str, *, migrate: bool, pooled: bool = False) -> None:
    """Check or migrate the schema. If this version cannot use it, raises an error with the command to run."""
    from detent.store import migrate as migrations
    from detent.store import role
    from detent.store.db import connected

    async with connected(url, schema, pooled=pooled) as connection:
        if pooled:
            await role.verify(connection, url, schema)
            if migrate and await migrations.pending(connection):
                raise role.needs_server(url)
        if not migrate:
            await migrations.check(connection)
        elif applied := await migrations.migrate(connection):
            log.info("database migrated", migrations=len(applied), newest=applied[-1])


FIRST_KEY = "`detent key create --local --scope admin`"


async def check_keys(settings: Settings, store: Store, *, serves_api: bool) -> None:
    """Refuse to start where keys are required and none was ever created: requests from this machine need none then."""
    reason, instead = _reason_for_keys(settings, serves_api)
    if reason and not await store.keys.cluster_is_keyed():
        raise UsageError(f"{reason}, and there is no API key yet: create the first one with {FIRST_KEY}, or {instead}.")
    if serves_api and await store.keys.cluster_is_keyed() and not await store.keys.exists():
        log.warning(f"Every API key is revoked or expired, so every request is refused: create one with {FIRST_KEY}.")


def _reason_for_keys(settings: Settings, serves_api: bool) -> tuple[str, str]:
    """Why this process must not start without keys, and what to change instead; empty: it may."""
    if serves_api and not settings.local:
        return f"--host {settings.host} is reachable from other machines", "listen on 127.0.0.1"
    if settings.require_keys:
        return "require_keys is on", "turn it off"
    if settings.keys_required:
        return "--allow-shell lets jobs run commands, so it requires API keys", "leave it out"
    return "", ""
