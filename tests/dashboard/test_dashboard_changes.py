"""Changes on a page do what the API does."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import pytest

from detent.domain.job import PythonTarget
from detent.domain.registration import read_document
from detent.domain.states import RunStatus
from detent.jobs import JobOperations
from tests.dashboard.pages import Pages

FIELDS = {
    "kind": "cron",
    "cron": "0 9 * * MON",
    "timezone": "Europe/Berlin",
    "target": "http",
    "url": "http://127.0.0.1:9/",
}


@pytest.fixture
async def token(pages: Pages) -> str:
    return (await pages.get("/")).csrf


async def only_job(pages: Pages) -> Any:
    (job,), _ = await pages.store.jobs.list()
    return job


async def test_the_builder_creates_the_job_of_its_fields(pages: Pages, token: str) -> None:
    more = {"payload": '{"a": 1}', "tags": "x, y", "max_retries": "7", "headers": "X-A: 1", "day_match": ""}
    assert (await pages.post("/jobs", csrf=token, name="weekly", **FIELDS, **more)).status == 204
    job = await only_job(pages)
    assert (job.name, job.schedule, job.timezone, job.tags) == ("weekly", "0 9 * * MON", "Europe/Berlin", ["x", "y"])
    assert (job.payload, job.max_retries, job.target.headers) == ({"a": 1}, 7, {"X-A": "1"})


async def test_the_builder_keeps_the_isolation_of_a_function(pages: Pages, token: str) -> None:
    chosen = {**FIELDS, "target": "python", "function": "shop:charge", "isolate": "process"}
    assert (await pages.post("/jobs", csrf=token, name="charge", **chosen)).status == 204
    job = await only_job(pages)
    assert job.target == PythonTarget("shop:charge", isolate="process")
    shown = (await pages.get(f"/jobs/{job.id}/edit")).text
    assert '<option value="process" selected>' in shown


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"cron": "61 * * * *"}, "/schedule"),
        ({"payload": "{"}, "/payload"),
        ({"max_retries": "many"}, "/max_retries"),
        ({"url": "ftp://x"}, "/target/url"),
        ({"timezone": "Mars/Olympus"}, "/timezone"),
    ],
)
async def test_a_form_error_names_its_field(pages: Pages, token: str, change: dict[str, str], pointer: str) -> None:
    answer = await pages.post("/jobs", csrf=token, name="weekly", **{**FIELDS, **change})
    assert f'data-at="{pointer}"' in answer.text
    assert (await pages.store.jobs.list())[0] == []


async def test_the_builder_edits_only_the_revision_that_it_showed(pages: Pages, token: str) -> None:
    await pages.post("/jobs", csrf=token, name="weekly", **FIELDS)
    job = await only_job(pages)
    form = {**FIELDS, "name": "weekly", "cron": "0 8 * * MON", "revision": "1"}
    assert (await pages.post(f"/jobs/{job.id}/edit", csrf=token, **form)).status == 204
    late = await pages.post(f"/jobs/{job.id}/edit", csrf=token, **{**form, "cron": "0 7 * * MON"})
    assert late.status == 412
    assert (await only_job(pages)).schedule == "0 8 * * MON"


async def test_the_preview_shows_a_description_ticks_and_clock_changes(pages: Pages, token: str) -> None:
    form = {"kind": "cron", "cron": "30 2 * 3 SUN", "timezone": "Europe/Berlin"}
    shown = await pages.post("/jobs/preview", csrf=token, **form)
    assert "At 02:30" in shown.text
    assert "does not exist" in shown.text
    daily = await pages.post("/jobs/preview", csrf=token, kind="cron", cron="30 2 * * *", timezone="Europe/Berlin")
    assert daily.text.count("does not exist on 20") == 2  # in two years, not only among the next ticks
    assert daily.text.count("comes twice on 20") == 2
    every = await pages.post("/jobs/preview", csrf=token, kind="every", every="90m")
    assert "Every 1 hour and 30 minutes" in every.text


async def test_the_builder_keeps_the_dialect_and_shows_what_it_means(pages: Pages, token: str) -> None:
    form = {**FIELDS, "cron": "0 14 ? * 2#1", "dialect": "quartz"}
    shown = await pages.post("/jobs/preview", csrf=token, **form)
    assert "At 14:00 on the first Monday of the month" in shown.text and "0 14 * * 1#1" in shown.text
    wrong = await pages.post("/jobs/preview", csrf=token, **{**form, "dialect": "unix"})
    assert "has two readings" in wrong.text
    await pages.post("/jobs", csrf=token, name="monthly", **form)
    job = await only_job(pages)
    assert (job.schedule, job.dialect) == ("0 14 ? * 2#1", "quartz")
    edit = (await pages.get(f"/jobs/{job.id}/edit")).text
    assert '<option value="quartz" selected>' in edit and '<option value="aws">' in edit
    await pages.post(
        f"/jobs/{job.id}/edit", csrf=token, **{**form, "name": "monthly", "revision": "1", "queue": "slow"}
    )
    assert ((await only_job(pages)).dialect, (await only_job(pages)).queue) == ("quartz", "slow")


async def test_the_preview_shows_the_times_of_h_that_the_job_will_have(pages: Pages, token: str) -> None:
    form = {**FIELDS, "cron": "H H * * *", "name": "nightly"}
    shown = await pages.post("/jobs/preview", csrf=token, **form)
    await pages.post("/jobs", csrf=token, **form)
    job = await only_job(pages)
    assert job.description in shown.text
    renamed = await pages.post("/jobs/preview", csrf=token, **{**form, "name": "report", "job": str(job.id)})
    assert job.description not in renamed.text


async def test_a_request_of_another_api_at_the_address_of_a_page_is_answered_with_its_translation(
    pages: Pages, token: str
) -> None:
    body = {"schedule": "0 9 * * 1", "handler_endpoint": "https://example.com/run"}
    async with aiohttp.ClientSession() as session:
        async with session.post(f"{pages.url}/jobs", json=body) as answer:
            assert answer.status == 404
            translation = (await answer.json(content_type=None))["translation"]
        assert (await pages.store.jobs.list())[0] == []
        async with session.request(
            translation["method"], pages.url + translation["path"], json=translation["body"]
        ) as ours:
            assert ours.status == 201
        for accept, status in (("application/json", 404), ("text/html,*/*;q=0.8", 200), ("*/*", 200)):
            async with session.get(f"{pages.url}/jobs", headers={"Accept": accept}) as page:
                assert page.status == status


async def test_a_job_is_paused_resumed_triggered_and_deleted(pages: Pages, token: str) -> None:
    await pages.post("/jobs", csrf=token, name="weekly", **FIELDS)
    path = f"/jobs/{(await only_job(pages)).id}"
    assert (await pages.post(f"{path}/pause", csrf=token, reason="moved")).status == 200
    assert (await only_job(pages)).paused_reason == "moved"
    assert "moved" in (await pages.get(path)).text
    assert (await pages.post(f"{path}/resume", csrf=token)).status == 200
    before = datetime.now(UTC)
    assert (await pages.post(f"{path}/pause", csrf=token, until="2h", timezone="Europe/Berlin")).status == 200
    until = (await only_job(pages)).paused_until
    assert until is not None and abs(until - before - timedelta(hours=2)) < timedelta(minutes=1)
    assert (await pages.post(f"{path}/resume", csrf=token)).status == 200
    started = await pages.post(f"{path}/trigger", csrf=token, payload='{"own": true}')
    run = started.headers["HX-Redirect"]
    assert "&#34;own&#34;: true" in (await pages.get(run)).text
    assert (await pages.post(f"{run}/cancel", csrf=token)).status == 200
    assert "cancelled" in (await pages.get(run)).text
    assert (await pages.post(f"{path}/delete", csrf=token)).headers["HX-Redirect"] == "/jobs"
    assert (await pages.get(path)).status == 404


async def test_many_jobs_are_counted_before_they_are_paused(pages: Pages, token: str) -> None:
    target = {"type": "http", "url": "http://127.0.0.1:9/"}
    specs = [read_document({"name": f"mail-{n}", "schedule": "every 1h", "target": target}) for n in range(3)]
    await JobOperations(pages.store).registration.add(
        [*specs, read_document({"name": "other", "schedule": "every 1h", "target": target})]
    )
    asked = await pages.post("/jobs/bulk", csrf=token, action="pause", search="name:mail-*")
    assert "<b>3</b> jobs would be paused" in asked.text
    assert {job.status for job in (await pages.store.jobs.list())[0]} == {"active"}
    done = await pages.post("/jobs/bulk", csrf=token, action="pause", search="name:mail-*", sure="yes", reason="all")
    assert "Paused <b>3</b> jobs" in done.text
    paused = [job.name for job in (await pages.store.jobs.list())[0] if job.status == "paused"]
    assert paused == ["mail-0", "mail-1", "mail-2"]


async def test_only_the_selected_jobs_are_paused(pages: Pages, token: str) -> None:
    target = {"type": "http", "url": "http://127.0.0.1:9/"}
    specs = [read_document({"name": f"mail-{n}", "schedule": "every 1h", "target": target}) for n in range(4)]
    jobs = await JobOperations(pages.store).registration.add(specs)
    chosen = [str(jobs[0].id), str(jobs[2].id)]
    asked = await pages.post("/jobs/bulk", csrf=token, action="pause", search="", id=chosen)
    assert "<b>2</b> jobs would be paused" in asked.text
    assert "the selected jobs" in asked.text
    assert all(f'name="id" value="{each}"' in asked.text for each in chosen)
    done = await pages.post("/jobs/bulk", csrf=token, action="pause", search="", sure="yes", id=chosen)
    assert "Paused <b>2</b> jobs" in done.text
    paused = [job.name for job in (await pages.store.jobs.list())[0] if job.status == "paused"]
    assert paused == ["mail-0", "mail-2"]
    assert (await pages.post("/jobs/bulk", csrf=token, action="pause", sure="yes", id="x")).status == 422
    assert len([job for job in (await pages.store.jobs.list())[0] if job.status == "paused"]) == 2


DEAD = (
    "INSERT INTO run_history (job, scheduled_at, token, node, started_at, finished_at, serial, revision, attempt,"
    " status, reason) SELECT job, date_trunc('hour', now()) - $1 * interval '1 hour', 1, 1, now(), now(), 0, 1, 1, 2,"
    " 'broken ' || $1 FROM jobs"
)


async def test_all_dead_letters_are_retried_at_the_requested_rate(pages: Pages, token: str, sql: Any) -> None:
    target = {"type": "http", "url": "http://127.0.0.1:9/"}
    specs = [read_document({"name": f"mail-{n}", "schedule": "every 1h", "target": target}) for n in range(5)]
    await JobOperations(pages.store).registration.add(specs)
    await sql.execute(DEAD, 1)
    path = "/dead-letters/redrive-many"
    asked = await pages.post(path, csrf=token)
    assert 'name="rate"' in asked.text
    before = asked.text.partition('name="before" value="')[2].partition('"')[0].replace("&#43;", "+")
    fields = {"before": before, "sure": "yes", "rate": "4/s"}
    assert (await pages.post(path, csrf=token, **{**fields, "rate": "many"})).status == 422
    assert (await pages.post(path, csrf=token, **{**fields, "before": "then"})).status == 422
    first = await pages.post(path, csrf=token, **fields)
    assert "<b>2</b> retried, at 4/s; <b>3</b> left" in first.text
    assert "load delay:500ms" in first.text
    second = await pages.post(path, csrf=token, **{**fields, "redriven": "2", "rate": ""})
    assert "<b>5</b> runs retried." in second.text
    assert "data-done" in second.text
    assert (await pages.store.dead_letters.list()) == ([], None)


async def test_of_very_many_dead_letters_the_newest_are_grouped(
    pages: Pages, token: str, sql: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("detent.dashboard.views.dead_letters.MAX_GROUPED", 3)
    await pages.post("/jobs", csrf=token, name="weekly", **FIELDS)
    for hours in range(1, 6):
        await sql.execute(DEAD.replace("broken", "other" if hours == 5 else "broken"), hours)
    text = (await pages.get("/dead-letters")).text
    assert "Newest 3 runs in 1 group" in text
    rare = (await pages.store.dead_letters.groups()).items[-1]
    assert (rare.runs, rare.error) == (1, "other <n>")
    assert "among the newest" not in (await pages.get(f"/dead-letters?group={rare.group}")).text
    common = (await pages.store.dead_letters.groups()).items[0]
    chosen = (await pages.get(f"/dead-letters?group={common.group}")).text
    assert "Runs of this group, among the newest" in chosen
    assert chosen.count('id="dead-') == 3


async def test_a_dead_letter_is_retried_or_discarded(pages: Pages, token: str, sql: Any) -> None:
    await pages.post("/jobs", csrf=token, name="weekly", **FIELDS)
    job = await only_job(pages)
    for position in range(2):
        await sql.execute(DEAD, position + 1)
    runs, _ = await pages.store.dead_letters.list()
    shown = await pages.get("/dead-letters")
    assert "broken &lt;n&gt;" in shown.text
    assert "2 runs in 1 group" in shown.text
    assert "1 run is retried" in (await pages.post("/dead-letters/redrive", csrf=token, run=str(runs[0].id))).text
    assert (
        "1 dead run is discarded" in (await pages.post("/dead-letters/discard", csrf=token, run=str(runs[1].id))).text
    )
    states = {run.status for run in (await pages.store.runs.list(job=job.id))[0]}
    assert states == {RunStatus.RETRYING, RunStatus.DEAD} or states == {RunStatus.PENDING, RunStatus.DEAD}
    assert "No dead letters" in (await pages.get("/dead-letters")).text


async def test_everything_is_paused_with_a_reason_and_resumed(pages: Pages, token: str) -> None:
    assert (await pages.post("/cluster/pause", csrf=token, reason="")).status == 422
    assert (await pages.post("/cluster/pause", csrf=token, reason="moving house")).status == 200
    assert "moving house" in (await pages.get("/cluster/problems")).text
    assert (await pages.post("/cluster/resume", csrf=token)).status == 200


async def test_the_builder_creates_and_edits_a_task(pages: Pages, token: str) -> None:
    fields = {**FIELDS, "kind": "task", "concurrency_limit": "2", "concurrency_rate": "0.5", "concurrency_scope": "job"}
    assert "Its runs are enqueued." in (await pages.post("/jobs/preview", csrf=token, **fields)).text
    assert (await pages.post("/jobs", csrf=token, name="mail", **fields)).status == 204
    job = await only_job(pages)
    assert (job.schedule, job.concurrency_limit, job.concurrency_rate) == (None, 2, 0.5)
    shown = (await pages.get(f"/jobs/{job.id}/edit")).text
    assert 'value="task" checked' in shown
    page = (await pages.get(f"/jobs/{job.id}")).text
    assert "Unfinished runs" in page and "On demand" in page
    assert "on demand" in (await pages.get("/jobs")).text
    assert (await pages.get("/timeline")).status == 200
    changed = {**fields, "kind": "every", "every": "15m", "revision": "1"}
    assert (await pages.post(f"/jobs/{job.id}/edit", csrf=token, name="mail", **changed)).status == 204
    assert (await only_job(pages)).schedule == {"every": "15m"}
    back = {**fields, "revision": "2"}
    assert (await pages.post(f"/jobs/{job.id}/edit", csrf=token, name="mail", **back)).status == 204
    assert (await only_job(pages)).schedule is None
    wrong = {**fields, "concurrency_rate": "fast", "revision": "3"}
    assert "a number, such as 5 or 0.5" in (await pages.post(f"/jobs/{job.id}/edit", csrf=token, **wrong)).text
