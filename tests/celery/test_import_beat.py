"""`detent import celery-beat` on an app, on tables of django-celery-beat, and on keys of RedBeat."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import redis
import yaml
from celery import Celery

from detent.cli.beat_sources import zone_of_app
from detent.errors import UsageError
from tests.cli.command_line import CommandLine
from tests.cli.real_server import running
from tests.support.celery.stage import PROJECT
from tests.support.postgres import Postgres
from tests.support.servers import Server

DJANGO = """
import os, sys, django
from datetime import datetime, timezone
from django.conf import settings
from urllib.parse import urlsplit, parse_qs
url = urlsplit(sys.argv[1]); query = parse_qs(url.query)
settings.configure(
    INSTALLED_APPS=["django_celery_beat"], USE_TZ=True, DEFAULT_AUTO_FIELD="django.db.models.AutoField",
    DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", "NAME": url.path[1:], "USER": url.username,
        "PASSWORD": url.password or "", "HOST": query.get("host", [url.hostname])[0],
        "PORT": query.get("port", [url.port])[0], "OPTIONS": {"options": "-c search_path=public"}}})
django.setup()
from django.core.management import call_command
call_command("migrate", "django_celery_beat", verbosity=0)
from django_celery_beat.models import *
crontab = CrontabSchedule.objects.create(minute="0", hour="6", day_of_week="mon-fri", timezone="Europe/Berlin")
interval = IntervalSchedule.objects.create(every=10, period="minutes")
clocked = ClockedSchedule.objects.create(clocked_time=datetime(2035, 1, 1, 12, tzinfo=timezone.utc))
solar = SolarSchedule.objects.create(event="sunrise", latitude=52, longitude=13)
add = PeriodicTask.objects.create
add(name="a report", task="shop.report", crontab=crontab, kwargs='{"week": true}', queue="reports", expire_seconds=60)
add(name="b poll", task="shop.poll", interval=interval, args="[1, 2]", enabled=False)
add(name="celery.backend_cleanup", task="celery.backend_cleanup", crontab=crontab, expire_seconds=43200)
add(name="c once", task="shop.once", clocked=clocked, one_off=True)
add(name="d sun", task="shop.sun", solar=solar)
add(name="e first", task="shop.poll", interval=interval, one_off=True,
    start_time=datetime(2034, 1, 1, tzinfo=timezone.utc), expires=datetime(2034, 2, 1, tzinfo=timezone.utc))
"""

REDBEAT = """
import sys
from celery import Celery
from celery.schedules import crontab, schedule
from redbeat import RedBeatSchedulerEntry
app = Celery("shop", broker=sys.argv[1]); app.conf.redbeat_redis_url = sys.argv[1]
RedBeatSchedulerEntry("nightly", "shop.report", crontab(minute=30, hour=2), args=["all"], app=app,
                      options={"queue": "reports"}).save()
