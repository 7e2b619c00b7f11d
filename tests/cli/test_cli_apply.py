"""`detent apply`, `diff`, `export` and `import crontab` against a real server."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from tests.cli.command_line import CommandLine
from tests.cli.real_server import RealServer, running
from tests.support.postgres import run_apart
from tests.support.waiting import until_sync

if TYPE_CHECKING:
    from tests.support.postgres import Postgres

FILE = """owner: team-a
defaults:
  timezone: Europe/Berlin
jobs:
  - name: report
    schedule: "0 9 * * MON"
    target: {type: http, url: "https://example.org/report", headers: {Authorization: secret-one}}
    payload: {parts: [1, 2.5], on: true}
  - name: ping
    schedule: every 15m
    target: {type: http, url: "https://example.org/ping"}
"""


@pytest.fixture(scope="module")
def database(postgres: Postgres) -> Iterator[str]:
    with postgres.database_apart() as url:
        yield url


@pytest.fixture(scope="module")
def real(database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with running(tmp_path_factory.mktemp("server"), database) as server:
        yield server


@pytest.fixture
def detent(real: RealServer, tmp_path: Path) -> CommandLine:
    """Pointed at the server, which has no jobs."""
    with real.client as client:
        for job in list_all(client):
            client.delete_job(job["id"])
    return CommandLine(tmp_path, real.url)


def list_all(client: Any, **filters: Any) -> list[dict[str, Any]]:
    return list(client.list_jobs(**filters))


def rows(url: str, query: str) -> list[Any]:
    async def work() -> list[Any]:
        connection = await asyncpg.connect(url, server_settings={"search_path": "detent"})
        try:
            found: list[Any] = await connection.fetch(query)
            return found
        finally:
            await connection.close()

    return run_apart(work())


def write(detent: CommandLine, text: str, name: str = "jobs.yaml") -> str:
    (detent.folder / name).write_text(text)
    return name


def test_files_are_applied_once_and_then_left_alone(detent: CommandLine, database: str) -> None:
    write(detent, FILE)
    first = detent("apply", "-f", "jobs.yaml", "--yes")
    assert (first.code, first.rows) == (0, [["create", "report"], ["create", "ping"]])
    counted, warned, done = first.err.splitlines()
    assert (counted, done) == ("2 to create.", "Done: 2 created.")
    assert warned.startswith("note: report: The header Authorization is stored as plain text")
    query = "SELECT * FROM cursors JOIN jobs USING (job) WHERE status = 'active' ORDER BY job"
    before = rows(database, query)
    again = detent("apply", "-f", "jobs.yaml", "--yes")
    assert (again.code, again.out, again.err) == (0, "", "Nothing to change: 2 unchanged.\n")
    assert rows(database, query) == before


def test_files_are_given_as_arguments_or_as_options(detent: CommandLine) -> None:
    job = "jobs:\n  - {{name: {}, schedule: every 1h, target: {{type: python, function: 'a:b'}}}}\n"
    one, two, three = (write(detent, job.format(name), f"{name}.yaml") for name in ("one", "two", "three"))
    for given in ((one, two, three), (one, "-f", two, three), ("-f", one, "-f", two, "-f", three)):
        assert "3 jobs, no errors." in detent("validate", *given).err
        assert sorted(detent("diff", *given).rows) == [["create", "one"], ["create", "three"], ["create", "two"]]
    assert detent("apply", one, two, "--yes").code == 0
    done = detent("apply")
    assert done.code == 2 and "No file is given: name files or folders, as in `detent apply jobs.yaml`." in done.err


def test_jobs_that_no_worker_serves_are_named_when_they_are_applied(detent: CommandLine) -> None:
    jobs = "".join(
        f"""
  - name: thumbnails-{number}
    schedule: every 1h
    queue: images
    target: {{type: http, url: "https://example.org/ping"}}"""
        for number in range(5)
    )
    write(detent, f"jobs:{jobs}\n")
    done = detent("apply", "-f", "jobs.yaml", "--yes")
    assert (done.code, done.err.splitlines()) == (
        0,
        [
            "5 to create.",
            "note: thumbnails-0, thumbnails-1, thumbnails-2 and 2 more: Its runs will wait. No worker serves the queue "
            "'images': start one with `detent worker --queue images`.",
            "Done: 5 created.",
        ],
    )
    assert detent("apply", "-f", "jobs.yaml", "--yes").err == "Nothing to change: 5 unchanged.\n"


def test_a_plan_shows_what_changes_and_no_secret(detent: CommandLine) -> None:
    detent("apply", "-f", write(detent, FILE), "--yes")
    write(detent, FILE.replace("secret-one", "secret-two").replace("15m", "20m").replace("[1, 2.5]", "[1]"))
    done = detent("diff", "-f", "jobs.yaml")
    assert done.code == 0
    assert done.rows == [
        ["update", "report", "target.headers.Authorization", '"(hidden)"', '"(hidden)"'],
        ["update", "report", "payload.parts", "[1, 2.5]", "[1]"],
        ["update", "ping", "schedule", '"every 15m"', '"every 20m"'],
    ]
    assert detent("diff", "-f", "jobs.yaml", "--exit-code").code == 2
    seen = detent.on_terminal("diff", "-f", "jobs.yaml", raw=True)
    assert "\x1b[33m~ update ping" in seen.out and "secret-" not in seen.out
    document = json.loads(detent("diff", "-f", "jobs.yaml", "--json").out)
    assert (document["update"], document["unchanged"]) == (2, 0)
    assert document["steps"][1]["line"] == 9


def test_nothing_is_changed_without_consent(detent: CommandLine) -> None:
    write(detent, FILE)
    nobody = detent("apply", "-f", "jobs.yaml")
    assert nobody.code == 2 and "detent apply -f jobs.yaml --yes" in nobody.err
    refused = detent.on_terminal("apply", "-f", "jobs.yaml", typed="n\n")
    assert refused.code == 1 and "+ create report" in refused.out and "Nothing was changed." in refused.out
    assert detent("apply", "-f", "jobs.yaml", "--dry-run", "--yes").code == 0
    assert detent("job", "list").out == ""
    assert detent.on_terminal("apply", "-f", "jobs.yaml", typed="y\n").code == 0
    assert len(detent("job", "list", "-q").lines) == 2


def test_prune_deletes_only_what_has_the_same_owner_and_is_in_no_file(detent: CommandLine) -> None:
    detent("apply", "-f", write(detent, FILE), "--yes")
    other = FILE.replace("team-a", "team-b").replace("name: ", "name: other-")
    detent("apply", "-f", write(detent, other, "other.yaml"), "--yes")
    detent("job", "create", "by-hand", "--every", "1h", "--url", "https://example.org/")
    write(detent, FILE.partition("  - name: ping")[0])
    both = detent("apply", "-f", "jobs.yaml", "-f", "other.yaml", "--prune", "--yes")
    assert both.code == 2 and "--owner team-a" in both.err
    assert detent("apply", "-f", "jobs.yaml", "--prune", "--owner", "team-b", "--yes").code == 2
    kept = detent("apply", "-f", "jobs.yaml", "--yes")
    assert kept.err == "Nothing to change: 1 unchanged.\n"
    pruned = detent("apply", "-f", "jobs.yaml", "--prune", "--yes")  # the file says whose jobs it holds
    assert (pruned.code, pruned.rows) == (0, [["delete", "ping"]])
    names = {row[0] for row in detent("job", "list").rows}
    assert names == {"report", "other-report", "other-ping", "by-hand"}


def test_a_job_can_be_taken_over_and_is_then_shown_with_its_owner(detent: CommandLine) -> None:
    detent("apply", "-f", write(detent, FILE.replace("owner: team-a\n", "")), "--yes")
    assert detent("job", "list", "--owner", "team-a", "-q").out == ""
    taken = detent("apply", "-f", "jobs.yaml", "--owner", "team-a", "--yes")
    assert taken.rows == [
        ["update", "report", "owner", "null", '"team-a"'],
        ["update", "ping", "owner", "null", '"team-a"'],
    ]
    assert len(detent("job", "list", "--owner", "team-a", "-q").lines) == 2
    assert ["owner", "team-a"] in detent("job", "get", "ping").rows
    assert ["revision", "1"] in detent("job", "get", "ping").rows
    assert detent("apply", "-f", "jobs.yaml", "--owner", "team-a", "--yes").out == ""


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_an_export_reads_back_as_no_change(detent: CommandLine, form: str) -> None:
    detent("apply", "-f", write(detent, FILE), "--yes")
    detent("job", "create", "odd", "--at", "2040-01-01T00:00:00+01:00", "--shell", "echo 'a: b' | cat -n",
           "--payload", '["\\u0085", "1e3", 1e22, {"on": null}, "line\\nend\\n"]', "--tag", "yes", "--max-retries", "0",
           "--priority", "9")  # fmt: skip
    detent("job", "pause", "ping")
    done = detent("export", "--format", form, "-o", f"all.{form}")
    assert done.code == 0 and done.err.endswith("\nExported 3 jobs; 1 paused, which the file does not record.\n")
    assert done.err.startswith("note: The file contains headers and environment variables")
    same = detent("diff", "-f", f"all.{form}", "--exit-code")
    assert (same.code, same.err) == (0, "Nothing to change: 3 unchanged.\n")
    owned = detent("export", "--owner", "team-a", "--format", form)
    assert "Exported 2 jobs" in owned.err and "team-a" in owned.out and "odd" not in owned.out
    assert detent("diff", "-f", write(detent, owned.out, f"owned.{form}"), "--exit-code").code == 0


def test_what_only_the_server_can_refuse_is_reported_with_its_line(detent: CommandLine) -> None:
    text = (
        FILE + '  - name: late\n    schedule: "2020-01-01T00:00:00Z"\n    target: {type: http, url: "https://x.org"}\n'
    )
    write(detent, text)
    assert detent("validate", "-f", "jobs.yaml").code == 0
    done = detent("apply", "-f", "jobs.yaml", "--yes")
    assert done.code == 2
    assert "jobs.yaml:12: The instant 2020-01-01T00:00:00Z is in the past" in done.err
    assert detent("job", "list", "-q").out == ""


def test_a_crontab_becomes_jobs_and_a_second_import_changes_nothing(detent: CommandLine) -> None:
    write(detent, "SHELL=/bin/bash\n# Nightly\n0 2 * * * /opt/backup.sh\n0 0 1,15 * 1 pay\n@reboot x\n", "my.cron")
    done = detent("import", "crontab", "my.cron", "--tz", "Europe/Berlin", "--owner", "ops", "--yes")
    assert done.code == 0 and "2 to create." in done.err and "or they run twice" in done.err
    pay = json.loads(detent("job", "get", "pay", "--json").out)
    assert (pay["schedule"], pay["day_match"], pay["timezone"]) == ("0 0 1,15 * 1", "or", "Europe/Berlin")
    assert (pay["max_retries"], pay["owner"], pay["tags"]) == (0, "ops", ["crontab"])
    again = detent("import", "crontab", "my.cron", "--tz", "Europe/Berlin", "--owner", "ops", "--yes")
    assert again.code == 0 and "Nothing to change: 2 unchanged." in again.err
    changed = detent("import", "crontab", "my.cron", "--tz", "UTC", "--owner", "ops", "--yes")
    assert ["update", "backup", "timezone", '"Europe/Berlin"', '"UTC"'] in changed.rows


def many(count: int, period: str = "1h") -> str:
    jobs = "".join(
        f"  - name: job-{n:05}\n    schedule: every {period}\n    target: {{type: http, url: 'https://x.org/{n}'}}\n"
        for n in range(count)
    )
    return f"owner: bulk\njobs:\n{jobs}"


@pytest.mark.parametrize("count", [2000, pytest.param(5000, marks=pytest.mark.long)])
def test_an_apply_that_the_death_of_the_server_cut_off_is_finished_by_the_next(
    postgres: Postgres, tmp_path: Path, count: int
) -> None:
    with postgres.database_apart() as url, running(tmp_path, url) as server:
        detent = CommandLine(tmp_path, server.url)
        write(detent, many(count))
        first = detent.start("apply", "-f", "jobs.yaml", "--yes", stdout=subprocess.DEVNULL)
        until_sync(lambda: rows(url, "SELECT count(*) FROM jobs")[0][0] >= count // 4, 60)
        server.kill()
        _, err = first.communicate()
        assert first.returncode == 7, err
        made = rows(url, "SELECT count(*) FROM jobs")[0][0]
        assert 0 < made < count, "the server was killed too late to cut anything off"
        assert b"repeat the command to continue" in err
        server.start()
        second = detent("apply", "-f", "jobs.yaml", "--yes")
        assert second.code == 0, second.err
        assert second.err.endswith(f"{made} unchanged.\nDone: {count - made} created, {made} unchanged.\n")
        third = detent("apply", "-f", "jobs.yaml", "--yes")
        assert third.err == f"Nothing to change: {count} unchanged.\n"
        found = rows(url, "SELECT count(*), count(DISTINCT name), max(revision) FROM jobs WHERE status <> 'deleted'")
        assert tuple(found[0]) == (count, count, 1)
        assert rows(url, "SELECT count(*) FROM cursors")[0][0] == count


def test_two_concurrent_applies_make_each_job_once(detent: CommandLine, database: str) -> None:
    write(detent, many(1200))
    done: list[Any] = []
    threads = [
        threading.Thread(target=lambda: done.append(detent("apply", "-f", "jobs.yaml", "--yes"))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [one.code for one in done] == [0, 0], [one.err for one in done]
    found = rows(database, "SELECT count(*), count(DISTINCT name) FROM jobs WHERE status = 'active'")
    assert tuple(found[0]) == (1200, 1200)


def test_progress_is_drawn_on_a_terminal_and_nowhere_else(detent: CommandLine) -> None:
    write(detent, many(600))
    seen = detent.on_terminal("apply", "-f", "jobs.yaml", "--yes", raw=True)
    assert seen.code == 0 and "600" in seen.out and "━" in seen.out and "… and 500 more" in seen.out
    write(detent, many(600, "2h"))
    piped = detent("apply", "-f", "jobs.yaml", "--yes", "-q")
    assert piped.code == 0 and "━" not in piped.out + piped.err and len(piped.lines) == 600
