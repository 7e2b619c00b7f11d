"""Topic and Celery targets on pages and in the form of a job."""

from __future__ import annotations

import html
import json
from typing import Any

import msgspec
import pytest

from detent.domain.registration import read_document
from detent.domain.secret_keys import read_master_keys
from detent.jobs import JobOperations
from detent.jobs.secrets import SecretCommands
from detent.runtime.envelope import MasterKeys, generate_master_key
from tests.dashboard.pages import Pages

REFERENCE = {"secret": "broker"}
TOPIC: dict[str, Any] = {
    "type": "topic",
    "url": "nats://127.0.0.1:4222",
    "topic": "orders.new",
    "key": "eu",
    "headers": {"Region": "eu"},
    "format": "cloudevents",
    "credentials": {"username": "detent", "password": REFERENCE},
}
FORM = {
    "kind": "every",
    "every": "2d",
    "target": "topic",
    "topic_url": "nats://127.0.0.1:4222",
    "topic": "orders.new",
    "topic_key": "eu",
    "topic_format": "cloudevents",
    "topic_headers": "Region: eu",
    "topic_credentials": json.dumps(TOPIC["credentials"]),
}


@pytest.fixture
async def stored(pages: Pages) -> None:
    keys = MasterKeys(read_master_keys(generate_master_key()))
    await SecretCommands(pages.store, keys).set(1, "broker", "a stored value")


async def test_a_topic_is_created_with_the_form(pages: Pages, stored: None) -> None:
    page = await pages.get("/jobs/new")
    made = await pages.post("/jobs", page.csrf, name="job", **FORM)
    assert made.status == 204, made.text
    job = await pages.store.jobs.find("job", tenant=1)
    assert job is not None
    assert msgspec.to_builtins(job.target) == TOPIC


async def test_the_form_and_the_pages_show_a_topic_and_its_edit_keeps_it(pages: Pages, stored: None) -> None:
    spec = read_document({"name": "job", "schedule": "every 1d", "target": TOPIC})
    (job,) = await JobOperations(pages.store).registration.add([spec])
    key = await JobOperations(pages.store).lifecycle.trigger(job.id)
    run = await pages.store.runs.get(key, tenant=1)
    assert run is not None
    for path in ("/jobs/job", "/jobs/job/edit", f"/runs/{run.id}"):
        shown = html.unescape((await pages.get(path)).text)
        assert "orders.new" in shown and "nats://127.0.0.1:4222" in shown, path
    page = await pages.get("/jobs/job/edit")
    changed = await pages.post("/jobs/job/edit", page.csrf, **FORM)
    assert changed.status == 204, changed.text
    after = await pages.store.jobs.find("job", tenant=1)
    assert after is not None
    assert msgspec.to_builtins(after.target) == TOPIC


async def test_what_is_wrong_is_shown_beside_the_field(pages: Pages) -> None:
    page = await pages.get("/jobs/new")
    refused = await pages.post("/jobs", page.csrf, name="job", **{**FORM, "topic": "orders.*"})
    assert 'data-at="/target/topic"' in refused.text
    refused = await pages.post("/jobs", page.csrf, name="job", **{**FORM, "topic_credentials": "no JSON"})
    assert "Credentials is not JSON" in html.unescape(refused.text)
    assert 'data-at="/target/credentials"' in refused.text
