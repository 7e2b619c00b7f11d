"""Retry or discard dead runs: one, a group, or all."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from detent.api.context import Api
from detent.api.dead_letters import ChosenRuns, discard_dead_letters, redrive_dead_letters
from detent.dashboard.changes import ChangeAnswer, Form, FormChange, number_of, text_of
from detent.domain.documents import utc_instant
from detent.domain.names import is_job_id
from detent.domain.pace import pace, read_rate
from detent.errors import UsageError
from detent.store.dead_letters import MAX_AT_ONCE

AT_LIMIT_SECONDS = 2.0  # the pause when every job is at its concurrency limit
SHORTEST_PAUSE_SECONDS = 0.03

Names = Mapping[str, str]


async def redrive(api: Api, names: Names, form: Form) -> ChangeAnswer:
    done = await redrive_dead_letters(api, _chosen(form))
    count = len(done.redriven)
    left = f" {done.remaining:,} are left: their jobs are at their concurrency limit." if done.remaining else ""
    if not count:
        return ChangeAnswer(f"No run was retried.{left}" if left else "No run was retried: it is not dead.")
    return ChangeAnswer(f"{count:,} {'run is' if count == 1 else 'runs are'} retried.{left}")


async def redrive_many(api: Api, names: Names, form: Form) -> ChangeAnswer:
    """Retry a whole group, or all. The first answer asks for the rate; the next ones retry a chunk each while the
    dialog is open. Runs that die again meanwhile are not retried again."""
    sure, text = text_of(form, "sure") == "yes", text_of(form, "rate")
    rate = read_rate("The rate", text) if text else None
    chosen = _chosen(form)
    values: dict[str, Any] = {"job": chosen.job or "", "group": chosen.group or "", "rate": text, "sure": sure}
    if not sure:
        return ChangeAnswer(
            template="redrive.html", values={**values, "before": (await api.store.upkeep.now()).isoformat()}
        )
    chunk, pause = pace(rate, MAX_AT_ONCE)
    before = _instant(text_of(form, "before"))
    done = await redrive_dead_letters(api, msgspec.structs.replace(chosen, before=before, limit=chunk))
    count = len(done.redriven)
    stays = done.remaining > 0 and not count and rate is None
    return ChangeAnswer(
        template="redrive.html",
        values={
            **values,
            "before": text_of(form, "before"),
            "redriven": count + number_of(form, "redriven"),
            "remaining": done.remaining,
            "over": stays or not done.remaining,
            "pause_ms": round(1000 * max(pause if count else AT_LIMIT_SECONDS, SHORTEST_PAUSE_SECONDS)),
            "at_limit": not count,
        },
    )


async def discard(api: Api, names: Names, form: Form) -> ChangeAnswer:
    done = await discard_dead_letters(api, _chosen(form))
    left = f" {done.remaining:,} are left." if done.remaining else ""
    kept = "It stays in history." if done.discarded == 1 else "They stay in history."
    return ChangeAnswer(
        f"{done.discarded:,} dead {'run is' if done.discarded == 1 else 'runs are'} discarded. {kept}{left}"
    )


def _chosen(form: Form) -> ChosenRuns:
    run = text_of(form, "run")
    if run:
        if not is_job_id(run):
            raise UsageError(f"The run id {run!r} is not valid.", "/runs")
        return ChosenRuns(runs=[UUID(run)])
    return ChosenRuns(all=True, job=text_of(form, "job") or None, group=text_of(form, "group") or None)


def _instant(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
        if found.tzinfo is not None:
            return utc_instant(found, "The time", "/before")
    except ValueError:
        pass
    raise UsageError(f"The time {text!r} is not valid: reload the page and try again.", "/before")


changes = (
    FormChange("/dead-letters/redrive", "operate", redrive),
    FormChange("/dead-letters/redrive-many", "operate", redrive_many),
    FormChange("/dead-letters/discard", "operate", discard),
)
