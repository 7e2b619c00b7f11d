"""Ticks, explanations, audits, skips and revisions on the command line, against a real server that fires."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg
import pytest

from tests.cli.command_line import CommandLine, Finished
from tests.cli.real_server import RealServer, running
from tests.support.postgres import run_apart
from tests.support.waiting import until_sync

if TYPE_CHECKING:
    from tests.support.postgres import Postgres

Detent = Callable[..., Finished]


@pytest.fixture(scope="module")
def database(postgres: Postgres) -> Iterator[str]:
    with postgres.database_apart() as url:
        yield url


@pytest.fixture(scope="module")
def server(database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with running(tmp_path_factory.mktemp("server"), database) as server:
        yield server


@pytest.fixture
def detent(server: RealServer, tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path, server.url)


def good(done: Finished) -> Finished:
    assert done.code == 0, done
    return done


def make(detent: CommandLine, name: str, *schedule: str) -> None:
    good(detent("job", "create", name, *schedule, "--url", "http://127.0.0.1:9/", "--max-retries", "0"))


def run_sql(database: str, query: str, *arguments: object) -> None:
    async def execute() -> None:
        connection = await asyncpg.connect(database, server_settings={"search_path": "detent"})
        try:
            await connection.execute(query, *arguments)
        finally:
            await connection.close()

    run_apart(execute())


def ticked(detent: CommandLine, name: str, at_least: int = 3) -> list[list[str]]:
    """The ticks of a job that are over."""

    def found() -> list[list[str]] | None:
        rows = good(detent("job", "ticks", name, "--to", "0s", "--limit", "500")).rows
        over = [row for row in rows if row[2] in ("succeeded", "dead")]
        return over if len(over) >= at_least else None

    over: list[list[str]] = until_sync(found, 30, "ticks")
    return over


def test_an_audit_is_clean_and_then_names_exactly_the_row_that_was_deleted(detent: CommandLine, database: str) -> None:
    make(detent, "audited", "--every", "1s")
    ticks = ticked(detent, "audited")
    good(detent("job", "pause", "audited"))
    clean = good(detent("audit", "--job", "audited"))
    assert "missing\t0" in clean.lines
    assert "doubled\t0" in clean.lines
    assert "Every tick is accounted for exactly once, or still open." in clean.err
    gone = datetime.fromisoformat(ticks[1][0])
    run_sql(
        database,
        "DELETE FROM run_history h USING jobs j WHERE j.job = h.job AND j.name = 'audited' AND scheduled_at = $1",
        gone,
    )
    found = detent("audit", "--job", "audited", "--since", "1h")
    assert found.code == 1
    assert [line for line in found.err.splitlines() if line.startswith("missing:")] == [
        f"missing: audited {ticks[1][0]}"
    ]
    document = json.loads(detent("audit", "--job", "audited", "--json").out)
    assert (document["missing"], document["doubled"]) == (1, 0)
    assert document["wrong"][0]["missing_ticks"] == [ticks[1][0]]
    told = good(detent("explain", "audited", ticks[1][0])).out
    assert "Its outcome is unknown" in told


def test_an_audit_of_a_schedule_that_cannot_be_read_is_not_clean_and_names_the_job(
    detent: CommandLine, database: str
) -> None:
    make(detent, "silent", "--cron", "23 4 * * *")
    stored = '{"kind": "lunar"}'
    run_sql(
        database,
        "UPDATE schedules s SET stored = $1 FROM cursors c JOIN jobs j USING (job)"
        " WHERE s.schedule = c.schedule AND j.name = 'silent'",
        stored,
    )
    found = detent("audit", "--job", "silent")
    assert found.code == 1
    assert "unknown spans\t1" in found.lines
    assert [line.partition(" from ")[0] for line in found.err.splitlines() if "unknown:" in line] == ["unknown: silent"]
    assert "A stored schedule of the kind 'lunar' was made by another version of detent." in found.err
    assert "accounted for exactly once" not in found.err
    document = json.loads(detent("audit", "--json").out)
    assert (document["unknown"], [job["job"] for job in document["wrong"]].count("silent")) == (1, 1)
    listed = good(detent("job", "ticks", "silent", "--from", "1h", "--to", "0s")).rows
    assert [row[2] for row in listed] == ["unknown"]
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat(timespec="seconds")
    assert "is unknown" in good(detent("explain", "silent", tomorrow)).out
    good(detent("job", "delete", "silent", "--yes"))


def test_an_audit_of_what_is_not_there_is_not_clean(detent: CommandLine, database: str) -> None:
    make(detent, "young", "--cron", "0 9 * * *")
    assert detent("audit", "--job", "01890000-0000-7000-8000-000000000000").code == 3
    part = (
        "INSERT INTO history_parts (parent, name, since, until, dropped_at) VALUES ('run_history', $1, $2, $3, now())"
    )
    day = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=40)
    run_sql(database, part, "run_history_gone", day, day + timedelta(days=1))
    good(detent("audit", "--job", "young", "--since", "50d"))  # nothing was to be expected of it then
    run_sql(database, "UPDATE jobs SET created_at = now() - interval '60 days', since = now() WHERE name = 'young'")
    found = detent("audit", "--job", "young", "--since", "50d")
    assert found.code == 1
    assert "their history is no longer kept" in found.err
    good(detent("audit", "--job", "young", "--since", "30d"))


def test_a_tick_is_explained_in_plain_sentences(detent: CommandLine) -> None:
    make(detent, "told", "--every", "1s")
    tick = ticked(detent, "told", 1)[0]
    told = good(detent("explain", "told", tick[0]))
    assert told.lines[0].startswith(f"{tick[0][:10]} {tick[0][11:19]}")
    assert "is a tick of 'told'. Its schedule was: Every second, set by revision 1 at " in told.lines[0]
    assert any(line.startswith("The leader of its partition, ") and " was node " in line for line in told.lines)
    assert any("which died at" in line for line in told.lines)
    assert any(line.startswith("Attempt 1 started") and "failed after" in line for line in told.lines)
    assert good(detent("explain", "told", tick[0], "-q")).lines == [tick[5]]
    off = (datetime.fromisoformat(tick[0]) + timedelta(milliseconds=300)).isoformat()
    assert "is not a tick of 'told'" in good(detent("explain", "told", off)).out
    assert detent("explain", "nobody", off).code == 3
    assert detent("explain", "told", "someday").code == 2


def test_a_tick_is_skipped_and_taken_back(detent: CommandLine) -> None:
    make(detent, "hourly", "--cron", "0 * * * *")
    at = (datetime.now(UTC).replace(minute=0, second=0, microsecond=0) + timedelta(hours=3)).isoformat()
    done = good(detent("job", "skip", "hourly", at, "--reason", "holiday"))
    assert done.err.strip() == f"The tick {at.replace('+00:00', 'Z')} of hourly will be skipped."
    assert [row[2] for row in good(detent("job", "ticks", "hourly", "--to", at)).rows][-1] == "to be skipped"
    assert "will run" in good(detent("job", "skip", "hourly", at, "--undo")).err
    assert detent("job", "skip", "hourly", at, "--undo").code == 3
    wrong = detent("job", "skip", "hourly", at.replace(":00:00", ":17:00"))
    assert (wrong.code, "the nearest are" in wrong.err) == (2, True)
    assert detent("job", "skip", "hourly", at, "--undo", "--reason", "x").code == 2


def test_revisions_are_listed_compared_and_brought_back(detent: CommandLine) -> None:
    make(detent, "revised", "--cron", "0 9 * * *")
    assert "has not been changed" in good(detent("job", "diff", "revised")).err
    good(detent("job", "edit", "revised", "--set", "priority=8"))
    good(detent("job", "edit", "revised", "--set", "schedule=0 7 * * *", "--set", "priority=9"))
    rows = good(detent("job", "revisions", "revised")).rows
    assert [(row[0], row[2], row[3]) for row in rows] == [
        ("3", "local, no key", "schedule, priority"),
        ("2", "local, no key", "priority"),
        ("1", "local, no key", "created"),
    ]
    assert "priority: 8 → 9" in good(detent("job", "diff", "revised")).out
    assert "priority: 5 → 9" in good(detent("job", "diff", "revised", "1")).out
    assert "priority: 5 → 8" in good(detent("job", "diff", "revised", "1", "2")).out
    changes = json.loads(detent("job", "diff", "revised", "1", "2", "--json").out)
    assert changes == [{"path": "priority", "before": 5, "after": 8}]
    assert "Would change revised:" in good(detent("job", "rollback", "revised", "1", "--dry-run")).err
    assert detent("job", "rollback", "revised", "1").code == 2  # a pipe cannot confirm
    back = good(detent("job", "rollback", "revised", "1", "--yes", "--json"))
    assert json.loads(back.out)["revision"] == 4
    assert "Changed revised" in back.err
    assert detent("job", "rollback", "revised", "77", "--yes").code == 3


def test_a_pause_ends_by_itself(detent: CommandLine) -> None:
    make(detent, "resting", "--every", "1s")
    done = good(detent("job", "pause", "resting", "--until", "1s", "--on-resume", "once", "--reason", "a rest"))
    assert done.err.startswith("Paused resting until ")
    until_sync(lambda: good(detent("job", "get", "resting", "--json")).out.count('"status": "active"'), 20, "an end")
    assert detent("job", "pause", "resting", "--until", "2020-01-01T00:00:00Z").code == 2
    assert detent("job", "pause", "resting", "--until", "soon").code == 2


def test_a_trigger_has_its_own_payload_and_one_of_a_busy_job_waits_or_is_refused(
    detent: CommandLine, database: str
) -> None:
    make(detent, "busy", "--cron", "0 0 1 1 *")
    good(detent("job", "edit", "busy", "--set", "queue=nobody"))
    good(detent("job", "trigger", "busy", "--payload", '{"n": 2}'))
    refused = detent("job", "trigger", "busy", "--if-busy", "refuse")
    assert refused.code == 6
    assert "Not started: the job 'busy' already has its maximum of unfinished runs" in refused.err
    assert "Triggered" not in refused.err
    waiting = good(detent("job", "trigger", "busy")).out.strip()
    assert json.loads(good(detent("run", "get", waiting, "--json")).out)["status"] == "pending"
    cancelled = good(detent("job", "cancel", "busy", "--yes"))
    assert cancelled.err.strip() == "Runs of busy: 2 cancelled, 0 asked to stop."


def test_a_task_is_created_shown_and_asked_about_its_ticks(detent: CommandLine) -> None:
    make(detent, "send-mail", "--task", "--priority", "-7", "--concurrency-limit", "2", "--concurrency-rate", "0.5")
    make(detent, "send-sms")
    sheet = dict(good(detent("job", "get", "send-mail")).rows)
    assert (sheet["schedule"], sheet["description"], sheet["priority"]) == ("on demand", "On demand", "-7")
    assert (sheet["concurrency_limit"], sheet["concurrency_rate"], "next_run_at" in sheet) == ("2", "0.5", False)
    listed = {row[0]: row for row in good(detent("job", "list")).rows}
    assert listed["send-mail"][:3] == ["send-mail", "active", "on demand"]
    assert good(detent("job", "next", "send-mail")).err == "send-mail has no schedule: its runs are enqueued.\n"
    assert json.loads(good(detent("job", "next", "send-mail", "--json")).out)["ticks"] == []
    assert good(detent("job", "ticks", "send-mail")).rows == []
    refused = detent("job", "skip", "send-mail", "2030-12-24T18:00:00Z")
    assert refused.code != 0 and "has no schedule: its runs are enqueued" in refused.err
    refused = detent("job", "backfill", "send-mail", "2026-01-01", "now", "--dry-run")
    assert refused.code != 0 and "has no schedule: its runs are enqueued" in refused.err
    assert (
        "It has no schedule: its runs are enqueued" in good(detent("explain", "send-mail", "2090-01-01T00:00:00Z")).out
    )
    assert good(detent("audit", "--job", "send-mail")).code == 0
    good(detent("job", "edit", "send-mail", "--set", "schedule=@daily"))
    assert json.loads(good(detent("job", "get", "send-mail", "--json")).out)["next_run_at"]
    good(detent("job", "edit", "send-mail", "--unset", "schedule"))
    assert json.loads(good(detent("job", "get", "send-mail", "--json")).out)["next_run_at"] is None


def test_a_task_is_exported_and_applied_again(detent: CommandLine, tmp_path: Path) -> None:
    make(detent, "export-me", "--concurrency-key", "c-{{payload.customer}}", "--concurrency-limit", "1")
    exported = good(detent("export", "--format", "json")).out
    (job,) = [job for job in json.loads(exported)["jobs"] if job["name"] == "export-me"]
    assert "schedule" not in job and job["concurrency_key"] == "c-{{payload.customer}}"
    file = tmp_path / "jobs.json"
    file.write_text(json.dumps({"jobs": [job]}))
    good(detent("apply", "-f", str(file), "--yes"))
    assert json.loads(good(detent("job", "get", "export-me", "--json")).out)["revision"] == 1
    file.write_text(json.dumps({"jobs": [{**job, "schedule": "@daily"}]}))
    good(detent("apply", "-f", str(file), "--yes"))
    assert json.loads(good(detent("job", "get", "export-me", "--json")).out)["schedule"] == "@daily"
