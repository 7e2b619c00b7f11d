"""One change for all jobs that a search finds: counted first, then made a chunk at a time while somebody looks on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from detent.api.bulk import BulkRequest, change_many
from detent.api.context import Api
from detent.dashboard.changes import Answer, Change, Form, text_of
from detent.errors import UsageError
from detent.shapes import BulkAction

EVERYTHING = "name:*"
WORDS: dict[str, tuple[str, str]] = {
    "pause": ("Pause", "paused"),
    "resume": ("Resume", "resumed"),
    "delete": ("Delete", "deleted"),
    "retry": ("Retry the dead runs of", "let go on"),
    "cancel": ("Cancel the open runs of", "cancelled"),
}


async def change(api: Api, names: Mapping[str, str], form: Form) -> Answer:
    action: Any = text_of(form, "action")
    if action not in get_args(BulkAction):
        raise UsageError(f"There is no change {action!r} for many jobs: choose one of {', '.join(WORDS)}.", "/action")
    search = text_of(form, "search") or EVERYTHING
    dry_run = text_of(form, "sure") != "yes"
    reason = text_of(form, "reason") or None
    body = BulkRequest(
        action=action, filter=search, dry_run=dry_run, reason=reason if action == "pause" and not dry_run else None,
        cursor=text_of(form, "cursor") or None,
    )  # fmt: skip
    done = await change_many(api, body)
    values = {
        "action": action,
        "verb": WORDS[action][0],
        "past": WORDS[action][1],
        "search": search,
        "everything": search == EVERYTHING,
        "reason": reason or "",
        "result": done,
        "matched": done.matched + _number(form, "matched"),
        "changed": done.changed + _number(form, "changed"),
    }
    return Answer(template="bulk.html", values=values)


def _number(form: Form, name: str) -> int:
    text = text_of(form, name)
    return int(text) if text.isdecimal() and len(text) < 12 else 0


changes = (Change("/jobs/bulk", "operate", change),)