off = RedBeatSchedulerEntry("poll", "shop.poll", schedule(300), app=app, enabled=False)
off.save()
"""


def detent(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(PROJECT), **variables}
    command = [sys.executable, "-m", "detent", "import", "celery-beat", *arguments]
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)


def program(folder: Path, text: str, *arguments: str) -> None:
    subprocess.run([sys.executable, "-c", text, *arguments], cwd=folder, check=True)


def entries(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    assert done.returncode == 0, done.stderr
    return {entry["text"].partition(":")[0]: entry for entry in json.loads(done.stdout)["entries"]}


@pytest.fixture
def shop_variables() -> dict[str, str]:
    return {"SHOP_BROKER": "redis://127.0.0.1:1/0", "SHOP_RECORD": "redis://127.0.0.1:1/0"}


def test_the_beat_schedule_of_an_app_is_explained_entry_by_entry(
    tmp_path: Path, shop_variables: dict[str, str]
) -> None:
    done = detent(tmp_path, "--app", "shop:app", "--dry-run", "--json", **shop_variables)
    found = entries(done)
    report = found["report"]["job"]
    assert report["schedule"] == "30 6,18 * * 1-5"
    assert report["timezone"] == "Europe/Berlin"
    assert report["target"] == {
        "type": "celery",
        "app": "shop:app",
        "ignore_result": True,
        "task": "shop.report",
        "kwargs": {"week": True},
        "queue": "reports",
        "priority": 3,
        "expires": 3600,
    }
    assert found["month-end"]["job"]["day_match"] == "and"
    assert found["poll"]["job"]["schedule"] == "every 5m"
    assert found["every-second"]["job"]["target"]["args"] == ["beat"]
    assert found["purge"]["job"]["target"]["task"] == "shop.purge"
    assert found["sunrise"]["what"] == "refused"
    assert found["sunrise"]["explanation"] == [
        "Its schedule is a shop.Sunrise, which only Celery can compute. Not imported."
    ]


def test_what_beat_adds_for_results_that_do_not_expire_is_imported_where_beat_adds_it(
    tmp_path: Path, shop_variables: dict[str, str]
) -> None:
    arguments = ("--app", "shop:app", "--dry-run", "--json")
    cleanup = entries(detent(tmp_path, *arguments, **shop_variables))["celery.backend_cleanup"]["job"]
    assert (cleanup["schedule"], cleanup["timezone"]) == ("0 4 * * *", "Europe/Berlin")
    assert cleanup["target"]["expires"] == 43_200
    expiring = entries(detent(tmp_path, *arguments, **shop_variables, SHOP_BACKEND="redis://127.0.0.1:1/0"))
    assert "celery.backend_cleanup" not in expiring


def test_the_report_is_one_line_per_entry(tmp_path: Path, shop_variables: dict[str, str]) -> None:
    done = detent(tmp_path, "--app", "shop:app", "--dry-run", **shop_variables)
    lines = done.stdout.splitlines()
    assert len(lines) == 7
    assert [line.split("\t")[1] for line in lines] == ["job"] * 6 + ["refused"]
    assert "6 jobs; 1 entry cannot be imported." in done.stderr


def test_the_jobs_can_be_written_to_a_file(tmp_path: Path, shop_variables: dict[str, str]) -> None:
    done = detent(tmp_path, "--app", "shop:app", "--follow", "--output", "jobs.yaml", **shop_variables)
    assert done.returncode == 0, done.stderr
    jobs = yaml.safe_load((tmp_path / "jobs.yaml").read_text())["jobs"]
    assert {job["name"] for job in jobs} == {
        "celery.backend_cleanup", "every-second", "month-end", "poll", "purge", "report"
    }  # fmt: skip
    assert all("ignore_result" not in job["target"] for job in jobs)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "There is no schedule to read: give --app, --django-url or --redbeat-url."),
        (["--redbeat-url", "redis://127.0.0.1:1"], "It is not known where tasks are sent: give --app or --broker-url."),
        (["--app", "nowhere:app"], "The Celery app 'nowhere:app' cannot be loaded (ModuleNotFoundError"),
        (["--app", "shop:record"], "not a Celery app; name the Celery object."),
        (["--app", "shop:app", "--timezone", "Mars/Base"], "--timezone:"),
        (["--redbeat-url", "redis://127.0.0.1:1", "--app", "shop:app"], "--redbeat-url cannot be read:"),
        (["--django-url", "postgresql://127.0.0.1:1/x", "--app", "shop:app"], "--django-url cannot be read:"),
    ],
)
def test_wrong_usage_is_one_sentence_and_exit_code_2(
    tmp_path: Path, shop_variables: dict[str, str], arguments: list[str], sentence: str
) -> None:
    done = detent(tmp_path, *arguments, **shop_variables)
    assert done.returncode == 2, done.stderr
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_tables_of_django_celery_beat_are_read(tmp_path: Path, database_url: str) -> None:
    program(tmp_path, DJANGO, database_url)
    done = detent(
        tmp_path,
        "--django-url",
        database_url,
        "--broker-url",
        "redis://redis.example.org:6379/0",
        "--dry-run",
        "--json",
    )
    found = entries(done)
    report = found["a report"]["job"]
    assert (report["schedule"], report["timezone"]) == ("0 6 * * 1-5", "Europe/Berlin")
    assert report["target"]["broker_url"] == "redis://redis.example.org:6379/0"
    assert (report["target"]["queue"], report["target"]["expires"]) == ("reports", 60)
    assert report["target"]["kwargs"] == {"week": True}
    assert found["b poll"]["job"]["schedule"] == "every 10m"
    assert "It is disabled in beat, so the job is paused." in found["b poll"]["explanation"]
    assert found["c once"]["job"]["schedule"] == {"at": "2035-01-01T12:00:00+00:00"}
    assert found["celery.backend_cleanup"]["job"]["target"]["expires"] == 43_200
    assert found["d sun"]["what"] == "refused"
    first = found["e first"]["job"]
    assert first["max_runs"] == 1
    assert (first["starts_at"], first["ends_at"]) == ("2034-01-01T00:00:00+00:00", "2034-02-01T00:00:00+00:00")


def test_a_database_without_the_tables_is_refused(tmp_path: Path, database_url: str) -> None:
    done = detent(tmp_path, "--django-url", database_url, "--broker-url", "redis://redis.example.org:6379/0")
    assert done.returncode == 2
    assert "has no tables of django-celery-beat" in done.stderr


def test_keys_of_redbeat_are_read(tmp_path: Path, redis_server: Server) -> None:
    url = redis_server.url.replace("/0", "/5")
    program(tmp_path, REDBEAT, url)
    done = detent(
        tmp_path, "--redbeat-url", url, "--broker-url", "redis://redis.example.org:6379/0", "--dry-run", "--json"
    )
    found = entries(done)
    assert found["nightly"]["job"]["schedule"] == "30 2 * * *"
    assert found["nightly"]["job"]["target"]["args"] == ["all"]
    assert found["nightly"]["job"]["target"]["queue"] == "reports"
    assert found["poll"]["job"]["schedule"] == "every 5m"
    assert "It is disabled in beat, so the job is paused." in found["poll"]["explanation"]


def test_a_key_of_redbeat_that_cannot_be_read_is_a_line_of_its_own(tmp_path: Path, redis_server: Server) -> None:
    url = redis_server.url.replace("/0", "/7")
    program(tmp_path, REDBEAT, url)
    broken = {
        "a-text": "not JSON",
        "b-list": "[1]",
        "c-nameless": '{"task": "shop.report"}',
        "d-interval": '{"name": "d", "task": "shop.report", "schedule": {"__type__": "interval"}}',
    }
    with redis.Redis.from_url(url) as client:
        for name, definition in broken.items():
            client.hset(f"redbeat:{name}", "definition", definition)
    done = detent(
        tmp_path, "--redbeat-url", url, "--broker-url", "redis://redis.example.org:6379/0", "--dry-run", "--json"
    )
    found = json.loads(done.stdout)["entries"]
    assert [entry["what"] for entry in found] == ["refused"] * 4 + ["job", "job"]
    for entry, name in zip(found, broken, strict=False):
        assert entry["text"].startswith(f"redbeat:{name}: ")
        assert "Its definition cannot be read (" in entry["explanation"][0]


def test_an_app_in_the_local_time_of_its_machine_needs_a_timezone() -> None:
    app = Celery("local", set_as_current=False)
    app.conf.enable_utc = False
    with pytest.raises(UsageError, match="give --timezone"):
        zone_of_app(app)
    app.conf.timezone = "Europe/Berlin"
    assert zone_of_app(app) == "Europe/Berlin"


def test_disabled_entries_become_paused_jobs_and_a_second_import_names_those_that_are_not(
    tmp_path: Path, redis_server: Server, postgres: Postgres
) -> None:
    url = redis_server.url.replace("/0", "/6")
    program(tmp_path, REDBEAT, url)
    beat = ("import", "celery-beat", "--redbeat-url", url, "--broker-url", "redis://127.0.0.1:1/0", "--yes")
    with postgres.database_apart() as database, running(tmp_path, database) as server, server.client as client:
        command_line = CommandLine(tmp_path, server.url)
        assert command_line(*beat).code == 0
        assert client.get_job("poll")["status"] == "paused"
        assert client.get_job("nightly")["status"] == "active"
        client.resume_job("poll")  # as an import leaves it that is interrupted
        again = command_line(*beat)
        assert again.code == 0
        assert "active here: poll. To pause one, run `detent job pause NAME`." in again.err
