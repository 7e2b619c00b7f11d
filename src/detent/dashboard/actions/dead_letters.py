"""Dead runs brought back, or dealt with for good: one, a group, or all."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from detent.api.context import Api
from detent.api.dead_letters import ChosenRuns, discard_dead_letters, redrive_dead_letters
from detent.dashboard.changes import Answer, Change, Form, text_of
from detent.errors import UsageError
from detent.registration import is_job_id

Names = Mapping[str, str]


async def redrive(api: Api, names: Names, form: Form) -> Answer:
    done = await redrive_dead_letters(api, _chosen(form))
    count = len(done.redriven)
    left = f" {done.remaining:,} are left: some jobs have no room yet." if done.remaining else ""
    if not count:
        return Answer(f"Nothing was brought back.{left}" if left else "Nothing was brought back: no such run is dead.")
    return Answer(f"{count:,} {'run goes' if count == 1 else 'runs go'} on, with all tries anew.{left}")


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


changes = (
    Change("/dead-letters/redrive", "operate", redrive),
    Change("/dead-letters/discard", "operate", discard),
)
