"""The example project as real processes: a web server, a worker, and scripts in the project."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.contrib.django.project import Project
from tests.support.waiting import until_sync

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def web(shop: Project) -> Iterator[str]:
    with shop.process("runserver", "--noreload", "127.0.0.1:0") as address:
        yield address


def post(url: str, **fields: str) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(url, urllib.parse.urlencode(fields).encode()) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, None


def get(url: str) -> Any:
    with urllib.request.urlopen(url) as answer:
        return json.load(answer)


def finished(web: str, result: str) -> Any:
    def ended() -> Any:
        shown = get(f"{web}/results/{result}/")
        return shown if shown["status"] in ("SUCCESSFUL", "FAILED") else None

    return until_sync(ended, 30, f"the result {result}")


def test_a_request_creates_an_order_and_its_task_and_shows_the_result(web: str) -> None:
    status, made = post(f"{web}/orders/", customer="ada@example.com", amount="12.50")
    assert status == 201
    shown = finished(web, made["result"])
    assert (shown["status"], shown["value"], shown["attempts"]) == ("SUCCESSFUL", "sent to ada@example.com", 1)


def test_a_request_that_fails_leaves_neither_order_nor_task(shop: Project, web: str) -> None:
    before = shop.run("answer([Order.objects.count(), runs()])")
    status, _ = post(f"{web}/orders/", customer="bob@example.com", amount="1", broken="yes")
    assert status == 500
    assert shop.run("answer([Order.objects.count(), runs()])") == before


def test_an_async_view_enqueues_a_coroutine(web: str) -> None:
    _, made = post(f"{web}/orders/async/", customer="eve@example.com", amount="3")
    shown = finished(web, made["result"])
    assert shown["status"] == "SUCCESSFUL"
    assert shown["value"]["orders"] >= 1
    assert shown["value"]["attempt"] == 1


def test_a_failed_task_shows_the_class_of_its_exception_and_the_traceback(web: str) -> None:
    _, made = post(f"{web}/orders/", customer="x@nowhere.invalid", amount="3")
    shown = finished(web, made["result"])
    assert shown["status"] == "FAILED"
    assert shown["attempts"] == 1, "an exception in no_retry_on is not retried"
    (error,) = shown["errors"]
    assert error["class"] == "orders.tasks.UnknownCustomerError"
    assert "x@nowhere.invalid has no mailbox" in error["traceback"]
    assert 'in send_receipt\n    raise UnknownCustomerError(f"{found.customer} has no mailbox")' in error["traceback"]


def test_an_exception_raised_from_another_is_resolved_to_its_own_class(shop: Project) -> None:
    shown = shop.run("""
result = finished(probe.breaks_deeply.enqueue())
answer([str(result.status), result.errors[0].exception_class is probe.OuterError, result.errors[0].traceback])
""")
    assert shown[:2] == ["FAILED", True]
    assert "KeyError: 'MISSING'" in shown[2]
    assert shown[2].endswith("OuterError: outer: nothing here\n")


TICK = """
with connection.cursor() as cursor:
    cursor.execute("SELECT detent.run_id(r.job, r.scheduled_at, r.serial)"
                   "  FROM detent.runs r JOIN detent.jobs j USING (job)"
                   " WHERE j.name = %s AND r.status = 'succeeded' LIMIT 1", [probe.ticks.module_path])
    row = cursor.fetchone()
result = probe.ticks.get_result(str(row[0])) if row else None
answer(result and [str(result.status), result.return_value, result.kwargs])
"""


def test_a_task_with_a_schedule_fires_by_itself_with_its_arguments(shop: Project) -> None:
    assert until_sync(lambda: shop.run(TICK), 30, "a tick") == ["SUCCESSFUL", "hourly", {"kind": "hourly"}]


def test_a_task_with_cron_fires_by_itself(shop: Project) -> None:
    until_sync(lambda: shop.run("answer(Totals.objects.count())") > 1, 30, "two totals")


def test_a_deferred_task_does_not_start_before_its_time(shop: Project) -> None:
    early, task_due, started, due = shop.run("""
from datetime import timedelta
due = timezone.now() + timedelta(seconds=1.5)
result = probe.echo.using(run_after=due).enqueue()
early = str(probe.echo.get_result(result.id).status)
finished(result)
answer([early, result.task.run_after.timestamp(), result.started_at.timestamp(), due.timestamp()])
""")
    assert early == "READY"
    assert started >= due - 0.001, "due times have milliseconds"
    assert task_due == due


def test_a_time_long_past_means_now(shop: Project) -> None:
    assert shop.run("""
from datetime import timedelta
result = finished(probe.echo.using(run_after=timezone.now() - timedelta(days=40)).enqueue(1))
answer([str(result.status), result.return_value])
""") == ["SUCCESSFUL", {"args": [1], "kwargs": {}}]


def test_a_retried_task_knows_its_attempt_and_the_errors_before(shop: Project) -> None:
    shown = shop.run("""
result = finished(probe.fails_once.enqueue("colour"))
answer([str(result.status), result.return_value, result.attempts, len(set(result.worker_ids)), len(result.errors),
        result.started_at < result.last_attempted_at <= result.finished_at, result.enqueued_at <= result.started_at])
