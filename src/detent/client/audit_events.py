"""Verbs about the audit log."""

from __future__ import annotations

from datetime import datetime

from detent.client.operation import Listing, Operation, Request
from detent.client.requests import PREFIX, reader
from detent.client.transport import PAGE_SIZE
from detent.contract.audit_event import AuditChain, AuditEvent
from detent.contract.page import Page


def list_audit_events(
    *,
    action: str | None = None,
    actor: str | None = None,
    object: str | None = None,  # noqa: A002 - the name is part of the contract
    since: datetime | str | None = None,
    until: datetime | str | None = None,
    tenant: str | None = None,
    all_tenants: bool = False,
) -> Request[Page[AuditEvent]]:
    """List changes, logins and refusals, newest first. `action` is the beginning of one; `actor` and `object` are an id
    or a name."""
    query = {
        "action": action,
        "actor": actor,
        "object": object,
        "since": _text(since),
        "until": _text(until),
        "tenant": tenant,
        "all_tenants": "true" if all_tenants else None,
        "limit": PAGE_SIZE,
    }
    return Request("GET", f"{PREFIX}/audit-events", reader(Page[AuditEvent]), query=query)


def list_audit_chain(*, after: int = 0) -> Request[Page[AuditEvent]]:
    """List the events of all tenants in the order of their chain of hashes, from behind a position."""
    query = {"after": after, "limit": PAGE_SIZE}
    return Request("GET", f"{PREFIX}/audit-events/chain", reader(Page[AuditEvent]), query=query)


def get_audit_chain() -> Request[AuditChain]:
    """Get both ends of the chain of hashes."""
    return Request("GET", f"{PREFIX}/audit-events/chain/ends", reader(AuditChain))


def _text(moment: datetime | str | None) -> str | None:
    return moment.isoformat() if isinstance(moment, datetime) else moment


class AuditEventVerbs:
    """The verbs of the clients about the audit log."""

    list_audit_events = Listing(list_audit_events)
    list_audit_chain = Listing(list_audit_chain)
    get_audit_chain = Operation(get_audit_chain)
