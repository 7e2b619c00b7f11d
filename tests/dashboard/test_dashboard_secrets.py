"""References to secrets on pages and in the form of a job."""

from __future__ import annotations

import html
import json
from typing import Any

import msgspec
import pytest

from detent.dashboard.form import values_of
from detent.domain.registration import read_document
from detent.domain.secret_keys import read_master_keys
from detent.jobs import JobOperations
from detent.jobs.secrets import SecretCommands
from detent.runtime.envelope import MasterKeys, generate_master_key
from tests.dashboard.pages import Pages

REFERENCE = {"secret": "payments"}
TARGETS: list[dict[str, Any]] = [
    {"type": "http", "url": "https://example.com/", "headers": {"Authorization": REFERENCE, "Accept": "text/plain"}},
    {"type": "python", "function": "shop:report"},
    {"type": "shell", "command": "true", "env": {"TOKEN": REFERENCE}},
]


@pytest.fixture
async def stored(pages: Pages) -> None:
    keys = MasterKeys(read_master_keys(generate_master_key()))
    await SecretCommands(pages.store, keys).set(1, "payments", "a stored value")


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: str(target["type"]))
async def test_a_job_of_every_kind_is_shown_with_its_references(
    pages: Pages, stored: None, target: dict[str, Any]
) -> None:
    spec = read_document({"name": "job", "schedule": "every 1d", "target": target, "payload": {"key": REFERENCE}})
    (job,) = await JobOperations(pages.store).registration.add([spec])
    key = await JobOperations(pages.store).lifecycle.trigger(job.id)
    run = await pages.store.runs.get(key, tenant=1)
    assert run is not None
    for path in ("/jobs/job", "/jobs/job/edit", f"/runs/{run.id}"):
        shown = await pages.get(path)
        assert shown.status == 200, path
        assert '"payments"' in html.unescape(shown.text), path


async def test_the_form_keeps_the_references_of_headers(pages: Pages, stored: None) -> None:
    document = {"name": "job", "schedule": "every 1d", "target": TARGETS[0], "signing": REFERENCE}
    await JobOperations(pages.store).registration.add([read_document(document)])
    page = await pages.get("/jobs/job/edit")
    assert 'Authorization: {"secret": "payments"}' in html.unescape(page.text)
    headers = f"Authorization: {json.dumps(REFERENCE)}\nAccept: text/html"
    form = {"kind": "every", "every": "2d", "target": "http", "url": "https://example.com/", "headers": headers}
    changed = await pages.post("/jobs/job/edit", page.csrf, **form)
    assert changed.status == 204, changed.text
    job = await pages.store.jobs.find("job", tenant=1)
    assert job is not None
    assert str(job.target.headers["Authorization"]) == json.dumps(REFERENCE)
    assert job.target.headers["Accept"] == "text/html"
    assert job.signing is not None  # which the form does not show


async def test_the_form_keeps_the_callback_of_a_target(pages: Pages, stored: None) -> None:
    target = {"type": "http", "url": "https://example.com/", "callback": {"lease_seconds": 90}}
    document = {"name": "job", "schedule": "every 1d", "target": target}
    await JobOperations(pages.store).registration.add([read_document(document)])
    page = await pages.get("/jobs/job/edit")
    assert 'name="callback" value="90"' in page.text
    form = {"kind": "every", "every": "2d", "target": "http", "url": "https://example.com/"}
    changed = await pages.post("/jobs/job/edit", page.csrf, **form, callback="2m")
    assert changed.status == 204, changed.text
    job = await pages.store.jobs.find("job", tenant=1)
    assert job is not None
    assert job.target.callback.lease_seconds == 120
    refused = await pages.post("/jobs/job/edit", page.csrf, **form, callback="soon")
    assert "Callback" in html.unescape(refused.text)


