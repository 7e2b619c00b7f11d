"""One change for all jobs that match a search, or for the selected jobs: counted first, then made in chunks while the
dialog is open.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args
from uuid import UUID

from detent.api.bulk import BulkRequest, change_found, change_many
from detent.api.context import Api
from detent.contract.job import BulkAction
from detent.dashboard.changes import ChangeAnswer, Form, FormChange, number_of, text_of
from detent.domain.names import is_job_id
from detent.errors import UsageError
from detent.store.job_search import JobSearch

EVERYTHING = "name:*"
MAX_SELECTED = 100
# For each action: the title, what would happen, and what has happened.
WORDS: dict[str, tuple[str, str, str]] = {
    "pause": ("Pause", "be paused", "Paused"),
    "resume": ("Resume", "be resumed", "Resumed"),
    "delete": ("Delete", "be deleted", "Deleted"),
    "retry": ("Retry the dead runs of", "have their dead runs retried", "Retried the dead runs of"),
    "cancel": (
        "Cancel the unfinished runs of",
        "have their unfinished runs cancelled",
        "Cancelled the unfinished runs of",
    ),
}


async def change(api: Api, names: Mapping[str, str], form: Form) -> ChangeAnswer:
    action: Any = text_of(form, "action")
    if action not in get_args(BulkAction):
        raise UsageError(f"Unknown bulk action {action!r}: choose one of {', '.join(WORDS)}.", "/action")
    search, ids = text_of(form, "search") or EVERYTHING, _selected(form)
    dry_run = text_of(form, "sure") != "yes"
    reason = text_of(form, "reason") or None
    body = BulkRequest(
        action=action, filter=search, dry_run=dry_run, reason=reason if action == "pause" and not dry_run else None,
        cursor=text_of(form, "cursor") or None,
    )  # fmt: skip
    result = await (change_found(api, body, JobSearch(ids=ids)) if ids else change_many(api, body))
    verb, would, done = WORDS[action]
    values = {
        "action": action,
        "verb": verb,
        "would": would,
        "done": done,
        "search": search,
        "everything": search == EVERYTHING and not ids,
        "ids": ids,
        "reason": reason or "",
        "result": result,
        "matched": result.matched + number_of(form, "matched"),
        "changed": result.changed + number_of(form, "changed"),
    }
    return ChangeAnswer(template="bulk.html", values=values)


def _selected(form: Form) -> tuple[UUID, ...]:
    texts = form.get("id", [])[:MAX_SELECTED]
    for text in texts:
        if not is_job_id(text):
            raise UsageError(f"The selected job id {text!r} is not valid: reload the page and select again.")
    return tuple(UUID(text) for text in texts)


changes = (FormChange("/jobs/bulk", "operate", change),)
