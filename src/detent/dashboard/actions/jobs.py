"""Changes of one job: made, edited, paused, run, deleted."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
from msgspec import UNSET

from detent.api import jobs, lifecycle
from detent.api.conditions import ChangeHeaders
from detent.api.context import Api
from detent.api.dead_letters import retry_job
from detent.api.preview import PreviewRequest, preview_schedule
from detent.api.request_parsing import decode_body
from detent.dashboard.changes import Answer, Change, Form, text_of
from detent.dashboard.form import (
    FIELDS,
    SCHEDULE_FIELDS,
    document_from,
    payload_from,
    schedule_from,
    without_nulls,
)
from detent.domain.documents import utc_instant
from detent.domain.job import JobSpec
from detent.errors import UsageError

PREVIEWED = 6

Names = Mapping[str, str]


async def create(api: Api, names: Names, form: Form) -> Answer:
    try:
        document = without_nulls(document_from(form))
        reply = await jobs.create_job(api, decode_body(msgspec.json.encode(document), JobSpec))
    except UsageError as error:
        return _wrong(error)
    return Answer(go_to=f"/jobs/{reply.value.id}")


async def edit(api: Api, names: Names, form: Form) -> Answer:
    try:
        document = {name: value for name, value in document_from(form).items() if name != "name" or value}
        patch: Any = decode_body(msgspec.json.encode(document), jobs.JobPatch)
        revision = text_of(form, "revision")
        headers = ChangeHeaders(f'"{revision}"' if revision.isdecimal() else None)
        reply = await jobs.patch_job(api, names["id"], patch, headers)
    except UsageError as error:
        return _wrong(error)
    return Answer(go_to=f"/jobs/{reply.value.id}")


def _wrong(error: UsageError) -> Answer:
    values = {"text": error.message, "pointer": error.pointer}
    return Answer(template="form_error.html", values=values)


async def preview(api: Api, names: Names, form: Form) -> Answer:
    """What the schedule in the form means, or what is wrong with it."""
    values: dict[str, Any] = {"preview": None, "wrong": None, "cautions": []}
    try:
        asked: dict[str, Any] = {"schedule": schedule_from(form), "timezone": text_of(form, "timezone") or "UTC"}
        asked |= {name: text for name in SCHEDULE_FIELDS if name in FIELDS and (text := text_of(form, name))}
        job = text_of(form, "job")
        request = {**asked, "count": PREVIEWED, **({"job": job} if job else {})}
        body: PreviewRequest = decode_body(msgspec.json.encode(request), PreviewRequest)
        found = values["preview"] = await preview_schedule(api, body)
        # What changes of the clock do is listed by itself.
        dates = [change.on for change in found.clock_changes]
        values["cautions"] = [text for text in found.warnings if not any(date in text for date in dates)]
    except UsageError as error:
        values["wrong"] = error.message
    return Answer(template="preview.html", values=values)


async def pause(api: Api, names: Names, form: Form) -> Answer:
    until = _instant(text_of(form, "until"), "until")
    job = await jobs.pause_job(api, names["id"], jobs.PauseRequest(text_of(form, "reason") or None, until))
    return Answer(f"{job.name} is paused: it does not tick until it is resumed.")


async def resume(api: Api, names: Names, form: Form) -> Answer:
    job = await jobs.resume_job(api, names["id"], None)
    return Answer(f"{job.name} goes on with its next tick.")


async def trigger(api: Api, names: Names, form: Form) -> Answer:
    text = text_of(form, "payload")
    body = jobs.Trigger(payload_from(text) if text else UNSET)
    reply = await jobs.trigger_job(api, names["id"], body)
    return Answer(go_to=f"/runs/{reply.value.id}")


async def retry(api: Api, names: Names, form: Form) -> Answer:
    reply = await retry_job(api, names["id"])
    return Answer(go_to=f"/runs/{reply.value.id}")


async def cancel(api: Api, names: Names, form: Form) -> Answer:
    done = await lifecycle.cancel_runs_of_job(api, names["id"])
    return Answer(f"{len(done.cancelled)} runs are cancelled, {len(done.stopping)} were asked to stop.")


async def delete(api: Api, names: Names, form: Form) -> Answer:
    await jobs.delete_job(api, names["id"], ChangeHeaders())
    return Answer(go_to="/jobs")


async def skip(api: Api, names: Names, form: Form) -> Answer:
    at = _instant(text_of(form, "at"), "at")
    if at is None:
        raise UsageError("Which tick is to be skipped is not said: give its time.", "/at")
    await lifecycle.skip_tick(api, names["id"], lifecycle.SkipRequest(at, text_of(form, "reason") or None))
    return Answer(f"The tick of {at:%Y-%m-%d %H:%M:%S} UTC will be skipped.")


async def unskip(api: Api, names: Names, form: Form) -> Answer:
    at = _instant(text_of(form, "at"), "at")
    if at is None:
        raise UsageError("Which tick is meant is not said: give its time.", "/at")
    await lifecycle.unskip_tick(api, names["id"], lifecycle.SkipQuery(at))
    return Answer(f"The tick of {at:%Y-%m-%d %H:%M:%S} UTC will run after all.")


async def roll_back(api: Api, names: Names, form: Form) -> Answer:
    text = text_of(form, "revision")
    if not text.isdecimal():
        raise UsageError(f"The revision is {text!r}: give its number.", "/revision")
    reply = await lifecycle.roll_back_job(api, names["id"], lifecycle.Rollback(int(text)))
    return Answer(go_to=f"/jobs/{reply.value.id}")


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
    Change("/jobs", "write", create),
    Change("/jobs/preview", "read", preview, changes=False),
    Change("/jobs/{id}/edit", "write", edit),
    Change("/jobs/{id}/pause", "operate", pause),
    Change("/jobs/{id}/resume", "operate", resume),
    Change("/jobs/{id}/trigger", "operate", trigger),
    Change("/jobs/{id}/retry", "operate", retry),
    Change("/jobs/{id}/cancel", "operate", cancel),
    Change("/jobs/{id}/skip", "operate", skip),
    Change("/jobs/{id}/unskip", "operate", unskip),
    Change("/jobs/{id}/delete", "write", delete),
    Change("/jobs/{id}/rollback", "write", roll_back),
)
