"""`detent audit-log …`: who changed what. `detent audit` is something else: it accounts for ticks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, TextIO

import click

from detent.cli import base, output, times
from detent.cli.base import command, group, option
from detent.cli.invocation import api_options, connect, invocation, read_number
from detent.cli.local_zone import local_zone
from detent.cli.output import Column, Item
from detent.cli.runs import paging_options
from detent.domain.counts import plural
from detent.errors import UsageError

if TYPE_CHECKING:
    from detent.contract.audit_event import AuditEvent
    from detent.domain.audit_chain import ChainCheck, ChainEnds

audit_log = group(
    "audit-log",
    "Show who changed what, and verify that no record of it was altered.\n\n"
    "`detent audit` is another command: it accounts for every tick.",
    panel="Administration",
)

FAILED = 1
SHOWN_FAULTS = 100
_HEAD = re.compile(r"(\d{1,18}):([0-9a-f]{64})")


def _who(event: Item) -> str:
    actor = event["actor"]
    return str(actor["name"] or actor["id"] or actor["kind"])


def _what(event: Item) -> str:
    found = event["object"]
    return f"{found['kind']} {found['name'] or found['id'] or ''}".rstrip()


def _changes(event: Item) -> str:
    before, after = event["before"] or {}, event["after"] or {}
    return ", ".join(_change(name, before, after) for name in {**before, **after})


def _change(name: str, before: Item, after: Item) -> str:
    values = [json.dumps(side[name], ensure_ascii=False) for side in (before, after) if side.get(name) is not None]
    return f"{name} {' → '.join(values)}"


def columns() -> tuple[Column, ...]:
    time = Column(
        f"TIME ({local_zone()})" if base.on_terminal() else "TIME",
        lambda event: event["at"],
        lambda event, at: times.clock(event["at"]),
    )
    return (*COLUMNS[:1], time, *COLUMNS[1:])


COLUMNS = (
    Column("ID", lambda event: event["id"], right=True, extra=True),
    Column("WHO", _who, least=12),
    Column("ACTION", lambda event: event["action"]),
    Column("OBJECT", _what, least=16),
    Column("CHANGE", _changes, least=30, folds=True),
    Column("FROM", lambda event: event["address"], extra=True),
    Column("TENANT", lambda event: event["tenant"], extra=True),
    Column("REQUEST", lambda event: event["request_id"], extra=True),
)


@command(
    audit_log,
    "list",
    examples=(
        "detent audit-log list --since 1d",
        "detent audit-log list --action job.delete --object report",
        "detent audit-log list --actor deploys --json",
    ),
)
@option("--action", metavar="TEXT", help="Only actions that begin so: job, job.delete, key, session.")
@option("--actor", metavar="TEXT", help="Only changes of this key, app or command, by id or name.")
@option("--object", "found", metavar="TEXT", help="Only changes of this job, run, key or other object, by id or name.")
@option("--since", metavar="TIME", help="Only from this time on, such as 2h, yesterday or 2030-01-31T12:00:00Z.")
@option("--until", metavar="TIME", help="Only before this time.")
@option("--tenant", metavar="NAME", help="Of this tenant; for admins of the default tenant. [your own]")
@option("--all-tenants", is_flag=True, help="Of all tenants; for admins of the default tenant.")
@paging_options
@api_options(quiet="ids only")
def list_events(
    action: str | None,
    actor: str | None,
    found: str | None,
    since: str | None,
    until: str | None,
    tenant: str | None,
    all_tenants: bool,
    limit: int,
    cursor: str | None,
) -> None:
    """List changes, logins and refused requests, the newest first."""
    with connect() as client:
        events = client.list_audit_events(
            action=action,
            actor=actor,
            object=found,
            since=_moment("--since", since),
            until=_moment("--until", until),
            tenant=tenant,
            all_tenants=all_tenants,
        )
        output.print_page(events.gather(limit, cursor), columns(), "There are no such events.")


def _moment(flag: str, text: str | None) -> str | None:
    return None if text is None else times.written(times.read_moment(flag, text, ahead=False))


@command(
    audit_log,
    "export",
    examples=("detent audit-log export > audit.jsonl", "detent audit-log export --after 120000 > newer.jsonl"),
)
@option(
    "--after",
    default="0",
    metavar="N",
    callback=lambda context, parameter, text: read_number("--after", text, 0),
    help="Only events behind this position in the chain. [0]",
)
@api_options()
def export(after: int) -> None:
    """Print the events of all tenants as JSON, one in a line.

    They come in the order of their chain of hashes, so that `detent audit-log
    verify FILE` can check the file later, on any machine. For admins of the
    default tenant. Events of the last seconds may not be chained yet.
    """
    with connect() as client:
        for event in client.list_audit_chain(after=after):
            print(json.dumps(event, ensure_ascii=True, separators=(",", ":")))


@command(
    audit_log,
    "verify",
    examples=(
        "detent audit-log verify",
        "detent audit-log verify audit.jsonl",
        "detent audit-log verify --expect 1204:$HASH",
    ),
)
@click.argument("file", type=click.File("r", encoding="utf-8", errors="replace"), required=False)
@option("--expect", metavar="N:HASH", help="A head that an earlier verify printed: it must still be in the chain.")
@api_options(quiet="nothing: the exit code is the answer")
def verify(file: TextIO | None, expect: str | None) -> int:
    """Check the chain of hashes; exit code 1 if an event was altered or removed.

    The hashes are computed here, from the events that the server sends, or
    from an exported FILE. Whoever can write to the database can compute a new
    chain: keep the head that this prints elsewhere, and give it with --expect
    later. For admins of the default tenant.
    """
    expected = _expected(expect)
    if file is not None:
        check, waiting = _checked(_read_lines(file), None, expected), 0
    else:
        check, waiting = _checked_by_server(expected)
    return _report(check, waiting)


def _expected(text: str | None) -> tuple[int, bytes] | None:
    if text is None:
        return None
    found = _HEAD.fullmatch(text)
    if found is None:
        raise UsageError(f"--expect is {text!r}: give a head as `detent audit-log verify` prints it, POSITION:HASH.")
    return int(found[1]), bytes.fromhex(found[2])


def _checked_by_server(expected: tuple[int, bytes] | None) -> tuple[ChainCheck, int]:
    from msgspec import convert

    from detent.contract.audit_event import AuditChain, AuditEvent

    with connect() as client:
        while True:
            # The ends first: events that are chained while this reads are behind them.
            chain = convert(client.get_audit_chain(), AuditChain)
            events = (convert(item, AuditEvent) for item in client.list_audit_chain(after=chain.purged))
            check = _checked(events, chain.ends, expected)
            if not check.faults or client.get_audit_chain()["purged"] == chain.purged:
                return check, chain.unchained  # or old events were removed meanwhile, and it begins elsewhere


def _checked(events: Iterable[AuditEvent], ends: ChainEnds | None, expected: tuple[int, bytes] | None) -> ChainCheck:
    """`ends` None: those of a file, which may begin anywhere."""
    from detent.domain.audit_chain import ChainCheck

    check = None if ends is None else ChainCheck(ends.purged, ends.purged_hash, expected)
    for event in events:
        link = event.link
        if link is None or (ends is not None and link.position > ends.head):
            continue
        check = check or ChainCheck(link.position - 1, None, expected)
        check.read(link)
    check = check or ChainCheck(expected=expected)
    check.end(ends)
    return check


def _read_lines(file: TextIO) -> Iterator[AuditEvent]:
    from msgspec import DecodeError, ValidationError
    from msgspec.json import Decoder

    from detent.contract.audit_event import AuditEvent

    decoder = Decoder(AuditEvent)
    for number, line in enumerate(file, 1):
        if line.isspace():
            continue
        try:
            yield decoder.decode(line)
        except (ValidationError, DecodeError) as error:
            raise UsageError(
                f"Line {number} of {file.name} is not an event of an audit log ({error}): give a file that "
                "`detent audit-log export` wrote."
            ) from error


def _report(check: ChainCheck, waiting: int) -> int:
    position, digest = check.head
    head = f"{position}:{digest.hex()}"
    document: dict[str, Any] = {
        "ok": not check.faults,
        "events": check.events,
        "head": head,
        "not_chained_yet": waiting,
        "faults": [fault._asdict() for fault in check.faults],
    }
    if invocation().format == "json":
        output.print_json(document)
    elif invocation().format == "text":
        for fault in check.faults[:SHOWN_FAULTS]:
            print(fault.text)
        _say_result(check, head, waiting)
    return FAILED if check.faults else 0


def _say_result(check: ChainCheck, head: str, waiting: int) -> None:
    if check.faults:
        output.say(f"The audit log is not intact: {_count(len(check.faults), 'fault')} in {_events(check.events)}.")
    else:
        output.say(f"The audit log is intact: {_events(check.events)}, head {head}.")
    if waiting:
        output.say(f"Not chained yet: {_events(waiting)}; nodes do that within seconds.")


def _events(count: int) -> str:
    return _count(count, "event")


def _count(count: int, noun: str) -> str:
    return plural(count, noun)
