"""One change for all jobs that a search finds, or for those that were selected: counted first, then made a chunk at a
time while somebody looks on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args
from uuid import UUID

from detent.api.bulk import BulkRequest, change_found, change_many
from detent.api.context import Api
from detent.contract.job import BulkAction
from detent.dashboard.changes import Answer, Change, Form, number_of, text_of
from detent.domain.registration import is_job_id
from detent.errors import UsageError
from detent.store.job_search import JobSearch

EVERYTHING = "name:*"
MOST_SELECTED = 100
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
    search, ids = text_of(form, "search") or EVERYTHING, _selected(form)
    dry_run = text_of(form, "sure") != "yes"
    reason = text_of(form, "reason") or None
    body = BulkRequest(
        action=action, filter=search, dry_run=dry_run, reason=reason if action == "pause" and not dry_run else None,
        cursor=text_of(form, "cursor") or None,
    )  # fmt: skip
    done = await (change_found(api, body, JobSearch(ids=ids)) if ids else change_many(api, body))
    values = {
        "action": action,
        "verb": WORDS[action][0],
        "past": WORDS[action][1],
        "search": search,
        "everything": search == EVERYTHING and not ids,
        "ids": ids,
        "reason": reason or "",
        "result": done,
        "matched": done.matched + number_of(form, "matched"),
        "changed": done.changed + number_of(form, "changed"),
    }
    return Answer(template="bulk.html", values=values)


def _selected(form: Form) -> tuple[UUID, ...]:
    texts = form.get("id", [])[:MOST_SELECTED]
    for text in texts:
        if not is_job_id(text):
            raise UsageError(f"A job that was selected is {text!r}, which is no id: reload the page and select again.")
    return tuple(UUID(text) for text in texts)


changes = (Change("/jobs/bulk", "operate", change),)
