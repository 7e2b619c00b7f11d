"""Changes of one job: create, edit, pause, run, delete and so on."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import UNSET

from detent.api import jobs, lifecycle
from detent.api.conditions import ChangeHeaders
from detent.api.context import Api
from detent.api.dead_letters import retry_job
from detent.api.preview import PreviewRequest, preview_schedule
from detent.api.request_parsing import decode_body
from detent.api.tasks import RunsBody, enqueue_runs
from detent.dashboard.changes import ChangeAnswer, Form, FormChange, text_of
from detent.dashboard.form import (
    FIELDS,
    SCHEDULE_FIELDS,
    document_from,
    number_from,
    payload_from,
    schedule_from,
    without_nulls,
)
from detent.dashboard.moment_fields import instant_from
from detent.domain.counts import plural
from detent.domain.documents import utc_instant
from detent.domain.job import JobSpec
from detent.errors import UsageError

PREVIEWED_TICKS = 6

Names = Mapping[str, str]


async def create(api: Api, names: Names, form: Form) -> ChangeAnswer:
    try:
        document = without_nulls(document_from(form))
        reply = await jobs.create_job(api, decode_body(msgspec.json.encode(document), JobSpec))
    except UsageError as error:
        return _form_error(error)
    return ChangeAnswer(redirect=f"/jobs/{reply.value.id}")


async def edit(api: Api, names: Names, form: Form) -> ChangeAnswer:
    try:
        document = {name: value for name, value in document_from(form).items() if name != "name" or value}
        patch: Any = decode_body(msgspec.json.encode(document), jobs.JobPatch)
        revision = text_of(form, "revision")
        headers = ChangeHeaders(f'"{revision}"' if revision.isdecimal() else None)
        reply = await jobs.patch_job(api, names["id"], patch, headers)
    except UsageError as error:
        return _form_error(error)
    return ChangeAnswer(redirect=f"/jobs/{reply.value.id}")


def _form_error(error: UsageError) -> ChangeAnswer:
    values = {"text": error.message, "pointer": error.pointer}
    return ChangeAnswer(template="form_error.html", values=values)


async def preview(api: Api, names: Names, form: Form) -> ChangeAnswer:
    """Explain the schedule in the form, or say why it is not valid."""
    values: dict[str, Any] = {"preview": None, "wrong": None, "cautions": [], "task": False}
    try:
        asked: dict[str, Any] = {"schedule": schedule_from(form), "timezone": text_of(form, "timezone") or "UTC"}
        values["task"] = asked["schedule"] is None
        asked |= {name: text for name in SCHEDULE_FIELDS if name in FIELDS and (text := text_of(form, name))}
        given = {"job": text_of(form, "job"), "name": text_of(form, "name")}
        request = {**asked, "count": PREVIEWED_TICKS, **{name: text for name, text in given.items() if text}}
        body: PreviewRequest = decode_body(msgspec.json.encode(request), PreviewRequest)
        found = values["preview"] = await preview_schedule(api, body)
        # The template lists clock changes separately.
        dates = [change.on for change in found.clock_changes]
        values["cautions"] = [text for text in found.warnings if not any(date in text for date in dates)]
    except UsageError as error:
        values["wrong"] = error.message
    return ChangeAnswer(template="preview.html", values=values)


async def pause(api: Api, names: Names, form: Form) -> ChangeAnswer:
    text, zone = text_of(form, "until"), text_of(form, "timezone") or "UTC"
    until = instant_from(text, "until", zone, datetime.now(UTC)) if text else None
    job = await jobs.pause_job(api, names["id"], jobs.PauseRequest(text_of(form, "reason") or None, until))
    waits = "its runs wait" if job.schedule is None else "it does not tick"
    end = "you resume it" if until is None else f"{until:%Y-%m-%d %H:%M:%S} UTC"
    return ChangeAnswer(f"{job.name} is paused: {waits} until {end}.")


async def resume(api: Api, names: Names, form: Form) -> ChangeAnswer:
    job = await jobs.resume_job(api, names["id"], None)
    return ChangeAnswer(f"{job.name} is resumed.")


async def trigger(api: Api, names: Names, form: Form) -> ChangeAnswer:
    text = text_of(form, "payload")
    body = jobs.Trigger(payload_from(text) if text else UNSET)
    reply = await jobs.trigger_job(api, names["id"], body)
    return ChangeAnswer(redirect=f"/runs/{reply.value.id}")


async def enqueue(api: Api, names: Names, form: Form) -> ChangeAnswer:
    """One run of a task, with what the form says; what is empty is as the task says."""
    document: dict[str, Any] = {
        name: text for name in ("unique_key", "concurrency_key") if (text := text_of(form, name))
    }
    if text := text_of(form, "payload"):
        document["payload"] = payload_from(text)
    if text := text_of(form, "delay"):
        document["delay_seconds"] = number_from("duration", text, "The delay", "/delay_seconds")
    if text := text_of(form, "priority"):
        document["priority"] = number_from("integer", text, "The priority", "/priority")
    (run,) = (await enqueue_runs(api, names["id"], RunsBody(msgspec.json.encode(document), "application/json"))).items
    if run.created:
        return ChangeAnswer(redirect=f"/runs/{run.id}")
    return ChangeAnswer(f"Nothing was enqueued: run {run.id} has this unique key and is {run.status}.")


async def retry(api: Api, names: Names, form: Form) -> ChangeAnswer:
    reply = await retry_job(api, names["id"])
    return ChangeAnswer(redirect=f"/runs/{reply.value.id}")


async def cancel(api: Api, names: Names, form: Form) -> ChangeAnswer:
    done = await lifecycle.cancel_runs_of_job(api, names["id"])
    more = " More wait: cancel again to continue." if done.more else ""
    return ChangeAnswer(f"Cancelled {plural(len(done.cancelled), 'run')}; being stopped: {len(done.stopping)}.{more}")


async def delete(api: Api, names: Names, form: Form) -> ChangeAnswer:
    await jobs.delete_job(api, names["id"], ChangeHeaders())
    return ChangeAnswer(redirect="/jobs")


async def skip(api: Api, names: Names, form: Form) -> ChangeAnswer:
    at = _instant(text_of(form, "at"), "at")
    if at is None:
        raise UsageError("The tick to skip is missing: give its time.", "/at")
    await lifecycle.skip_tick(api, names["id"], lifecycle.SkipRequest(at, text_of(form, "reason") or None))
    return ChangeAnswer(f"The tick of {at:%Y-%m-%d %H:%M:%S} UTC will be skipped.")


async def unskip(api: Api, names: Names, form: Form) -> ChangeAnswer:
    at = _instant(text_of(form, "at"), "at")
    if at is None:
        raise UsageError("The tick to unskip is missing: give its time.", "/at")
    await lifecycle.unskip_tick(api, names["id"], lifecycle.SkipQuery(at))
    return ChangeAnswer(f"The tick of {at:%Y-%m-%d %H:%M:%S} UTC will run.")


async def roll_back(api: Api, names: Names, form: Form) -> ChangeAnswer:
    text = text_of(form, "revision")
    if not text.isdecimal():
        raise UsageError(f"The revision is {text!r}: give its number.", "/revision")
    reply = await lifecycle.roll_back_job(api, names["id"], lifecycle.Rollback(int(text)))
    return ChangeAnswer(redirect=f"/jobs/{reply.value.id}")


def _instant(text: str, name: str) -> datetime | None:
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
        if found.tzinfo is not None:
            return utc_instant(found, name, f"/{name}")
    except ValueError:
        pass
    raise UsageError(f"{name} is {text!r}: give a time such as 2026-12-24T18:00:00Z.", f"/{name}")


changes = (
    FormChange("/jobs", "write", create, payload=True),
    FormChange("/jobs/preview", "read", preview, modifies=False, payload=True),
    FormChange("/jobs/{id}/edit", "write", edit, payload=True),
    FormChange("/jobs/{id}/pause", "operate", pause),
    FormChange("/jobs/{id}/resume", "operate", resume),
    FormChange("/jobs/{id}/trigger", "operate", trigger, payload=True),
    FormChange("/jobs/{id}/enqueue", "operate", enqueue, payload=True),
    FormChange("/jobs/{id}/retry", "operate", retry),
    FormChange("/jobs/{id}/cancel", "operate", cancel),
    FormChange("/jobs/{id}/skip", "operate", skip),
    FormChange("/jobs/{id}/unskip", "operate", unskip),
    FormChange("/jobs/{id}/delete", "write", delete),
    FormChange("/jobs/{id}/rollback", "write", roll_back),
)
