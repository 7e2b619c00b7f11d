"""One run: its states, its attempts, the request, the result, and an explanation in sentences."""

from __future__ import annotations

from typing import Any

from detent.api.references import run_key
from detent.api.runs import found_run
from detent.api.serving import with_wait
from detent.api.visibility import sees_headers
from detent.contract.run import Run
from detent.dashboard.charts import gantt
from detent.dashboard.page import PageRequest, PageView
from detent.domain.identity import RunKey
from detent.domain.job import HttpTarget, TopicTarget
from detent.domain.sensitive import masked_headers
from detent.domain.states import OPEN, RunStatus
from detent.errors import DetentError
from detent.store.output import LogPlace
from detent.store.overview import RunInput

# Of each attempt at most 1,000 lines are kept.
LINES_READ = 2_000
LINES_SHOWN = 300
NEVER_RAN = (RunStatus.SKIPPED, RunStatus.MISSED)


async def load(page: PageRequest) -> dict[str, Any]:
    found = await found_run(page.api, page.names["id"])
    key = run_key(str(found.id))
    run = await with_wait(page.api, found, key)
    given = await page.api.store.overview.run_input(key, tenant=page.tenant)
    return {
        "run": run,
        "manual": key.manual,
        "on_demand": key.on_demand,
        "repeat": key.repeat,
        "first": key.first,
        "open": run.status in OPEN,
        "ran": run.status not in NEVER_RAN,
        "path": path_of(run, page),
        "gantt": gantt(run, page.now),
        "given": given,
        "request": request_of(run, given, hidden=not sees_headers(page.api.caller)),
        "story": await _story(page, run, key),
        "output": await _output(page, key),
    }


def path_of(run: Run, page: PageRequest) -> list[dict[str, Any]]:
    """The states of the run with their times; a later state has none."""
    begin = "due" if run_key(str(run.id)).on_demand else "scheduled"
    steps: list[dict[str, Any]] = [
        {"name": begin, "at": run.scheduled_at, "state": "done" if run.scheduled_at <= page.now else "to come"}
    ]
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
        name, lead = ("1 attempt failed", "") if count == 1 else (f"{count} attempts failed", "the last at ")
        steps.append({"name": name, "at": failures[count - 1].finished_at, "state": "done", "lead": lead})
    if run.status in OPEN:
        steps.append({"name": str(run.status), "at": page.now, "state": "now", "status": run.status})
        steps.append({"name": "finished", "at": None, "state": "to come"})
    else:
        steps.append({"name": str(run.status), "at": run.finished_at, "state": "end", "status": run.status})
    return steps


def request_of(run: Run, given: RunInput | None, *, hidden: bool = True) -> list[tuple[str, str]]:
    """The request line and headers that the target receives, with references instead of secrets. `hidden`: without
    literal credentials, which the visitor may not see. Without `Detent-Attempt`: it begins at 1 again after a re-drive,
    while the attempts of the page are numbered on."""
    if given is None:
        return []
    target = given.spec.target
    lines: list[tuple[str, str]] = []
    if isinstance(target, HttpTarget):
        shown = masked_headers(target.headers) if hidden else target.headers
        lines = [("", f"{target.method} {target.url}"), *((name, str(value)) for name, value in shown.items())]
    if isinstance(target, TopicTarget):
        shown = masked_headers(target.headers) if hidden else target.headers
        lines = [("", f"{target.topic} at {target.url}"), *((name, str(value)) for name, value in shown.items())]
    headers = {"Idempotency-Key": run.idempotency_key, "Detent-Run-Id": str(run.id)}
    if run.token is not None:
        headers["Detent-Token"] = str(run.token)
    return [*lines, *headers.items()]


async def _story(page: PageRequest, run: Run, key: RunKey) -> list[str]:
    try:
        return await page.api.jobs.explainer.run(run, key, tenant=page.tenant)
    except DetentError as error:
        return [error.message]


async def _output(page: PageRequest, key: RunKey) -> dict[str, Any]:
    """The last lines of the run, each with the number of those that are missing before it."""
    part = await page.api.store.output.read(key, LogPlace(), tenant=page.tenant, limit=LINES_READ)
    shown: list[dict[str, Any]] = []
    attempt, number = 0, 0
    for line in part.lines:
        begins = line.attempt != attempt or line.number <= number  # one that was not counted had the same number
        if begins:
            number = 0
        new = line.attempt if begins and (attempt or line.attempt > 1) else None
        shown.append({"line": line, "missing": line.number - number - 1, "attempt": new})
        attempt, number = line.attempt, line.number
    return {"lines": shown[-LINES_SHOWN:], "earlier": max(0, len(shown) - LINES_SHOWN)}


view = PageView("run", "/runs/{id}", load, ("state", "tracks", "output", "sent", "result", "story"))
