"""Enqueues of the example project without a worker, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.contrib.django.project import Project
from tests.support.postgres import Postgres, run_apart

pytestmark = pytest.mark.system


def test_higher_priorities_run_first(quiet_shop: Project) -> None:
    ids = quiet_shop.run("""
answer([probe.echo.using(priority=priority).enqueue(priority).id for priority in (-100, 0, 100, 50)])
""")
    with quiet_shop.process("detent", "worker", "--concurrency", "1"):
        order, priorities = quiet_shop.run(
            """
results = [finished(probe.echo.get_result(each)) for each in json.loads(ids)]
results.sort(key=lambda result: result.started_at)
answer([[result.args[0] for result in results], [result.task.priority for result in results]])
""".replace("json.loads(ids)", repr(ids))
        )
    assert order == [100, 50, 0, -100]
    assert priorities == order


def test_the_first_enqueue_of_a_new_task_registers_it_and_keeps_the_transaction(quiet_shop: Project) -> None:
    quiet_shop.run("""
with connection.cursor() as cursor:
    cursor.execute("UPDATE detent.jobs SET name = name || ' before' WHERE name = %s", [probe.echo.module_path])
answer(1)
""")
    assert quiet_shop.run("""
with transaction.atomic():
    order = Order.objects.create(customer="a@example.com", amount=1)
    first = probe.echo.enqueue(order.pk)
    second = probe.echo.enqueue(order.pk)
answer([Order.objects.count(), runs(), str(probe.echo.get_result(first.id).status)])
""") == [1, 2, "READY"]


def test_without_registration_an_unknown_task_is_refused_with_the_command(quiet_shop: Project) -> None:
    refused = quiet_shop.run(
        """
from django.core.exceptions import ImproperlyConfigured
with connection.cursor() as cursor:
    cursor.execute("UPDATE detent.jobs SET name = name || ' before' WHERE name = %s", [probe.echo.module_path])
with transaction.atomic():
    try:
        probe.echo.enqueue()
    except ImproperlyConfigured as error:
        answer([str(error), Order.objects.count()])
""",
        TASK_OPTIONS=json.dumps({"register": False}),
    )
    assert refused == [
        "detent does not know the task tests.contrib.django.probe.tasks.echo: run `manage.py detent sync`.",
        0,
    ]


def test_what_detent_refuses_is_an_invalid_task_with_its_sentence(quiet_shop: Project) -> None:
    far, secret, nan = quiet_shop.run("""
from datetime import timedelta

def refusal(work):
    try:
        work()
    except (compat.InvalidTask, ValueError) as error:
        return f"{type(error).__name__}: {error}"

answer([refusal(lambda: probe.echo.using(run_after=timezone.now() + timedelta(days=400)).enqueue()),
        refusal(lambda: probe.echo.enqueue(secret="s")), refusal(lambda: probe.echo.enqueue(float("nan")))])
""")
    assert "the run would be due more than 366 days ahead" in far
    assert "payload refers to a secret" in secret
    assert nan.startswith("ValueError")


def test_a_task_is_deferred_also_without_time_zones(quiet_shop: Project) -> None:
    assert (
        quiet_shop.run("""
from datetime import datetime, timedelta
from django.test import override_settings

with override_settings(USE_TZ=False):
    later = probe.echo.using(run_after=datetime.now() + timedelta(hours=1)).enqueue()
answer(str(probe.echo.get_result(later.id).status))
""")
        == "READY"
    )


def test_wrong_definitions_are_refused_where_they_are_written(quiet_shop: Project) -> None:
    refusals = quiet_shop.run("""
from detent.contrib.django import task

def target(size): ...

def refusal(**fields):
    try:
        task(**fields)(target)
    except Exception as error:
        return f"{type(error).__name__}: {error}"

target.__module__ = "orders.tasks"
answer([refusal(cron="61 * * * *", call_with={"size": 1}), refusal(max_retrys=3), refusal(cron="* * * * *"),
        refusal(timezone="Europe/Berlin"), refusal(queue="mail"), refusal(priority=101),
        refusal(cron="* * * * *", every=5, call_with={"size": 1})])
""")
    expected = (
        "61", "did you mean 'max_retries'?", "give its parameters defaults, or values with call_with={...}",
        "need a schedule", "use queue_name=", "priority must be a whole number between -100 and 100", "exactly one of",
    )  # fmt: skip
    for refusal, words in zip(refusals, expected, strict=True):
        assert refusal.startswith("InvalidTask")
        assert words in refusal


def test_with_another_backend_a_schedule_is_left_out_unless_that_is_a_mistake(quiet_shop: Project) -> None:
    immediate = "{'BACKEND': compat.MODULE + '.backends.immediate.ImmediateBackend'}"
    called, refused = quiet_shop.run(
        """
