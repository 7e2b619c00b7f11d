"""Dead runs brought back, or dealt with for good: one, a group, or all."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from detent.api.context import Api
from detent.api.dead_letters import ChosenRuns, discard_dead_letters, redrive_dead_letters
from detent.dashboard.changes import Answer, Change, Form, number_of, text_of
from detent.domain.documents import utc_instant
from detent.domain.pace import pace, read_rate
from detent.domain.registration import is_job_id
from detent.errors import UsageError
from detent.store.dead_letters import MOST_AT_ONCE

NO_ROOM_SECONDS = 2.0
LEAST_SECONDS = 0.03

Names = Mapping[str, str]


async def redrive(api: Api, names: Names, form: Form) -> Answer:
    done = await redrive_dead_letters(api, _chosen(form))
    count = len(done.redriven)
    left = f" {done.remaining:,} are left: some jobs have no room yet." if done.remaining else ""
    if not count:
        return Answer(f"Nothing was brought back.{left}" if left else "Nothing was brought back: no such run is dead.")
    return Answer(f"{count:,} {'run goes' if count == 1 else 'runs go'} on, with all tries anew.{left}")


async def redrive_many(api: Api, names: Names, form: Form) -> Answer:
    """All of a kind: asked first how fast, then a lot at a time while somebody looks on. Runs that die again are not
    brought back again."""
    sure, text = text_of(form, "sure") == "yes", text_of(form, "rate")
    rate = read_rate("The rate", text) if text else None
    chosen = _chosen(form)
    values: dict[str, Any] = {"job": chosen.job or "", "group": chosen.group or "", "rate": text, "sure": sure}
    if not sure:
        return Answer(template="redrive.html", values={**values, "before": (await api.store.upkeep.now()).isoformat()})
    lot, pause = pace(rate, MOST_AT_ONCE)
    before = _instant(text_of(form, "before"))
    done = await redrive_dead_letters(api, msgspec.structs.replace(chosen, before=before, limit=lot))
    count = len(done.redriven)
    stays = done.remaining > 0 and not count and rate is None
    return Answer(
        template="redrive.html",
        values={
            **values,
            "before": text_of(form, "before"),
            "redriven": count + number_of(form, "redriven"),
            "remaining": done.remaining,
            "over": stays or not done.remaining,
            "pause_ms": round(1000 * max(pause if count else NO_ROOM_SECONDS, LEAST_SECONDS)),
            "crowded": not count,
        },
    )


async def discard(api: Api, names: Names, form: Form) -> Answer:
    done = await discard_dead_letters(api, _chosen(form))
    left = f" {done.remaining:,} are left." if done.remaining else ""
    kept = "It stays in history." if done.discarded == 1 else "They stay in history."
    return Answer(f"{done.discarded:,} dead {'run is' if done.discarded == 1 else 'runs are'} dealt with. {kept}{left}")


def _chosen(form: Form) -> ChosenRuns:
    run = text_of(form, "run")
    if run:
        if not is_job_id(run):
            raise UsageError(f"The run is {run!r}, which is no id of one.", "/runs")
        return ChosenRuns(runs=[UUID(run)])
    return ChosenRuns(all=True, job=text_of(form, "job") or None, group=text_of(form, "group") or None)


def _instant(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
        if found.tzinfo is not None:
            return utc_instant(found, "The time", "/before")
    except ValueError:
        pass
    raise UsageError(f"The time is {text!r}, which is none: reload the page and try again.", "/before")


changes = (
    Change("/dead-letters/redrive", "operate", redrive),
    Change("/dead-letters/redrive-many", "operate", redrive_many),
    Change("/dead-letters/discard", "operate", discard),
)
