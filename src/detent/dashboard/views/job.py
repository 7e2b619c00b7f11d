"""One job: its status, definition, next ticks, runs, deadlines and revisions."""

from __future__ import annotations

import json
import shlex
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from detent.api.backfills import get_catchup
from detent.api.conditions import ReadHeaders
from detent.api.jobs import get_job
from detent.api.lifecycle import RevisionQuery, list_revisions, list_skips
from detent.api.preview import PreviewRequest, preview_schedule
from detent.contract.job import Job, Preview
from detent.contract.task import TaskSummary
from detent.dashboard.charts import heat, quantile
from detent.dashboard.formatting import seconds
from detent.dashboard.incidents import DEADLINE, describe_incident
from detent.dashboard.page import PageRequest, PageView
from detent.domain.job import JobSpec
from detent.errors import DetentError

RUNS = 30
DURATIONS = 120
NEXT = 10
SCHEDULED = 200
REVISIONS = 8
INCIDENTS = 6
DAYS_BACK = 28
DEFAULTS = {field.name: field for field in msgspec.structs.fields(JobSpec)}
NOT_SHOWN = {"name", "schedule", "timezone", "target", "payload", "tags"}


async def load(page: PageRequest) -> dict[str, Any]:
    api, reference = page.api, page.names["id"]
    job: Job = (await get_job(api, reference, ReadHeaders())).value
    recent = (await api.store.overview.recent([job.id], DURATIONS, tenant=page.tenant))[job.id]
    preview, refused = await _preview(page, job)
    hours, complete = await api.store.overview.hours(job.id, _first_midnight(page.now), tenant=page.tenant)
    scheduled = [tick.at for tick in preview.ticks] if preview and job.status == "active" else []
    lengths = [run.seconds for run in recent if run.seconds is not None]
    incidents = await api.store.expectations.incidents(tenant=page.tenant, before=None, limit=INCIDENTS, job_id=job.id)
    return {
        "job": job,
        "deadlines": deadlines_of(job),
        "incidents": [describe_incident(incident) for incident in incidents],
        "runs": recent[:RUNS],
        "last": tuple(recent[:60]),
        "preview": preview,
        "refused": refused,
        "next": preview.ticks[:NEXT] if preview else [],
        "heat": heat(hours, scheduled, page.now, DAYS_BACK),
        "complete": complete,
        "lengths": {
            "runs": len(lengths),
            "p50": quantile(lengths, 0.5),
            "p95": quantile(lengths, 0.95),
            "longest": max(lengths, default=None),
        },
        "revisions": await list_revisions(api, str(job.id), RevisionQuery(limit=REVISIONS)),
        "skips": {skip.at for skip in await list_skips(api, str(job.id))},
        "catchup": await get_catchup(api, str(job.id)),
        "waiting": await _waiting(page, job),
        "settings": settings_of(job),
        "commands": commands(job, api.settings.api_url),
        "document": document_of(job),
    }


async def _waiting(page: PageRequest, job: Job) -> TaskSummary | None:
    """The unfinished runs of a task."""
    number = None if job.schedule is not None else await page.api.store.jobs.number(job.id, tenant=page.tenant)
    if number is None:
        return None
    found, _ = await page.api.store.tasks.summaries(after=number - 1, limit=1, tenant=page.tenant)
    return next((task for task in found if task.id == job.id), None)


def _first_midnight(now: datetime) -> datetime:
    """When the first day of the heat map begins, in UTC."""
    return (now - timedelta(days=DAYS_BACK)).astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


async def _preview(page: PageRequest, job: Job) -> tuple[Preview | None, str | None]:
    """The next ticks, or the reason why they cannot be computed."""
    asked = PreviewRequest(
        schedule=job.schedule, timezone=job.timezone, count=SCHEDULED, dst_gap=job.dst_gap, dst_overlap=job.dst_overlap,
        day_match=job.day_match, dialect=job.dialect, starts_at=job.starts_at, ends_at=job.ends_at, job=str(job.id),
    )  # fmt: skip
    try:
        return await preview_schedule(page.api, asked), None
    except DetentError as error:
        return None, error.message


def deadlines_of(job: Job) -> list[str]:
    limits = {"start": job.expect_start_within, "finish": job.expect_finish_within}
    return [f"{DEADLINE[kind]} {seconds(within)}" for kind, within in limits.items() if within is not None]


def settings_of(job: Job) -> list[tuple[str, Any, bool]]:
    """Every other field, and whether it differs from its default."""
    settings = []
    for name, field in DEFAULTS.items():
        if name in NOT_SHOWN:
            continue
        value = getattr(job, name)
        default = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
        settings.append((name, value, value != default))
    return settings


def document_of(job: Job) -> dict[str, Any]:
    """The job as a user would write it: only the fields that differ from the defaults."""
    changed = {name: value for name, value, differs in settings_of(job) if differs}
    spec = {"name": job.name, "schedule": job.schedule, "timezone": job.timezone, "target": job.target}
    rest = {"payload": job.payload, "tags": job.tags}
    document: dict[str, Any] = msgspec.to_builtins({**spec, **{k: v for k, v in rest.items() if v}, **changed})
    return document


def commands(job: Job, url: str) -> dict[str, str]:
    """Equivalent commands for the command line and the HTTP API."""
    name = shlex.quote(job.name)
    body = shlex.quote(json.dumps(document_of(job), ensure_ascii=False))
    update = f"curl -X PUT {url}/api/v1/jobs/by-name/{_segment(job.name)} -H 'Content-Type: application/json' -d {body}"
    if job.schedule is None:
        post = f"curl {url}/api/v1/tasks/{_segment(job.name)}/runs -H 'Content-Type: application/json'"
        return {
            "Enqueue a run": f"detent task run {name} --in 10m",
            "Enqueue a run over HTTP": f"{post} -d '{{\"delay_seconds\": 600}}'",
            "Enqueue a run in a transaction": f"SELECT * FROM detent.enqueue({_literal(job.name)});",  # noqa: S608 - shown
            "Create or update this job": update,
        }
    return {
        "Run now": f"detent job trigger {name} --wait",
        "List its ticks": f"detent job ticks {name}",
        "Explain one tick": f"detent explain {name} {_example(job)}",
        "Create or update this job": update,
    }


def _literal(text: str) -> str:
    """As SQL writes it."""
    return "'" + text.replace("'", "''") + "'"


def _example(job: Job) -> str:
    moment: datetime = job.last_run_at or job.created_at
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def _segment(name: str) -> str:
    from urllib.parse import quote

    return quote(name, safe="")


view = PageView("job", "/jobs/{id}", load, ("status", "recent", "incidents"))