from django.test import override_settings
from detent.contrib.django import task

def decorated():
    with override_settings(TASKS=CHOSEN):
        return task(cron="* * * * *", max_retries=3)(orders.compute_totals.func)

CHOSEN = {"default": IMMEDIATE}
made = decorated()
with override_settings(TASKS=CHOSEN):
    called = str(made.enqueue().status)
CHOSEN = {"default": IMMEDIATE, "detent": {"BACKEND": "detent.contrib.django.DetentBackend"}}
try:
    decorated()
except compat.InvalidTask as error:
    answer([called, str(error)])
""".replace("IMMEDIATE", immediate)
    )
    assert called == "SUCCESSFUL"
    assert refused.endswith("the backend 'default' in TASKS cannot run one: give backend='detent'.")


def test_migrate_registers_the_tasks_and_sync_says_what_changed(quiet_shop: Project) -> None:
    lines = quiet_shop.manage("detent", "sync").splitlines()
    assert "unchanged  orders.tasks.send_receipt" in lines
    assert {line.split()[0] for line in lines} == {"unchanged"}
    assert "in order" in quiet_shop.manage("detent", "check")


def test_checks_name_a_missing_schema_and_another_database(postgres: Postgres, tmp_path: Path) -> None:
    with postgres.database_apart("template0") as url:
        project = Project(url, tmp_path)
        project.manage("migrate", "-v", "0")
        found = project.manage("check", "--database", "default")
        assert "detent.W001" in found
        assert "manage.py detent migrate" in found
        assert "1 problem" in project.manage("detent", "check", code=1)
        assert project.manage("detent", "sync", code=1).strip().splitlines()[-1].startswith("CommandError: ")
        project.manage("detent", "migrate")
        assert "no issues" in project.manage("check", "--database", "default")
    sqlite = json.dumps({"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"})
    assert "detent.E002" in project.manage("check", code=1, DATABASE=sqlite)
    assert "did you mean 'tenant'?" in project.manage("check", code=1, TASK_OPTIONS='{"tenent": "a"}')


def test_an_enqueue_without_the_schema_names_the_command(postgres: Postgres, tmp_path: Path) -> None:
    with postgres.database_apart("template0") as url:
        project = Project(url, tmp_path)
        assert "manage.py detent migrate" in project.run("""
try:
    probe.echo.enqueue()
except Exception as error:
    answer(str(error))
""")


def test_with_the_option_migrate_django_migrates_detent_too(postgres: Postgres, tmp_path: Path) -> None:
    with postgres.database_apart("template0") as url:
        project = Project(url, tmp_path, TASK_OPTIONS='{"migrate": true}')
        project.manage("migrate", "-v", "0")
        assert project.run("answer(str(probe.echo.enqueue().status))") == "READY"


def test_a_role_that_may_only_enqueue_reads_results_through_the_api(quiet_shop: Project, postgres: Postgres) -> None:
    run_apart(_grant(postgres, urlsplit(quiet_shop.url).path.lstrip("/")))
    as_role = json.dumps({"USER": "shop_only"})
    enqueued = quiet_shop.run("answer(probe.echo.enqueue(1).id)", DATABASE=as_role)
    read = f"""
try:
    result = probe.echo.get_result({enqueued!r})
    answer([str(result.status), result.args, str(result.enqueued_at < timezone.now())])
except Exception as error:
    answer(str(error))
"""
    assert "may not read detent's tables" in quiet_shop.run(read, DATABASE=as_role)
    with quiet_shop.process("detent", "serve", "--port", "0", "--queue", "other") as address:
        options = json.dumps({"api_url": address})
        assert quiet_shop.run(read, DATABASE=as_role, TASK_OPTIONS=options) == ["READY", [1], "True"]


async def _grant(postgres: Postgres, database: str) -> None:
    import asyncpg

    await postgres.execute("DROP ROLE IF EXISTS shop_only", "CREATE ROLE shop_only LOGIN")
    connection: Any = await asyncpg.connect(postgres.admin_url(database))
    try:
        await connection.execute("SET search_path = detent")
        await connection.execute("SELECT grant_enqueue('shop_only')")
        await connection.execute("INSERT INTO enqueue_grants (tenant, role) VALUES (1, 'shop_only')")
        await connection.execute("GRANT USAGE ON SCHEMA detent TO shop_only")
    finally:
        await connection.close()
