"""Pages and form of jobs with a payload schema, a staggered release, refused zone rules and skipped ticks."""

from __future__ import annotations

import html
from typing import Any

from detent.contract.job import Job
from detent.dashboard.form import values_of
from detent.domain.registration import read_document
from detent.jobs import JobOperations
from tests.dashboard.pages import Pages

SCHEMA = {"type": "object", "required": ["to"], "properties": {"to": {"type": "string"}}}
DOCUMENT: dict[str, Any] = {
    "name": "close",
    "schedule": "0 3 1 1 *",
    "timezone": "Europe/Berlin",
    "target": {"type": "http", "url": "https://example.com/"},
    "payload": {"to": "ada"},
    "payload_schema": SCHEMA,
    "release": "staggered",
    "tzdata_policy": "refuse",
}


async def found(pages: Pages) -> Job:
    job = await pages.store.jobs.find("close", tenant=1)
    assert job is not None
    return job


async def test_the_form_keeps_what_it_does_not_show_and_changes_what_it_does(pages: Pages) -> None:
    await JobOperations(pages.store).registration.add([read_document(DOCUMENT)])
    page = await pages.get("/jobs/close/edit")
    assert 'name="release"' in page.text and 'name="tzdata_policy"' in page.text
    form = {name: value for name, value in values_of(await found(pages), {}).items() if isinstance(value, str)}
    changed = await pages.post("/jobs/close/edit", page.csrf, **form | {"priority": "7", "release": "exact"})
    assert changed.status == 204, changed.text
    job = await found(pages)
    assert (job.priority, job.release, job.tzdata_policy) == (7, "exact", "refuse")
    assert job.payload_schema == SCHEMA
    refused = await pages.post("/jobs/close/edit", page.csrf, **form | {"payload": '{"to": 5}'})
    assert "asks for text" in html.unescape(refused.text)


async def test_the_page_shows_the_schema_skipped_ticks_and_refused_rules(pages: Pages, sql: Any) -> None:
    jobs = JobOperations(pages.store)
    (job,) = await jobs.registration.add([read_document(DOCUMENT)])
    assert job.next_run_at is not None
    await jobs.lifecycle.skip(job.id, job.next_run_at)
    await sql.execute("UPDATE schedules SET stored = jsonb_set(stored, '{zone_rules}', '\"2020a:0\"')")
    page = html.unescape((await pages.get("/jobs/close")).text)
    assert "1 skipped" in page and "will be skipped" in page
    assert "its ticks were computed by zone data 2020a" in page
    assert '"required"' in page or "required" in page
    assert "will be skipped" in html.unescape((await pages.get("/")).text)
