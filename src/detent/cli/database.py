"""`detent db …`: commands that connect to the database directly, without a server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from detent.cli import output, times
from detent.cli.actor import this_command
from detent.cli.base import F, command, group, option
from detent.cli.invocation import config_option, format_options, invocation, load_settings
from detent.cli.nodes import database_options
from detent.cli.output import Column

if TYPE_CHECKING:
    from detent.settings.settings import Settings
    from detent.store.connection import Connection

db = group("db", "Migrate and inspect the database.", panel="Administration")

COLUMNS = (
    Column("MIGRATION", lambda migration: migration["name"]),
    Column("STATE", lambda migration: migration["state"], status=True),
    Column("APPLIED", lambda migration: migration["applied_at"], lambda item, at: times.both(item["applied_at"], at)),
)


def reaches_database(function: F) -> F:
    return database_options(config_option(hidden=True)(function))


def role_options(function: F) -> F:
    function = option(
        "--tenant-role",
        metavar="ROLE",
        help="Also enable row-level security: requests use this role and see only the rows of their tenant.",
    )(function)
    function = option(
        "--role-settings", metavar="ROLE", help="Also give this role the settings that nodes need behind a pooler."
    )(function)
    return option(
        "--runtime-role",
        metavar="ROLE",
        help="Also grant this role the privileges that nodes need. It should own nothing.",
    )(function)


@command(
    db,
    "migrate",
    examples=(
        "detent db migrate --database-url postgresql://user@host/detent",
        "detent db migrate --role-settings detent",
        "detent db migrate --runtime-role detent_run",
    ),
)
@reaches_database
@role_options
def migrate(role_settings: str | None, runtime_role: str | None, tenant_role: str | None, **flags: str | None) -> None:
    """Apply the migrations that are missing."""
    from detent.domain.audit_event import NewEvent
    from detent.store import grants, role
    from detent.store import migrate as migrations
    from detent.store.audit_log import acting, record

    settings = load_settings(flags)
    if settings.pooled:
        raise role.needs_server(settings.database_url or "")

    async def work(connection: Connection) -> tuple[list[str], list[str]]:
        applied = await migrations.migrate(connection)
        given = await role.give(connection, role_settings, settings.database_schema) if role_settings else []
        if runtime_role:
            await grants.give(connection, runtime_role, settings.database_schema)
        if tenant_role:
            await grants.raise_wall(connection, tenant_role, settings.database_schema)
        roles = {"runtime_role": runtime_role, "tenant_role": tenant_role, "role_settings": role_settings}
        after = {"migrations": applied, **{name: role for name, role in roles.items() if role}}
        if applied or len(after) > 1:
            await record(connection, NewEvent("database.migrate", None, "cluster", after=after))
        return applied, given

    with acting(this_command("detent db migrate")):
        applied, given = with_connection(settings, work)
    output.print_lines((line,) for line in (*applied, *given))
    number = f"{len(applied)} migration{'s' if len(applied) > 1 else ''}"
    output.say(f"Applied {number}." if applied else "The schema is up to date.")
    if runtime_role:
        output.say(f"Granted {runtime_role} what nodes need at run time.")
    if tenant_role:
        output.say(f"Nodes that start from now on use {tenant_role} for requests.")
    if given:
        output.say("A pooler's existing connections need a reconnect to get these settings (PgBouncer: RECONNECT).")


@command(db, "status", examples=("detent db status --database-url postgresql://user@host/detent",))
@reaches_database
@format_options()
def status(**flags: str | None) -> int:
    """List the migrations; exit code 1 if one is pending, changed or too new."""
    from detent.store import migrate as migrations

    states = with_connection(load_settings(flags), migrations.status)
    items = [
        {
            "version": state.version,
            "name": state.name,
            "state": state.state,
            "sha256": state.sha256,
            "applied_at": state.applied_at and times.written(state.applied_at),
        }
        for state in states
    ]
    output.print_page({"items": items, "next_cursor": None}, COLUMNS, "There are no migrations.", identity="name")
    missing = [item for item in items if item["state"] == "pending"]
    if missing and invocation().format == "text":
        output.say("The schema is not up to date: run `detent db migrate`.")
    return int(any(item["state"] not in ("applied", "newer") for item in items))


@command(db, "sql", examples=("detent db sql | psql detent", "detent db sql --runtime-role detent_run > detent.sql"))
@config_option(hidden=True)
@role_options
def sql(role_settings: str | None, runtime_role: str | None, tenant_role: str | None) -> None:
    """Print all migrations as one script, to apply by hand."""
    from detent.store import grants, pooler
    from detent.store import migrate as migrations

    schema = load_settings({}).database_schema
    print(migrations.script(schema), end="")
    if role_settings:
        print(f"\n{pooler.role_script(role_settings, schema)}", end="")
    if runtime_role:
        print(f"\n{grants.script(runtime_role, schema)}", end="")
    if tenant_role:
        print(f"\n{grants.wall_script(tenant_role, schema)}", end="")


def with_connection(settings: Settings, work: Callable[[Connection], Awaitable[Any]]) -> Any:
    import asyncio

    from detent.store.db import translate

    async def run() -> Any:
        async with _connection(settings) as connection:
            return await work(connection)

    try:
        return asyncio.run(run())
    except Exception as error:
        meaning = translate(error)
        if meaning is None:
            raise
        raise meaning from error


@asynccontextmanager
async def _connection(settings: Settings) -> AsyncIterator[Any]:
    """Connect to the configured database, or to the embedded one, which is started for this command."""
    from detent.store.db import connect

    async with AsyncExitStack() as stack:
        url = settings.database_url
        if url is None:
            from detent.store.embedded import EmbeddedServer

            server = await stack.enter_async_context(EmbeddedServer(settings.data_dir))
            if server.note:
                output.say(server.note)
            url = server.url
        connection = await connect(url, settings.database_schema, pooled=settings.pooled)
        stack.push_async_callback(connection.close)
        yield connection
