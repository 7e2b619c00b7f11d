"""`detent tenant …`"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import click

from detent.cli import output, times
from detent.cli.base import command, group, option
from detent.cli.invocation import api_options, connect, invocation
from detent.cli.output import Column, Field, Item
from detent.cli.runs import paging_options
from detent.domain.counts import plural
from detent.errors import UsageError

tenant = group(
    "tenant",
    "Manage tenants: isolated groups of jobs and keys on one server.",
    panel="Administration",
)

NO_LIMIT = "none"

COLUMNS = (
    Column("NAME", lambda tenant: tenant["name"]),
    Column("JOBS", lambda tenant: tenant["jobs"], lambda one, at: f"{one['jobs']:,}", right=True),
    Column("MAX JOBS", lambda tenant: tenant["max_jobs"], lambda one, at: shown(one["max_jobs"]), right=True),
    Column(
        "MAX RUNNING",
        lambda tenant: tenant["max_concurrent"],
        lambda one, at: shown(one["max_concurrent"]),
        right=True,
        extra=True,
    ),
    Column(
        "MAX PER SECOND",
        lambda tenant: tenant["max_runs_per_second"],
        lambda one, at: shown(one["max_runs_per_second"]),
        right=True,
        extra=True,
    ),
    Column(
        "PAYLOAD",
        lambda tenant: tenant["max_payload_bytes"],
        lambda one, at: shown(one["max_payload_bytes"]),
        right=True,
        extra=True,
    ),
    Column(
        "ALLOWED TARGETS",
        lambda tenant: ", ".join(tenant["allow_targets"]),
        lambda one, at: ", ".join(one["allow_targets"]) or "-",
        extra=True,
    ),
    Column("WEIGHT", lambda tenant: tenant["weight"], right=True),
    Column("STATE", lambda tenant: state(tenant)),
    Column("CREATED", lambda tenant: tenant["created_at"], lambda one, at: times.both(one["created_at"], at)),
)


def state(tenant: Item) -> str:
    if tenant["deletion"] is not None:
        return "being deleted"
    return "active" if tenant["suspended_at"] is None else "suspended"


def shown(limit: float | None) -> str:
    return "-" if limit is None else f"{limit:,g}" if limit < 1_000_000 else f"{limit:,}"


def read_limit(flag: str, text: str | None, kind: Callable[[str], float], lowest: float, highest: float) -> Any:
    """A number, or None for no limit."""
    if text == NO_LIMIT:
        return None
    try:
        number = kind(text or "")
    except ValueError:
        number = lowest - 1
    if not lowest <= number <= highest:
        raise UsageError(f"{flag} is {text!r}: give a number between {lowest:,g} and {highest:,g}, or {NO_LIMIT}.")
    return number


@command(tenant, "create", examples=("detent tenant create shop",))
@click.argument("name")
@api_options(quiet="the tenant's name only")
def create(name: str) -> None:
    """Create a tenant: no other tenant sees its jobs, runs and keys."""
    with connect() as client:
        answer = client.create_tenant(name)
    output.say(f"Created tenant {answer['name']}: `detent key create --tenant {answer['name']}` creates a key for it.")
    if invocation().format != "text":
        output.print_fields(answer, (), identity="name")


@command(tenant, "list", examples=("detent tenant list",))
@paging_options
@api_options(quiet="names only")
def list_tenants(limit: int, cursor: str | None) -> None:
    """List the tenants with their usage and quotas."""
    with connect() as client:
        page = client.list_tenants().gather(limit, cursor)
    output.print_page(page, COLUMNS, "There are no tenants.", identity="name")


@command(tenant, "get", examples=("detent tenant get shop",))
@click.argument("name")
@api_options(quiet="the tenant's name only")
def get_tenant(name: str) -> None:
    """Show a tenant: its quotas, which addresses its jobs may call, and its state.

    Of a tenant that is being deleted, how many rows are deleted so far.
    """
    with connect() as client:
        answer = client.get_tenant(name)
    output.print_fields(answer, _fields(answer), identity="name")


@command(
    tenant,
    "allow",
    examples=(
        "detent tenant allow default private",
        "detent tenant allow shop 10.2.0.0/16:8443 api.internal:8080",
        "detent tenant allow shop '*.svc.internal' '[fd00::]/8:443'",
    ),
)
@click.argument("name")
@click.argument("patterns", nargs=-1, required=True, metavar="PATTERN...")
@api_options(quiet="the tenant's name only")
def allow(name: str, patterns: tuple[str, ...]) -> None:
    """Let jobs of a tenant call private addresses, or database ports.

    A pattern is a network or address (10.2.0.0/16, [fd00::]/8), a host name
    (api.internal) or all names with an ending (*.svc.internal), each with or
    without a port, or 'private' for all private addresses. Ports of databases
    and brokers, such as 5432, are called only if a pattern names the port.
    Cloud metadata and link-local addresses are never called.
    """
    _change_list(name, "allow", patterns)


@command(tenant, "disallow", examples=("detent tenant disallow shop 10.2.0.0/16:8443",))
@click.argument("name")
@click.argument("patterns", nargs=-1, required=True, metavar="PATTERN...")
@api_options(quiet="the tenant's name only")
def disallow(name: str, patterns: tuple[str, ...]) -> None:
    """Remove patterns from the allow list of a tenant.

    All processes obey within two seconds; calls in progress are not interrupted.
    """
    _change_list(name, "disallow", patterns)


def _change_list(name: str, field: str, patterns: tuple[str, ...]) -> None:
    with connect() as client:
        answer = client.change_tenant(name, {field: list(patterns)})
    listed = ", ".join(answer["allow_targets"])
    output.say(f"The allow list of {answer['name']} is {f'now: {listed}' if listed else 'empty now'}.")
    if invocation().format != "text":
        output.print_fields(answer, (), identity="name")


@command(tenant, "signing", examples=("detent tenant signing shop webhooks", "detent tenant signing shop none"))
@click.argument("name")
@click.argument("secret", metavar="SECRET|none")
@api_options(quiet="the tenant's name only")
def signing(name: str, secret: str) -> None:
    """Sign the HTTP calls of a tenant with one of its secrets.

    Jobs with a signing secret of their own use that one. All workers obey
    within two seconds. For admins of the tenant, or of the default tenant.
    """
    with connect() as client:
        answer = client.change_tenant(name, {"signing": None if secret == NO_LIMIT else secret})
    signed = f"are signed with {answer['signing']}" if answer["signing"] else "are not signed"
    output.say(f"HTTP calls of {answer['name']} {signed}.")
    if invocation().format != "text":
        output.print_fields(answer, (), identity="name")


@command(
    tenant,
    "dead-letter-topic",
    examples=(
        """detent tenant dead-letter-topic shop '{"url": "nats://n", "topic": "dead"}'""",
        "detent tenant dead-letter-topic shop none",
    ),
)
@click.argument("name")
@click.argument("topic", metavar="JSON|none")
@api_options(quiet="the tenant's name only")
def dead_letter_topic(name: str, topic: str) -> None:
    """Forward the dead runs of a tenant to a topic.

    JSON is an object with the members of a topic target. Jobs with a
    dead_letter_topic of their own use that one. For admins of the tenant, or
    of the default tenant.
    """
    document = None if topic == NO_LIMIT else _read_topic(topic)
    with connect() as client:
        answer = client.change_tenant(name, {"dead_letter_topic": document})
    target = answer["dead_letter_topic"]
    where = "are not forwarded" if target is None else f"go to {target['topic']} at {target['url']}"
    output.say(f"Dead runs of {answer['name']} {where}.")
    if invocation().format != "text":
        output.print_fields(answer, (), identity="name")


def _read_topic(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        example = '{"url": "nats://host:4222", "topic": "dead.runs"}'
        raise UsageError(f"The topic is not JSON ({error}): write it as '{example}', or none.") from None


@command(
    tenant,
    "quota",
    examples=(
        "detent tenant quota shop",
        "detent tenant quota shop --jobs 5000 --concurrent 50 --rate 20",
        "detent tenant quota shop --jobs none --weight 3",
        "detent tenant quota shop --storage 500000000 --requests 50",
    ),
)
@click.argument("name")
@option("--jobs", metavar="N", help="Maximum number of jobs.")
@option("--payload", metavar="BYTES", help="Maximum size of a payload.")
@option("--concurrent", metavar="N", help="Maximum runs at the same time.")
@option("--rate", metavar="N", help="Maximum starts per second.")
@option("--storage", metavar="BYTES", help="Maximum size of definitions and results; no more jobs beyond it.")
@option("--requests", metavar="N", help="Maximum API requests per second; none: the server's limit.")
@option("--weight", metavar="N", help="Its share of the workers relative to other tenants, 1 to 100.")
@api_options(quiet="the tenant's name only")
def quota(name: str, **given: str | None) -> None:
    """Show or change the quotas of a tenant; 'none' removes a limit.

    New jobs over the limit are refused; runs over a limit wait. A tenant that
    already has more jobs than its new limit keeps them. Storage is measured
    every ten minutes while it has a limit.
    """
    changes = dict(_changes(given))
    with connect() as client:
        answer = client.change_tenant(name, changes) if changes else client.get_tenant(name)
    if changes:
        output.say(f"Changed the quotas of {answer['name']}.")
    output.print_fields(answer, _fields(answer), identity="name")


class LimitKind(NamedTuple):
    """A quota as the command line accepts it."""

    field: str
    read: Callable[[str], float]
    lowest: float
    highest: float


KINDS = {
    "jobs": LimitKind("max_jobs", int, 0, 2_147_483_647),
    "payload": LimitKind("max_payload_bytes", int, 1, 2_147_483_647),
    "concurrent": LimitKind("max_concurrent", int, 0, 2_147_483_647),
    "rate": LimitKind("max_runs_per_second", float, 0.001, 1_000_000),
    "storage": LimitKind("max_storage_bytes", int, 1, 1 << 50),
    "requests": LimitKind("requests_per_second", float, 0.001, 1_000_000),
    "weight": LimitKind("weight", int, 1, 100),
}


def _changes(given: dict[str, str | None]) -> Iterator[tuple[str, Any]]:
    for name, text in given.items():
        if text is None:
            continue
        kind = KINDS[name]
        if kind.field == "weight" and text == NO_LIMIT:
            raise UsageError("--weight is 'none': give a number between 1 and 100.")
        yield kind.field, read_limit(f"--{name}", text, kind.read, kind.lowest, kind.highest)


def _fields(tenant: Item) -> Iterator[Field]:
    used = f"{tenant['jobs']:,} of {shown(tenant['max_jobs'])}" if tenant["max_jobs"] is not None else None
    yield Field("name", "Name", tenant["name"])
    yield Field("jobs", "Jobs", tenant["jobs"], used or f"{tenant['jobs']:,}, no limit")
    yield Field("max_jobs", "", tenant["max_jobs"], "")
    for name, title, without in (
        ("max_payload_bytes", "Max payload bytes", "the server's limit"),
        ("max_concurrent", "Max running", "no limit"),
        ("max_runs_per_second", "Max starts per second", "no limit"),
        ("max_storage_bytes", "Max storage bytes", "no limit"),
        ("storage_bytes", "Storage bytes", "not measured"),
        ("requests_per_second", "Max requests per second", "the server's limit"),
    ):
        value = tenant[name]
        plain = without if value is None and invocation().format == "text" else value
        yield Field(name, title, plain, without if value is None else shown(value))
    yield Field("weight", "Weight", tenant["weight"])
    allowed = ", ".join(tenant["allow_targets"])
    yield Field("allow_targets", "Allowed targets", allowed or None, allowed or "-")
    yield Field("signing", "Signing secret", tenant["signing"], tenant["signing"] or "-")
    topic = tenant["dead_letter_topic"]
    where = f"{topic['topic']} at {topic['url']}" if topic else "-"
    yield Field("dead_letter_topic", "Dead-letter topic", topic, where)
    yield from _state(tenant)


def _state(tenant: Item) -> Iterator[Field]:
    since, reason = tenant["suspended_at"], tenant["suspended_reason"]
    if since is not None:
        by = f" by {tenant['suspended_by']}" if tenant["suspended_by"] else ""
        yield Field("suspended_at", "Suspended", since, f"{times.absolute(since)}{by}{f': {reason}' if reason else ''}")
    deletion = tenant["deletion"]
    if deletion is not None:
        rows = sum(deletion["deleted"].values())
        text = f"since {times.absolute(deletion['requested_at'])}, {plural(rows, 'row')} deleted so far"
        yield Field("deletion", "Being deleted", rows, text)
