"""The audit log: who changed what, newest first. For administrators."""

from __future__ import annotations

from typing import Any

from detent.api.audit_events import EventQuery, list_audit_events
from detent.contract.audit_event import AuditEvent
from detent.dashboard.page import PageRequest, PageView
from detent.errors import UsageError
from detent.store.jobs import DEFAULT_TENANT

ROWS = 50
HINTS = ("action:job.delete", "action:key", "action:session", "action:request.refuse", "actor:", "object:")
FIELDS = ("action", "actor", "object")
LONGEST_WORD = 200
# The beginnings of actions, for the chips above the list.
KINDS = ("job", "run", "key", "role", "tenant", "queue", "session", "request", "cluster")


async def load(page: PageRequest) -> dict[str, Any]:
    page.visitor.caller.check("admin")
    search = page.query.get("search", "").strip()
    every = page.query.get("tenants") == "all" and page.tenant == DEFAULT_TENANT
    values = {
        "search": search,
        "hints": HINTS,
        "kinds": KINDS,
        "every": every,
        "manages_all": page.tenant == DEFAULT_TENANT,
        "wrong": None,
    }
    try:
        query = EventQuery(**_filters(search), all_tenants=every, cursor=page.query.get("cursor") or None, limit=ROWS)
        found = await list_audit_events(page.api, query)
    except UsageError as error:
        return {**values, "wrong": error.message, "events": [], "following": None}
    return {**values, "events": [(event, _changes(event)) for event in found.items], "following": found.next_cursor}


def _filters(search: str) -> dict[str, Any]:
    """`action:job actor:deploys object:report`; a word without a name is an object."""
    found: dict[str, str] = {}
    for word in search.split():
        name, colon, text = word.partition(":")
        if not colon:
            name, text = "object", word
        if name not in FIELDS or not text or len(text) > LONGEST_WORD:
            raise UsageError(f"The search cannot use {word!r}: use {', '.join(f'{each}:…' for each in FIELDS)}.")
        found[name] = text
    return found


def _changes(event: AuditEvent) -> list[tuple[str, Any, Any]]:
    """What changed, as name, before and after; None: there was, or is, no such value."""
    before, after = (side if isinstance(side, dict) else {} for side in (event.before, event.after))
    return [(name, before.get(name), after.get(name)) for name in {**before, **after}]


view = PageView("changes", "/changes", load, ("rows",))
