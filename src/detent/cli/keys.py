"""`detent key …`"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, cast

import click

from detent.cli import output, times
from detent.cli.base import command, group, option
from detent.cli.nodes import database_options
from detent.cli.output import Column, Item
from detent.cli.runs import paging_options
from detent.cli.session import asks_server, connect, load_settings, session
from detent.errors import UsageError

if TYPE_CHECKING:
    from detent.settings.settings import Settings
    from detent.store.keys import KeyScope

key = group("key", "Make, list and revoke the keys of the API.", panel="Look after it")

SCOPES = ("read", "work", "operate", "write", "admin")

COLUMNS = (
    Column("ID", lambda key: key["id"]),
    Column("NAME", lambda key: key["name"], least=12),
    Column("SCOPE", lambda key: key["scope"]),
    Column("STATUS", lambda key: key["status"], status=True),
    Column("EXPIRES", lambda key: key["expires_at"], lambda key, at: times.relative(key["expires_at"], at)),
    Column("LAST USED", lambda key: key["last_used_at"], lambda key, at: times.relative(key["last_used_at"], at)),
    Column("TENANT", lambda key: key["tenant"], extra=True),
    Column("CREATED", lambda key: key["created_at"], lambda key, at: times.relative(key["created_at"], at), extra=True),
    Column("CREATED BY", lambda key: key["created_by"], extra=True),
)

_tenant_option = option("--tenant", metavar="NAME", help="Of this tenant; for admins of the default tenant. [your own]")


@command(
    key,
    "create",
    examples=(
        "detent key create --scope operate --name deploys --expires 90d",
        "detent key create --local --scope admin",
    ),
)
@option(
    "--scope",
    type=click.Choice(SCOPES),
    default="read",
    metavar="SCOPE",
    help="read; operate (also trigger, pause, cancel); write (also create, change, delete); admin (also keys and "
    "tenants); or work, for workers only. [read]",
)
@option("--name", metavar="TEXT", help="What it is for.")
@option("--expires", metavar="TIME", help="How long it is good, such as 90d. [for ever]")
@_tenant_option
@option("--local", is_flag=True, help="Ask no server: write the key, such as the first one, into the database.")
@database_options
@asks_server(quiet="the key, and say nothing")
def create(
    scope: str, name: str | None, expires: str | None, tenant: str | None, local: bool, **database: str | None
) -> None:
    """Make a key and print it.

    It is shown this once. Give it to programs as DETENT_API_KEY, or in the
    file that DETENT_API_KEY_FILE names.
    """
    if not local and any(database.values()):
        raise UsageError("--database-url and --data-dir are for --local: without it the server is asked.")
    document = {"scope": scope, "name": name, "tenant": tenant, "expires_in_seconds": _lifetime(expires)}
    if local:
        answer = _created_locally(load_settings(database), document)
    else:
        with connect() as client:
            answer = client.create_key({name: value for name, value in document.items() if value is not None})
    _show(answer)


def _lifetime(text: str | None) -> int | None:
    if text is None:
        return None
    seconds = times.read_duration("--expires", text)
    if seconds < 1:
        raise UsageError(f"--expires is {text!r}: give at least one second, such as 90d.")
    return int(seconds)


def _show(answer: Item) -> None:
    match session().shape:
        case "json":
            output.print_json(answer)
        case shape:
            if shape == "people":
                until = (
                    f"until {times.absolute(answer['expires_at'])}" if answer["expires_at"] else "until it is revoked"
                )
                output.say(f"Made key {answer['id']} of tenant {answer['tenant']}: {answer['scope']}, good {until}.")
                output.say("Keep it now, it is not shown again; programs read it from DETENT_API_KEY.")
            print(answer["key"])


def _created_locally(settings: Settings, document: dict[str, Any]) -> dict[str, Any]:
    import asyncio

    import msgspec

    from detent.telemetry.log import configure

    configure(settings.log_format, "warning")  # to stderr: stdout is for the key
    made = asyncio.run(_write(settings, document))
    return cast("dict[str, Any]", msgspec.to_builtins(made))


async def _write(settings: Settings, document: dict[str, Any]) -> object:
    from detent.node.database import opened_store, prepared_database
    from detent.store.jobs import DEFAULT_TENANT

    name = document["tenant"]
    async with prepared_database(settings) as url, opened_store(url, settings) as store:
        number = DEFAULT_TENANT if name is None else await store.tenants.number(name)
        if number is None:
            raise UsageError(f"There is no tenant {name!r}: make it first with `detent tenant create {name}`.")
        return await store.keys.add(
            cast("KeyScope", document["scope"]),
            tenant=number,
            name=document["name"],
            expires_in_seconds=document["expires_in_seconds"],
        )


@command(key, "list", examples=("detent key list",))
@_tenant_option
@paging_options
@asks_server(quiet="ids only")
def list_keys(tenant: str | None, limit: int, cursor: str | None) -> None:
    """List the keys, also those that are no longer good; never their secrets."""
    from detent.client.documents import gather

    with connect() as client:
        page = gather(partial(client.list_keys, tenant=tenant), limit, cursor)
    output.print_page(page, COLUMNS, "There are no keys yet: make one with `detent key create --help`.")


@command(key, "revoke", examples=("detent key revoke abcdefgh23 --yes",))
@click.argument("key_id", metavar="ID")
@_tenant_option
@option("--yes", "-y", is_flag=True, help="Do not ask.")
@asks_server()
def revoke(key_id: str, tenant: str | None, yes: bool) -> int:
    """Revoke a key: within seconds no server takes it any more."""
    if not output.agreed(yes, f"Revoke key {key_id}?", f"detent key revoke {key_id} --yes"):
        output.say("Nothing was revoked.")
        return 1
    with connect() as client:
        client.revoke_key(key_id, tenant)
    output.say(f"Revoked key {key_id}.")
    if session().shape == "json":
        output.print_json({"id": key_id, "status": "revoked"})
    return 0
