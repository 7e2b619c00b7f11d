"""Tasks on the dashboard: the list with what waits, the form that enqueues a run, and what a run waits for."""

from __future__ import annotations

from typing import Any

import pytest

from detent.domain.job import HttpTarget, JobSpec
from detent.jobs import JobOperations
from tests.dashboard.pages import Pages


@pytest.fixture
async def task(pages: Pages) -> Any:
    spec = JobSpec(name="send-mail", target=HttpTarget("http://127.0.0.1:9/"), payload={"to": "ada"})
    (job,) = await JobOperations(pages.store).registration.add([spec])
    return job


async def test_the_page_of_tasks_shows_what_waits(pages: Pages, task: Any, sql: Any) -> None:
    assert (await pages.get("/tasks")).text.count('id="task-') == 1
    await sql.fetch("SELECT enqueue_many('send-mail', '[{}, {}, {\"delay_seconds\": 3600}]')")
    await sql.execute("UPDATE backlog SET scheduled_at = scheduled_at - interval '5 minutes',"
                      " not_before = not_before - interval '5 minutes' WHERE not_before <= now()")  # fmt: skip
    text = (await pages.get("/tasks")).text
    for label, number in (("pending", "<b>3</b>"), ("ready", "2"), ("delayed", "1"), ("running", "0")):
        assert f'data-label="{label}">{number}</td>' in text, label
    assert text.count("<time") >= 1
    page = (await pages.get(f"/jobs/{task.id}")).text
    assert "Unfinished runs" in page and "Enqueue…" in page and "Run now…" not in page and "Next ticks" not in page


async def test_a_tenant_without_tasks_is_told_what_a_task_is(pages: Pages) -> None:
    assert "A task is a job without a schedule" in (await pages.get("/tasks")).text


async def test_a_run_is_enqueued_with_what_the_form_says(pages: Pages, task: Any, sql: Any) -> None:
    page = await pages.get(f"/jobs/{task.id}")
    fields = {"payload": '{"to": "bob"}', "delay": "10m", "priority": "-7", "unique_key": "u", "concurrency_key": "c"}
    done = await pages.post(f"/jobs/{task.id}/enqueue", page.csrf, **fields)
    row = await sql.fetchrow("SELECT *, extract(epoch FROM not_before - now()) AS left FROM backlog")
    assert (row["payload"], row["priority"], row["key"]) == ('{"to": "bob"}', -7, "c")
    assert 500 < row["left"] <= 600
    run = done.headers["HX-Redirect"]
    shown = (await pages.get(run)).text
    assert "on demand" in shown and "has not started yet" in shown and "It may start at" in shown
    assert "&#34;to&#34;: &#34;bob&#34;" in shown or '"to": "bob"' in shown
    again = await pages.post(f"/jobs/{task.id}/enqueue", page.csrf, **fields)
    assert "has this unique key and is pending" in again.text + str(again.headers)
    assert await sql.fetchval("SELECT count(*) FROM backlog") == 1


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"delay": "soon"}, "The delay is"),
        ({"priority": "high"}, "The priority is"),
        ({"priority": "101"}, "priority"),
        ({"payload": "{"}, "The payload is not JSON"),
    ],
)
async def test_a_form_that_is_wrong_enqueues_nothing_and_says_why(
    pages: Pages, task: Any, sql: Any, fields: dict[str, str], sentence: str
) -> None:
    page = await pages.get(f"/jobs/{task.id}")
    done = await pages.post(f"/jobs/{task.id}/enqueue", page.csrf, **fields)
    assert sentence in done.text
    assert await sql.fetchval("SELECT count(*) FROM backlog") == 0


async def test_a_run_that_waits_for_its_key_says_so_and_all_can_be_cancelled(pages: Pages, task: Any, sql: Any) -> None:
    runs = await sql.fetch("SELECT * FROM enqueue_many('send-mail', '[{\"concurrency_key\": \"c1\"}, {}]')")
    await sql.execute("UPDATE backlog SET parked = true WHERE keyed")
    shown = (await pages.get(f"/runs/{runs[0]['run']}")).text
    assert "It waits for its concurrency key" in shown and "c1" in shown
    listed = (await pages.get("/runs")).text
    assert "waiting for its concurrency key" in listed
    page = await pages.get(f"/jobs/{task.id}")
    assert "Cancel all" in page.text
    done = await pages.post(f"/jobs/{task.id}/cancel", page.csrf)
    assert "Cancelled 2 runs" in done.text + str(done.headers)
    assert await sql.fetchval("SELECT count(*) FROM backlog") == 0


async def test_the_page_of_a_run_says_which_worker_to_start(pages: Pages, task: Any, sql: Any) -> None:
    (run,) = await sql.fetch("SELECT * FROM enqueue_many('send-mail', '[{}]')")
    assert "No worker is running: start one with" in (await pages.get(f"/runs/{run['run']}")).text


async def test_the_page_of_a_run_shows_its_stored_steps_without_results(pages: Pages, task: Any, sql: Any) -> None:
    (run,) = await sql.fetch("SELECT * FROM enqueue_many('send-mail', '[{}]')")
    assert "Stored steps" not in (await pages.get(f"/runs/{run['run']}")).text
    await sql.execute(
        "INSERT INTO run_steps (job, scheduled_at, serial, name, attempt, token, took, result)"
        " SELECT job, scheduled_at, serial, '<charge>', 1, 1, '1.5 s', '\"a result\"' FROM backlog"
    )
    shown = (await pages.get(f"/runs/{run['run']}")).text
    assert "Stored steps" in shown and "&lt;charge&gt;" in shown and "1.5 s" in shown
    assert "a result" not in shown


async def test_the_traceback_of_an_attempt_has_the_width_of_the_card_not_of_a_cell(
    pages: Pages, task: Any, sql: Any
) -> None:
    (run,) = await sql.fetch("SELECT * FROM enqueue_many('send-mail', '[{}]')")
    await sql.execute(
        "INSERT INTO attempts (job, scheduled_at, serial, token, started_at, finished_at, attempt, outcome, traceback)"
        " SELECT job, scheduled_at, serial, 1, now(), now(), 1, 'failed', 'Traceback of a <handler>' FROM backlog"
    )
    shown = (await pages.get(f"/runs/{run['run']}")).text
    table, _, below = shown.partition("</table>")
    assert "Traceback of attempt 1" in below and "Traceback of a &lt;handler&gt;" in below
    assert "<details" not in table.partition("<table")[2]
    assert "Detent-Run-Id" in shown and "Detent-Attempt" not in shown, "after a re-drive it is not that of the table"
