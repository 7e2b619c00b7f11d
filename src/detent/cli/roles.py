"""`detent role …`"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import click

from detent.cli import output, times
from detent.cli.base import command, group, option
from detent.cli.invocation import api_options, connect, invocation
from detent.cli.output import Column, Item
from detent.cli.runs import paging_options
from detent.errors import UsageError

if TYPE_CHECKING:
    from detent.domain.roles import Role, SubjectKind

role = group("role", "Say who may do what: roles of keys, people and groups.", panel="Administration")

KINDS = ("key", "user", "group")
ROLES = ("viewer", "operator", "editor", "admin")

COLUMNS = (
    Column("ID", lambda bound: str(bound["id"])),
    Column("WHO", lambda bound: f"{bound['subject_kind']} {bound['subject']}", least=12),
    Column("ROLE", lambda bound: bound["role"]),
    Column("QUEUE", lambda bound: bound["queue"], lambda bound, at: bound["queue"] or "-"),
    Column("TAG", lambda bound: bound["tag"], lambda bound, at: bound["tag"] or "-"),
    Column("TENANT", lambda bound: bound["tenant"], extra=True),
    Column("CREATED", lambda bound: bound["created_at"], lambda one, at: times.relative(one["created_at"], at)),
    Column("CREATED BY", lambda bound: bound["created_by"], extra=True),
)

_tenant_option = option(
    "--tenant", metavar="NAME", help="Act on this tenant; for admins of the default tenant. [your own]"
)


@command(
    role,
    "bind",
    examples=(
        "detent role bind group operations operator",
        "detent role bind user ada@example.com editor --queue mail",
    ),
)
@click.argument("kind", type=click.Choice(KINDS), metavar="KIND")
@click.argument("subject")
@click.argument("role", type=click.Choice(ROLES), metavar="ROLE")
@option("--queue", metavar="NAME", help="Only with jobs of this queue.")
@option("--tag", metavar="NAME", help="Only with jobs that have this tag.")
@_tenant_option
@api_options(quiet="the id of the binding only")
def bind(kind: str, subject: str, role: str, queue: str | None, tag: str | None, tenant: str | None) -> None:
    """Give a key, a person or a group a role.

    KIND is key, user or group. SUBJECT is the id of the key, the `sub` or
    the verified email address of the person, or the name of the group, as
    the OpenID provider says it. ROLE is viewer; operator (also trigger,
    pause, cancel); editor (also create, change, delete); or admin (also keys
    and roles). A role adds to what the key or the person may do already.
    """
    with connect() as client:
        bound = client.bind_role(
            cast("SubjectKind", kind), subject, cast("Role", role), queue=queue, tag=tag, tenant=tenant
        )
    output.say(f"Bound role {bound['role']} to {kind} {subject} in tenant {bound['tenant']}{_limit(bound)}.")
    output.print_for_machines(bound)


def _limit(bound: Item) -> str:
    parts = [f"{what} {bound[what]}" for what in ("queue", "tag") if bound[what] is not None]
    return f", for jobs of {' and '.join(parts)}" if parts else ""


@command(role, "list", examples=("detent role list",))
@_tenant_option
@paging_options
@api_options(quiet="ids only")
def list_bindings(tenant: str | None, limit: int, cursor: str | None) -> None:
    """List who has which role."""
    with connect() as client:
        page = client.list_role_bindings(tenant=tenant).gather(limit, cursor)
    output.print_page(page, COLUMNS, "There are no roles bound yet, see `detent role bind --help`.")


@command(role, "unbind", examples=("detent role unbind 7 --yes",))
@click.argument("binding", metavar="ID")
@_tenant_option
@option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@api_options(quiet="nothing")
def unbind(binding: str, tenant: str | None, yes: bool) -> int:
    """Take a role away: within seconds every server follows."""
    if not binding.isdecimal():
        raise UsageError(f"ID is {binding!r}: give a number that `detent role list` shows.")
    if not output.agreed(yes, f"Take role {binding} away?", f"detent role unbind {binding} --yes"):
        output.say("Nothing was changed.")
        return 1
    with connect() as client:
        client.unbind_role(int(binding), tenant=tenant)
    output.say(f"Role {binding} is taken away.")
    if invocation().format == "json":
        output.print_json({"id": int(binding)})
    return 0
