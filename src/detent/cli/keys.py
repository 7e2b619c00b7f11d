"""`detent key …`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import click

from detent.cli import output, times
from detent.cli.actor import this_command
from detent.cli.base import command, group, option
from detent.cli.invocation import api_options, connect, invocation, load_settings
from detent.cli.nodes import database_options
from detent.cli.output import Column, Item
from detent.cli.prefixes import one_of
from detent.cli.runs import paging_options
from detent.cli.text import clean
from detent.errors import UsageError

if TYPE_CHECKING:
    from detent.contract.key import KeyScope, NewApiKey
    from detent.settings.settings import Settings

key = group("key", "Create, list and revoke API keys.", panel="Administration")

SCOPES = ("read", "work", "secrets", "operate", "write", "admin", "bound")

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

_tenant_option = option(
    "--tenant", metavar="NAME", help="Act on this tenant; for admins of the default tenant. [your own]"
)


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
    "tenants); work, for workers only; secrets, for workers that get the secrets of their runs; or bound, for what "
    "`detent role bind` says. [read]",
)
@option("--name", metavar="TEXT", help="The purpose of the key.")
@option("--expires", metavar="TIME", help="Lifetime, or when it ends, such as 90d or 2030-01-31. [unlimited]")
@_tenant_option
@option("--local", is_flag=True, help="Write the key directly into the database, without a server; for the first key.")
@database_options
@api_options(quiet="the key only")
def create(
    scope: str, name: str | None, expires: str | None, tenant: str | None, local: bool, **database: str | None
) -> None:
    """Create a key and print it.

    It is shown only once. Programs read it from DETENT_API_KEY, or from the
    file that DETENT_API_KEY_FILE names. Until the first key exists, requests
    from the server's own machine need no key; afterwards every request needs
    one.
    """
    if not local and any(database.values()):
        raise UsageError("--database-url and --data-dir need --local: without it the server creates the key.")
    lifetime = _lifetime(expires)
    kind = cast("KeyScope", scope)
    if local:
        answer, first = _created_locally(load_settings(database), kind, name, tenant, lifetime)
    else:
        with connect() as client:
            answer = client.create_key(kind, name=name, tenant=tenant, expires_in_seconds=lifetime)
        first = answer["created_by"] is None  # a server creates keys without one only while there is none
    _show(answer, first)


def _lifetime(text: str | None) -> int | None:
    if text is None:
        return None
    seconds = round((times.read_moment("--expires", text, ahead=True) - times.now()).total_seconds())
    if seconds < 1:
        raise UsageError(f"--expires is {text!r}: give at least one second, such as 90d.")
    return seconds


def _show(answer: Item, first: bool) -> None:
    match invocation().format:
        case "json":
            output.print_json(answer)
        case chosen:
            if chosen == "text":
                until = (
                    f"until {times.absolute(answer['expires_at'])}" if answer["expires_at"] else "until it is revoked"
                )
                output.say(
                    f"Created key {answer['id']} of tenant {answer['tenant']}: scope {answer['scope']}, valid {until}."
                )
                output.say("Save it now, it is not shown again; programs read it from DETENT_API_KEY.")
                if first:
                    _say_what_changes(answer)
            print(clean(answer["key"]))


def _say_what_changes(first: Item) -> None:
    output.say(
        "This is the first key: from now on every request needs a key, on every node and also on this machine. Give it "
        "to this command line with DETENT_API_KEY, or with `detent context add NAME --url URL --key-file FILE`."
    )
    if (first["scope"], first["tenant"]) != ("admin", "default"):
        output.say(
            "warning: It cannot create further keys. Create one that can: `detent key create --local --scope admin`."
        )


def _created_locally(
    settings: Settings, scope: KeyScope, name: str | None, tenant: str | None, lifetime: int | None
) -> tuple[dict[str, Any], bool]:
    """The key, and whether it is the first of the cluster."""
    import asyncio

    import msgspec

    from detent.domain.text import check_seen
    from detent.telemetry.log import configure

    check_seen(name or "", "--name")

    configure(settings.log_format, "warning")  # to stderr: stdout is for the key
    made, first = asyncio.run(_write(settings, scope, name, tenant, lifetime))
    return cast("dict[str, Any]", msgspec.to_builtins(made)), first


async def _write(
    settings: Settings, scope: KeyScope, name: str | None, tenant: str | None, lifetime: int | None
) -> tuple[NewApiKey, bool]:
    from detent.node.database import opened_store, prepared_database
    from detent.store.audit_log import acting
    from detent.store.jobs import DEFAULT_TENANT

    async with prepared_database(settings) as url, opened_store(url, settings) as store:
        number = DEFAULT_TENANT if tenant is None else await store.tenants.number(tenant)
        if number is None:
            raise UsageError(f"There is no tenant {tenant!r}: create it first with `detent tenant create {tenant}`.")
        first = not await store.keys.cluster_is_keyed()
        with acting(this_command("detent key create --local")):
            return await store.keys.add(scope, tenant=number, name=name, expires_in_seconds=lifetime), first


@command(key, "list", examples=("detent key list",))
@_tenant_option
@paging_options
@api_options(quiet="ids only")
def list_keys(tenant: str | None, limit: int, cursor: str | None) -> None:
    """List the keys, including expired and revoked ones; secrets are not shown."""
    with connect() as client:
        page = client.list_keys(tenant=tenant).gather(limit, cursor)
    output.print_page(page, COLUMNS, "There are no keys yet: create one, see `detent key create --help`.")


@command(key, "revoke", examples=("detent key revoke abcdefgh23 --yes",))
@click.argument("key_id", metavar="ID")
@_tenant_option
@option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@api_options(quiet="nothing")
def revoke(key_id: str, tenant: str | None, yes: bool) -> int:
    """Revoke a key: within seconds no server accepts it.

    ID may be any unique beginning of the id.
    """
    with connect() as client:
        key_id = one_of("key", key_id, (each["id"] for each in client.list_keys(tenant=tenant)))
    if not output.agreed(yes, f"Revoke key {key_id}?", f"detent key revoke {key_id} --yes"):
        output.say("Nothing was revoked.")
        return 1
    with connect() as client:
        client.revoke_key(key_id, tenant=tenant)
    output.say(f"Revoked key {key_id}.")
    if invocation().format == "json":
        output.print_json({"id": key_id, "status": "revoked"})
    return 0
