"""One run: the way it took, each attempt, what was sent and what came back, and the story in words."""

from __future__ import annotations

from typing import Any

from detent.api.runs import found_run, run_key
from detent.contract.run import Run
from detent.dashboard.drawings import gantt
from detent.dashboard.page import Page, View
from detent.domain.identity import RunKey
from detent.domain.job import HttpTarget
from detent.domain.states import OPEN, RunStatus
from detent.errors import DetentError
from detent.jobs.explanation import explain, span
from detent.store.overview import RunInput

# From the tick to the end, as a run usually goes.
NEVER_RAN = (RunStatus.SKIPPED, RunStatus.MISSED)


async def look(page: Page) -> dict[str, Any]:
    run = await found_run(page.api, page.names["id"])
    key = run_key(page.names["id"])
    given = await page.api.store.overview.given(key, tenant=page.tenant)
    return {
        "run": run,
        "manual": key.manual,
        "repeat": key.repeat,
        "first": key.first,
        "open": run.status in OPEN,
        "ran": run.status not in NEVER_RAN,
        "path": path_of(run, page),
        "gantt": gantt(run, page.now),
        "given": given,
        "request": request_of(run, given),
        "story": await _story(page, run, key),
    }


def path_of(run: Run, page: Page) -> list[dict[str, Any]]:
    """The states it went through, with when: those to come have none."""
    steps: list[dict[str, Any]] = [{"name": "scheduled", "at": run.scheduled_at, "state": "done"}]
    if run.status in NEVER_RAN:
        return [*steps, {"name": str(run.status), "at": run.finished_at, "state": "end", "status": run.status}]
    first = min((attempt.started_at for attempt in run.attempts if attempt.started_at), default=run.started_at)
    failures = [attempt for attempt in run.attempts if attempt.outcome in ("failed", "timeout", "lost")]
    began = {"name": "started", "at": first, "state": "done" if first else "to come"}
    if run.lateness_ms is not None:
        began["note"] = f"{run.lateness_ms:,} ms late"
    steps.append(began)
    if len(failures) > (run.status == RunStatus.DEAD):
        count = len(failures) - (run.status == RunStatus.DEAD)
        told = f"{count} attempt{'' if count == 1 else 's'} failed"
        steps.append({"name": "retried", "at": failures[count - 1].finished_at, "state": "done", "note": told})
    if run.status in OPEN:
        steps.append({"name": str(run.status), "at": page.now, "state": "now", "status": run.status})
        steps.append({"name": "finished", "at": None, "state": "to come"})
    else:
        steps.append({"name": str(run.status), "at": run.finished_at, "state": "end", "status": run.status})
    return steps


def request_of(run: Run, given: RunInput | None) -> list[tuple[str, str]]:
    """What the target was told, beside the payload."""
    if given is None:
        return []
    target = given.spec.target
    lines: list[tuple[str, str]] = []
    if isinstance(target, HttpTarget):
        lines = [("", f"{target.method} {target.url}"), *target.headers.items()]
    told = {"Idempotency-Key": run.idempotency_key, "Detent-Run-Id": str(run.id)}
    if run.token is not None:
        told |= {"Detent-Token": str(run.token), "Detent-Attempt": str(run.attempt)}
    return [*lines, *told.items()]


async def _story(page: Page, run: Run, key: RunKey) -> list[str]:
    if not key.manual and not key.repeat:
        try:
            story = await page.api.jobs.explainer.story(run.job_id, run.scheduled_at.isoformat(), tenant=page.tenant)
            return explain(story.facts)
        except DetentError as error:
            return [error.message]
    began = "It was asked for beside the schedule." if key.manual else "A run of the schedule."
    told = [began] if not key.repeat else [f"It repeats an earlier run, for the {_th(key.repeat)} time. {began}"]
    for attempt in run.attempts:
        took = "" if attempt.started_at is None else f" after {span(attempt.finished_at - attempt.started_at)}"
        told.append(f"Attempt {attempt.attempt} {attempt.outcome}{took}.")
    if run.status in OPEN:
        told.append(f"It is {run.status}.")
    return told


def _th(number: int) -> str:
    return {1: "first", 2: "second", 3: "third"}.get(number, f"{number}th")


view = View("run", "/runs/{id}", look, ("state", "tracks", "sent", "result", "story"))
