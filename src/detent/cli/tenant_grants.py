"""`detent tenant grant-enqueue|revoke-enqueue|enqueue-grants`"""

from __future__ import annotations

import click

from detent.cli import output, times
from detent.cli.base import command
from detent.cli.invocation import api_options, connect, invocation
from detent.cli.output import Column
from detent.cli.tenant_lifecycle import tenant

__all__ = ["tenant"]

COLUMNS = (
    Column("ROLE", lambda grant: grant["role"]),
    Column("GRANTED", lambda grant: grant["granted_at"], lambda one, at: times.both(one["granted_at"], at)),
)


@command(tenant, "grant-enqueue", examples=("detent tenant grant-enqueue shop shop_app",))
@click.argument("name")
@click.argument("role")
@api_options(quiet="the role only")
def grant_enqueue(name: str, role: str) -> None:
    """Let a database role enqueue runs of a tenant with SQL.

    The role, and roles that are members of it, may call detent.enqueue and
    detent.enqueue_many for this tenant, and see none of the tables.
    """
    with connect() as client:
        answer = client.grant_enqueue(name, role)
    output.say(f"The database role {role} may enqueue runs of {name}.")
    if answer["statements"]:
        output.say("The owner of the database schema has to execute this first:")
        for statement in answer["statements"]:
            output.say(f"  {statement};")
    if invocation().format != "text":
        output.print_fields(answer, (), identity="role")


@command(tenant, "revoke-enqueue", examples=("detent tenant revoke-enqueue shop shop_app",))
@click.argument("name")
@click.argument("role")
@api_options(quiet="nothing")
def revoke_enqueue(name: str, role: str) -> None:
    """Take back from a database role that it may enqueue runs of a tenant."""
    with connect() as client:
        client.revoke_enqueue(name, role)
    output.say(f"The database role {role} may no longer enqueue runs of {name}.")


@command(tenant, "enqueue-grants", examples=("detent tenant enqueue-grants shop",))
@click.argument("name")
@api_options(quiet="the roles only")
def list_enqueue_grants(name: str) -> None:
    """List the database roles that may enqueue runs of a tenant."""
    with connect() as client:
        page = client.list_enqueue_grants(name).page()
    empty = f"No database role may: `detent tenant grant-enqueue {name} ROLE` lets one."
    output.print_page(page, COLUMNS, empty, identity="role")