""")
    assert shown == ["SUCCESSFUL", {"attempt": 2, "before": ["builtins.KeyError"]}, 2, 1, 1, True, True]


def test_signals_are_sent_where_the_task_is_enqueued_and_where_it_runs(shop: Project) -> None:
    own = shop.run("""
import os
finished(probe.large.enqueue(3))
answer(os.getpid())
""")
    (enqueued,) = shop.noted("task_enqueued", "large")
    (started,) = shop.noted("task_started", "large")
    (ended,) = shop.noted("task_finished", "large")
    assert [line[2:4] for line in (enqueued, started, ended)] == [["READY", "0"], ["RUNNING", "1"], ["SUCCESSFUL", "1"]]
    assert enqueued[4] == str(own)
    assert started[4] == ended[4] != enqueued[4]


def test_receivers_of_a_coroutine_that_failed_may_use_the_database(shop: Project) -> None:
    before = len(shop.noted("queried", "breaks_deeply"))
    shop.run("answer(str(finished(probe.breaks_deeply.enqueue()).status))")
    assert [line[2] for line in shop.noted("queried", "breaks_deeply")[before:]] == ["FAILED"]


def test_a_retried_attempt_does_not_finish_the_task(shop: Project) -> None:
    before = len(shop.noted("task_finished", "fails_once"))
    shop.run("answer(finished(probe.fails_once.enqueue('x')).attempts)")
    assert [line[2:4] for line in shop.noted("task_finished", "fails_once")[before:]] == [["SUCCESSFUL", "2"]]


def test_a_savepoint_that_is_rolled_back_takes_its_task_with_it(shop: Project) -> None:
    shown = shop.run("""
with transaction.atomic():
    kept = probe.echo.enqueue("kept")
    try:
        with transaction.atomic():
            lost = probe.echo.enqueue("lost")
            raise ZeroDivisionError
    except ZeroDivisionError:
        pass
    seen = str(probe.echo.get_result(kept.id).status)
try:
    probe.echo.get_result(lost.id)
except compat.TaskResultDoesNotExist:
    lost = None
answer([seen, finished(kept).return_value["args"], lost])
""")
    assert shown == ["READY", ["kept"], None]


def test_a_return_value_without_a_json_form_fails_the_task(shop: Project) -> None:
    status, kind, text = shop.run("""
result = finished(probe.not_json.enqueue())
answer([str(result.status), result.errors[0].exception_class_path, result.errors[0].traceback])
""")
    assert (status, kind) == ("FAILED", "builtins.TypeError")
    assert "Unsupported type" in text


def test_a_return_value_is_kept_whole_or_refused(shop: Project) -> None:
    kept, refused = shop.run("""
answer([len(finished(probe.large.enqueue(100_000)).return_value),
        finished(probe.large.enqueue(2_000_000)).errors[0].traceback])
""")
    assert kept == 100_000
    assert "has 2,000,002 characters as JSON, and this worker keeps at most 1,048,576" in refused


def test_an_isolated_task_runs_in_a_process_of_its_own(shop: Project) -> None:
    own, worker = shop.run("""
result = finished(probe.whose_process.enqueue())
assert str(result.status) == "SUCCESSFUL", result
answer([result.return_value, finished(probe.echo.enqueue()).worker_ids[0]])
""")
    (started,) = shop.noted("task_started", "whose_process")
    assert started[4] == str(own)
    assert all(line[4] != str(own) for line in shop.noted("task_started", "echo"))
    assert worker


def test_a_cancelled_run_is_a_failed_result_with_the_reason(shop: Project) -> None:
    shown = shop.run("""
import os
from detent.client import Client
from uuid import UUID
result = probe.unserved.enqueue()
with Client(os.environ["API"]) as client:
    client.cancel_run(UUID(result.id))
result.refresh()
answer([str(result.status), result.errors[0].exception_class.__name__, result.errors[0].traceback, result.attempts])
""")
    assert shown[:2] == ["FAILED", "TaskCancelled"]
    assert shown[3] == 0


def test_the_admin_lists_shows_cancels_and_retries_runs(shop: Project) -> None:
    shown = shop.run("""
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.test.utils import setup_test_environment
setup_test_environment()
result = finished(probe.breaks_deeply.enqueue())
waiting = probe.unserved.enqueue()
client, path = Client(), "/admin/detent/taskrun/"
User.objects.create_superuser("root", password="pw")
viewer = User.objects.create_user("viewer", password="pw", is_staff=True)
viewer.user_permissions.add(Permission.objects.get(codename="view_taskrun"))
client.login(username="viewer", password="pw")
listed = client.get(path, {"task": result.task.module_path, "status": "dead"}).content.decode()
page = client.get(f"{path}{result.id}/").content.decode()
refused = client.post(f"{path}{waiting.id}/cancel/").status_code
client.login(username="root", password="pw")
client.post(f"{path}{waiting.id}/cancel/")
waiting.refresh()
again = client.post(f"{path}{result.id}/retry/")
missing = client.get(f"{path}{'0' * 8}-0000-7000-8000-{'0' * 12}/").status_code
new = probe.breaks_deeply.get_result(again.url.split("/")[4])
answer([result.id in listed, waiting.id in listed, "Run again" in page, "outer: nothing here" in page, refused,
        str(waiting.status), new.id != result.id, str(finished(new).status), missing])
""")
    assert shown == [True, False, False, True, 403, "FAILED", True, "FAILED", 404]
