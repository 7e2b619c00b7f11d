"""`detent tenant suspend|resume|export|delete`"""

from __future__ import annotations

import json
import time

import click

from detent.cli import output
from detent.cli.base import command, option
from detent.cli.invocation import api_options, connect, invocation
from detent.cli.output import Column, Item
from detent.cli.tenants import tenant
from detent.domain.counts import plural
from detent.errors import NotFound

__all__ = ["tenant"]

WAIT_SECONDS = 1.0


@command(
    tenant,
    "suspend",
    examples=("detent tenant suspend shop", 'detent tenant suspend shop --reason "unpaid since May"'),
)
@click.argument("name")
@option("--reason", metavar="TEXT", help="Why; shown with the tenant.")
@api_options(quiet="the tenant's name only")
def suspend(name: str, reason: str | None) -> None:
    """Suspend a tenant: no tick fires, and its requests are refused.

    Runs that were fired continue. Ticks of the suspension are recorded as
    skipped and do not run later. Nodes stop firing at once, and servers
    refuse its keys within two seconds.
    """
    with connect() as client:
        answer = client.suspend_tenant(name, reason)
    output.say(f"Suspended tenant {answer['name']}: `detent tenant resume {answer['name']}` ends it.")
    _print(answer)


@command(tenant, "resume", examples=("detent tenant resume shop",))
@click.argument("name")
@api_options(quiet="the tenant's name only")
def resume(name: str) -> None:
    """End the suspension of a tenant; its jobs continue with their next tick."""
    with connect() as client:
        answer = client.resume_tenant(name)
    output.say(f"Resumed tenant {answer['name']}.")
    _print(answer)


@command(tenant, "export", examples=("detent tenant export shop > shop.jsonl",))
@click.argument("name")
@api_options()
def export(name: str) -> None:
    """Print everything that a tenant owns as JSON, one row in a line.

    Each line names a table and has one row of it: the tenant with its queues,
    limits and allow list, jobs with their former definitions, runs, attempts
    and payloads. Keys and the values of secrets are not in it; `detent
    audit-log export` prints what was changed. Suspend the tenant first to
    export one state of it. For admins of the tenant, or of the default tenant.
    """
    with connect() as client:
        for row in client.export_tenant(name):
            print(json.dumps(row, ensure_ascii=True, separators=(",", ":")))


@command(
    tenant,
    "delete",
    examples=("detent tenant delete shop --dry-run", "detent tenant delete shop --yes --wait"),
)
@click.argument("name")
@option("--dry-run", is_flag=True, help="Count the rows that would be deleted, by table, and delete nothing.")
@option("--wait", is_flag=True, help="Wait until everything is deleted.")
@option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@api_options(quiet="the tenant's name only")
def delete(name: str, dry_run: bool, wait: bool, yes: bool) -> int:
    """Delete a suspended tenant with everything that it owns.

    Its keys are revoked at once, its runs are cancelled, and the nodes delete
    its rows in the background, also if one of them fails meanwhile: `detent
    tenant get` shows how far they are. There is no way back. The audit log
    stays, and so do history archives.
    """
    with connect() as client:
        if dry_run:
            return _print_count(client.count_tenant(name))
        question = f"Delete tenant {name} with everything that it owns?"
        if not output.agreed(yes, question, f"detent tenant delete {name} --yes"):
            output.say("Nothing was changed.")
            return 1
        answer = client.delete_tenant(name)
        if not wait:
            output.say(f"Deleting tenant {name}: `detent tenant get {name}` shows how far it is.")
            _print(answer)
            return 0
        try:
            while True:
                time.sleep(WAIT_SECONDS)
                client.get_tenant(name)
        except NotFound:
            output.say(f"Deleted tenant {name}.")
    return 0


def _print_count(contents: Item) -> int:
    rows = [{"table": table, "rows": count} for table, count in contents["rows"].items() if count]
    if invocation().format == "json":
        output.print_json(contents)
        return 0
    columns = (
        Column("TABLE", lambda row: row["table"]),
        Column("ROWS", lambda row: row["rows"], lambda row, at: f"{row['rows']:,}", right=True),
    )
    output.print_page({"items": rows, "next_cursor": None}, columns, "It owns nothing.", identity="table")
    output.say(f"Would delete {plural(contents['total'], 'row')} of {contents['name']}.")
    return 0


def _print(answer: Item) -> None:
    if invocation().format != "text":
        output.print_fields(answer, (), identity="name")
