"""User input is always escaped."""

from __future__ import annotations

from typing import Any

import pytest

from detent.domain.identity import run_id
from detent.domain.registration import read_document
from detent.jobs import JobOperations
from tests.dashboard.pages import Pages

SCRIPT = "<script>alert('x')</script>"
QUOTES = "\"'><img src=x onerror=alert(1)>"
MARKED = f"{SCRIPT}{QUOTES}"
DOCUMENT: dict[str, Any] = {
    "name": f"job {MARKED}",
    "schedule": "every 1h",
    "target": {"type": "http", "url": "http://127.0.0.1:9/%3Cscript%3E", "headers": {"X-Note": MARKED}},
    "payload": {MARKED: MARKED},
    "tags": [f"tag {MARKED}"],
}


@pytest.fixture
async def written(pages: Pages, sql: Any) -> dict[str, str]:
    """The paths of two jobs and a dead run with scripts in every field."""
    job, paused = await JobOperations(pages.store).registration.add(
        [read_document(DOCUMENT), read_document({**DOCUMENT, "name": f"paused {MARKED}"})]
    )
    await JobOperations(pages.store).lifecycle.pause(paused.id, f"reason {MARKED}", by=f"by {MARKED}")
    await JobOperations(pages.store).registration.patch(job.id, {"tags": [f"other {MARKED}"]}, by=f"by {MARKED}")
    dead = await JobOperations(pages.store).lifecycle.trigger(job.id, {MARKED: MARKED})
    await sql.execute("DELETE FROM live_runs WHERE job = $1", dead.job)
    await sql.execute(
        "INSERT INTO run_history (job, scheduled_at, token, node, started_at, finished_at, serial, revision, attempt,"
        " status, reason, result) VALUES ($1, $2, 1, 1, now(), now(), $3, 1, 1, 2, $4, $5)",
        *dead, f"reason {MARKED}", f'"{SCRIPT}"',
    )  # fmt: skip
    await sql.execute(
        "INSERT INTO attempts (job, scheduled_at, serial, token, node, started_at, finished_at, attempt, outcome,"
        " error) VALUES ($1, $2, $3, 1, 1, now(), now(), 1, 'failed', $4)", *dead, f"error {MARKED}",
    )  # fmt: skip
    return {"job": f"/jobs/{job.id}", "paused": f"/jobs/{paused.id}", "dead": f"/runs/{run_id(dead)}"}


async def test_a_script_in_any_field_is_text_in_every_view(pages: Pages, written: dict[str, str]) -> None:
    views = {
        "/": "error &lt;script&gt;",
        "/jobs": "job &lt;script&gt;",
        "/runs": "error &lt;script&gt;",
        "/timeline": "job &lt;script&gt;",
        "/dead-letters": "error &lt;script&gt;",
        written["job"]: "other &lt;script&gt;",
        f"{written['job']}/edit": "X-Note: &lt;script&gt;",
        written["paused"]: "reason &lt;script&gt;",
        written["dead"]: "error &lt;script&gt;",
        f"/jobs?search={SCRIPT}": "&lt;script&gt;",
        f"/runs?search={SCRIPT}": "&lt;script&gt;",
        f"/dead-letters?job={SCRIPT}": "&lt;script&gt;",
        f"/jobs/{QUOTES}": "&gt;&lt;img",
    }
    for path, expected in views.items():
        text = (await pages.get(path)).text
        assert "<script>alert" not in text, path
        assert "<img" not in text, path
        assert expected in text or expected.replace("&lt;", "\\u003c") in text, f"{path} does not show it:\n{text}"


async def test_a_script_is_text_in_live_updates(pages: Pages, written: dict[str, str]) -> None:
    for path in ("/jobs", "/runs", "/dead-letters", "/timeline", written["job"], written["dead"]):
        sent = await pages.stream(path)
        assert "&lt;script&gt;alert" in sent, path
        assert "<script" not in sent
        assert "<img" not in sent


async def test_a_script_is_text_in_dialogs_and_toasts(pages: Pages, written: dict[str, str]) -> None:
    token = (await pages.get("/")).csrf
    shown = await pages.post("/jobs/bulk", csrf=token, action="pause", search="name:job*")
    toast = await pages.post(f"{written['job']}/pause", csrf=token, reason=MARKED)
    preview = await pages.post("/jobs/preview", csrf=token, kind="cron", cron=SCRIPT)
    wrong = await pages.post("/jobs", csrf=token, kind="cron", cron="@daily", name="a", max_retries=SCRIPT, url="x")
    for answer in (shown, toast, preview, wrong):
        assert "&lt;script&gt;" in answer.text, answer.text
        assert "<script" not in answer.text
        assert "<img" not in answer.text