async def test_the_form_keeps_the_certificates_of_a_target(pages: Pages, stored: None) -> None:
    target = {"type": "http", "url": "https://example.com/", "tls": {"client_certificate": REFERENCE}}
    document = {"name": "job", "schedule": "every 1d", "target": target}
    await JobOperations(pages.store).registration.add([read_document(document)])
    page = await pages.get("/jobs/job/edit")
    assert '{"client_certificate":{"secret":"payments"}}' in html.unescape(page.text)
    form = {"kind": "every", "every": "2d", "target": "http", "url": "https://example.com/"}
    changed = await pages.post("/jobs/job/edit", page.csrf, **form, tls=json.dumps(target["tls"]))
    assert changed.status == 204, changed.text
    job = await pages.store.jobs.find("job", tenant=1)
    assert job is not None
    assert str(job.target.tls.client_certificate) == json.dumps(REFERENCE)
    refused = await pages.post("/jobs/job/edit", page.csrf, **form, tls="no JSON")
    assert "TLS is not JSON" in html.unescape(refused.text)


@pytest.mark.parametrize(
    "body", [{"day": "{{ scheduled_at.date }}"}, '{"n": "{{ attempt }}"}', '{"n": {{ attempt }}}', '"text"', ["a"]]
)
async def test_the_form_keeps_the_body_the_statuses_and_the_limit_of_a_target(pages: Pages, body: Any) -> None:
    url = "https://example.com/{{ payload.id }}"
    more = {"body": body, "statuses": {"success": ["2xx", 304], "retry": [409]}, "host_concurrency": 3}
    target = {"type": "http", "url": url, "method": "POST", **more}
    document = {"name": "job", "schedule": "every 1d", "target": target, "payload": {"id": 1}}
    (job,) = await JobOperations(pages.store).registration.add([read_document(document)])
    page = await pages.get("/jobs/job/edit")
    assert url in html.unescape(page.text)
    assert (await pages.get("/jobs/job")).status == 200
    form = {name: value for name, value in values_of(job, {}).items() if isinstance(value, str)}
    changed = await pages.post("/jobs/job/edit", page.csrf, **form | {"priority": "7"})
    assert changed.status == 204, changed.text
    found = await pages.store.jobs.find("job", tenant=1)
    assert found is not None
    assert (found.priority, found.target) == (7, job.target)
    for field, text in (("statuses", "2xx"), ("host_concurrency", "many"), ("body", "no JSON")):
        refused = await pages.post("/jobs/job/edit", page.csrf, **form | {field: text})
        assert refused.status != 204, field


VARIABLES = {
    "TOKEN": REFERENCE,
    "PLAIN": "a=b # c",
    "LINES": "one\ntwo",
    "SPACED": " x ",
    "QUOTED": '"x"',
    "EMPTY": "",
    "SAME_AS_A_REFERENCE": '{"secret": "payments"}',
}


@pytest.mark.parametrize("command", ["echo 'it' \"$TOKEN\"", ["printenv", "TOKEN"], "[ -f x ] && y"])
async def test_the_form_keeps_the_variables_of_a_command(pages: Pages, stored: None, command: Any) -> None:
    target = {"type": "shell", "command": command, "env": VARIABLES}
    document = read_document({"name": "job", "schedule": "every 1d", "target": target})
    await JobOperations(pages.store).registration.add([document])
    page = await pages.get("/jobs/job/edit")
    shown = values_of(await pages.store.jobs.find("job", tenant=1), {})
    assert shown["env"] in html.unescape(page.text)
    form = {"kind": "every", "every": "2d", "target": "shell", "command": shown["command"], "env": shown["env"]}
    changed = await pages.post("/jobs/job/edit", page.csrf, **form)
    assert changed.status == 204, changed.text
    job = await pages.store.jobs.find("job", tenant=1)
    assert job is not None
    assert msgspec.to_builtins(job.target) == target


async def test_a_variable_without_an_equals_sign_is_refused(pages: Pages) -> None:
    page = await pages.get("/jobs/new")
    form = {"name": "job", "kind": "every", "every": "2d", "target": "shell", "command": "true", "env": "TOKEN"}
    refused = await pages.post("/jobs", page.csrf, **form)
    assert "The variable &#39;TOKEN&#39; has no equals sign: write one NAME=value per line." in refused.text
    assert await pages.store.jobs.find("job", tenant=1) is None
