"""What people type who are new to the command line, against a real server."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from detent.cli.run_view import indented
from tests.cli.command_line import CommandLine, Finished
from tests.cli.real_server import RealServer, running
from tests.support.postgres import Postgres

NOWHERE = ("--url", "http://127.0.0.1:9/", "--max-retries", "0")


@pytest.fixture(scope="module")
def server(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with postgres.database_apart() as url, running(tmp_path_factory.mktemp("server"), url) as server:
        yield server


@pytest.fixture
def detent(server: RealServer, tmp_path: Path) -> CommandLine:
    made = CommandLine(tmp_path, server.url)
    made.environ["TZ"] = "Europe/Berlin"
    return made


@pytest.fixture
def job(detent: CommandLine, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a job that ticks at nine in New York."""
    name = re.sub(r"\W", "-", str(request.node.name))[:60]
    good(detent("job", "create", name, "--cron", "0 9 * * *", "--tz", "America/New_York", *NOWHERE))
    yield name
    detent("job", "delete", name, "--yes")


def good(done: Finished) -> Finished:
    assert done.code == 0, done
    return done


def shown(done: Finished) -> dict[str, object]:
    document: dict[str, object] = json.loads(good(done).out)
    return document


# --- times


@pytest.mark.parametrize(
    ("text", "zone", "expected"),
    [
        ("10m", None, timedelta(minutes=10)),
        ("+10m", None, timedelta(minutes=10)),
        ("now", None, timedelta(0)),
        ("in 2 hours", "Asia/Tokyo", timedelta(hours=2)),
    ],
)
def test_a_job_runs_once_at_a_time_from_now(
    detent: CommandLine, text: str, zone: str | None, expected: timedelta
) -> None:
    before = datetime.now(UTC)
    zoned = ("--tz", zone) if zone else ()
    job = shown(detent("job", "create", "--at", text, *zoned, *NOWHERE, "--json"))
    assert isinstance(job["schedule"], dict)
    at = datetime.fromisoformat(job["schedule"]["at"])
    assert before + expected - timedelta(seconds=1) <= at <= datetime.now(UTC) + expected


def test_a_time_of_day_is_of_the_jobs_zone_or_of_this_machine_and_says_so(detent: CommandLine) -> None:
    here = detent("job", "create", "here", "--at", "tomorrow 09:00", *NOWHERE)
    assert re.search(r"^tomorrow 09:00 is \w{3} \S+ 09:00:00 \+0[12]00 \(Europe/Berlin\)\.$", here.err, re.MULTILINE)
    there = shown(
        detent("job", "create", "there", "--at", "monday 9:00", "--tz", "America/New_York", *NOWHERE, "--json")
    )
    assert str(there["next_run_at"]).endswith(("T13:00:00Z", "T14:00:00Z"))
    assert "America/New_York" in detent("job", "get", "there").out


def test_bounds_and_pauses_and_skips_take_such_times_too(detent: CommandLine, job: str) -> None:
    edited = good(detent("job", "edit", job, "--set", "ends_at=2030-01-31 09:00"))
    assert "2030-01-31T14:00:00Z" in edited.err
    paused = good(detent("job", "pause", job, "--until", "2030-01-31 09:00"))
    assert "2030-01-31 09:00:00 America/New_York" in paused.err
    good(detent("job", "resume", job))
    skipped = good(detent("job", "skip", job, "tomorrow 09:00"))
    assert "(America/New_York)" in skipped.err and "will be skipped" in skipped.err


def test_a_past_time_is_asked_for_in_words(detent: CommandLine, job: str) -> None:
    for arguments in (
        ("audit", "--since", "yesterday"),
        ("run", "list", "--since", "1h ago", "--until", "now"),
        ("history", "export", "--from", "last monday"),
        ("audit-log", "list", "--since", "-1h"),
        ("job", "ticks", job, "--from", "yesterday", "--to", "tomorrow 12:00"),
        ("job", "history", job, "--since", "2h"),
        ("job", "backfill", job, "2 days ago", "now", "--dry-run"),
    ):
        good(detent(*arguments))
    ticks = good(detent("job", "backfill", job, "2026-01-05", "2026-01-05", "--dry-run"))
    assert ticks.lines == ["2026-01-05T14:00:00Z"]


def test_an_instant_finer_than_a_millisecond_is_rounded_down(detent: CommandLine) -> None:
    job = shown(detent("job", "create", "fine", "--at", "2030-01-01T00:00:00.1239999Z", *NOWHERE, "--json"))
    assert job["next_run_at"] == "2030-01-01T00:00:00.123000Z"


# --- ticks and runs


def test_the_last_and_the_next_tick_are_explained_by_name(detent: CommandLine, job: str) -> None:
    for word in ("next", "last", "now"):
        assert f"'{job}'" in good(detent("explain", job, word)).out
    assert good(detent("explain", job, "next")).out.startswith(
        str(shown(detent("job", "get", job, "--json"))["next_run_at"])[:10]
    )
    assert good(detent("explain", job)).out == good(detent("explain", job, "last")).out
    good(detent("job", "create", "on-demand", "--task", *NOWHERE))
    refused = detent("explain", "on-demand", "next")
    assert refused.code == 2 and "on-demand is a task, and has no ticks" in refused.err


def test_a_job_that_has_had_no_tick_says_so_when_its_last_one_is_asked_for(detent: CommandLine) -> None:
    good(detent("job", "create", "yearly", "--every", "365d", *NOWHERE))
    good(detent("job", "trigger", "yearly"))
    told = good(detent("explain", "yearly", "last")).out
    assert "'yearly' has had no tick yet: it was created" in told and "Its first tick is" in told


def test_ticks_without_a_run_have_no_line_where_only_ids_are_asked_for(detent: CommandLine, job: str) -> None:
    assert detent("job", "ticks", job, "--from", "now", "--to", "7d").out
    assert detent("job", "ticks", job, "--from", "now", "--to", "7d", "--quiet").out == ""


def test_a_pipe_shows_a_backoff_that_is_not_the_default(detent: CommandLine) -> None:
    good(detent("job", "create", "linear", "--every", "1h", "--retry-backoff", "linear", *NOWHERE))
    assert "retry_backoff\tlinear" in good(detent("job", "get", "linear")).lines


def test_runs_and_jobs_are_found_by_the_beginning_of_their_id(detent: CommandLine, job: str) -> None:
    run = good(detent("job", "trigger", job, "--quiet")).out.strip()
    assert detent("run", "wait", run).code == 5
    assert good(detent("run", "get", run[:18], "--quiet")).out.strip() == run
    assert good(detent("run", "explain", run[:13])).out
    assert good(detent("dlq", "redrive", run[:18], "--quiet")).out.strip() == run
    assert (
        shown(detent("job", "get", str(shown(detent("job", "get", job, "--json"))["id"])[:23], "--json"))["name"] == job
    )
    short = detent("run", "get", run[:5])
    assert short.code == 3 and "give at least the first 8 characters of its id" in short.err


def test_an_ambiguous_beginning_lists_the_candidates(detent: CommandLine, job: str) -> None:
    at = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    runs = [good(detent("task", "run", job, "--at", at, "--quiet")).out.strip() for _ in range(2)]
    refused = detent("run", "get", runs[0][:12])
    assert refused.code == 3 and all(f"{run} ({job}, pending)" in refused.err for run in runs)


def test_runs_are_listed_since_and_until_a_time(detent: CommandLine, job: str) -> None:
    near = good(detent("task", "run", job, "--at", "1h", "--quiet")).out.strip()
    far = good(detent("task", "run", job, "--at", "10d", "--quiet")).out.strip()

    def listed(*arguments: str) -> set[str]:
        return set(good(detent("run", "list", "--job", job, "--quiet", *arguments)).lines)

    assert listed("--since", "+2h") == {far}
    assert listed("--since", "now", "--until", "+2h") == {near}
    assert {far, near} <= listed("--since", "1h")
    assert listed("--until", "1h ago") == set()
    assert detent("run", "list", "--since", "1h", "--search", "since:2h").code == 2


# --- what may be meant


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("job get nightly-reprot", "There is no job 'nightly-reprot': did you mean 'nightly-report'?"),
        ("task run nightly-repor", "did you mean 'nightly-report'?"),
        ("explain nightly-rport last", "did you mean 'nightly-report'?"),
        ("run list --sinc 1h", "No such option '--sinc'. Did you mean '--since'?"),
        ("run list --from 1h", "Did you mean '--since'?"),
        ("job lst", "Did you mean 'list'?"),
        ("jbo list", "Did you mean 'job'?"),
        ("job create x --cron @daily --url http://x/ --tz CEST", "did you mean 'Europe/Berlin' or 'Europe/Paris'?"),
        ("job create x --cron @daily --url http://x/ --tz PST", "did you mean 'America/Los_Angeles'?"),
        ("job create x --cron @daily --url http://x/ --tz UTC+2", "did you mean 'Etc/GMT-2'?"),
        ("job create x --cron @daily --url http://x/ --tz Europe/Berln", "did you mean 'Europe/Berlin'?"),
    ],
)
def test_what_is_misspelt_is_answered_with_what_may_be_meant(detent: CommandLine, command: str, words: str) -> None:
    detent("job", "create", "nightly-report", "--cron", "@daily", *NOWHERE)
    done = detent(*command.split())
    assert done.code in (2, 3) and words in done.err and done.err.count("\n") == 1


def test_a_run_in_the_place_of_a_job_and_a_job_in_the_place_of_a_run_are_pointed_out(detent: CommandLine) -> None:
    good(detent("job", "create", "nightly", "--cron", "@daily", *NOWHERE))
    run = json.loads(good(detent("task", "run", "nightly", "--in", "1h", "--json")).out)["id"]
    for name in (run, run[:20]):
        done = detent("explain", name)
        assert done.code == 3 and done.err.endswith(f"If it is the id of a run: `detent run explain {name}`.\n")
    for verb in ("get", "explain"):
        done = detent("run", verb, "nightly")
        assert done.code == 3 and "`detent job history nightly` lists its runs" in done.err
    done = detent("run", "get", "nobody")
    assert done.code == 3 and "history" not in done.err
    assert "run explain" not in detent("explain", "nobody").err


def test_a_zone_without_daylight_saving_is_pointed_out(detent: CommandLine) -> None:
    made = good(detent("cron", "explain", "0 9 * * *", "--tz", "EST"))
    assert "The zone EST has the same offset all year; 'America/New_York'" in made.err


def test_an_expression_of_another_program_is_explained_in_its_dialect(detent: CommandLine, tmp_path: Path) -> None:
    refused = detent("cron", "explain", "0 14 ? * 2#1")
    assert refused.code == 2 and "first Monday" in refused.err and "first Tuesday" in refused.err
    explained = good(detent("cron", "explain", "0 14 ? * 2#1", "--dialect", "quartz", "--from", "2026-11-18T00:00:00Z"))
    assert explained.rows[0][0] == "2026-12-07T14:00:00Z" and "'0 14 * * 1#1'" in explained.err
    made = detent("job", "create", "rate", "--cron", "rate(5 minutes)", "--dialect", "aws", *NOWHERE)
    assert json.loads(good(detent("job", "get", "rate", "--json")).out)["description"] == "Every 5 minutes", made.err
    file = tmp_path / "jobs.yaml"
    target = "target: {type: http, url: http://127.0.0.1:9/}"
    file.write_text(f"jobs:\n  - {{name: first-monday, schedule: '0 14 ? * 2#1', dialect: quartz, {target}}}\n")
    good(detent("apply", "-f", str(file), "--yes"))
    assert "1 unchanged" in good(detent("apply", "-f", str(file), "--yes")).err
    assert "dialect: quartz" in good(detent("export")).out


def test_the_times_of_h_are_those_of_the_name(detent: CommandLine) -> None:
    assert "--job" in detent("cron", "explain", "H H * * *").err
    expected = json.loads(good(detent("cron", "explain", "H H * * *", "--job", "hashed", "--json")).out)
    good(detent("job", "create", "hashed", "--cron", "H H * * *", *NOWHERE))
    assert json.loads(good(detent("job", "get", "hashed", "--json")).out)["description"] == expected["description"]


# --- quiet


def test_quiet_prints_the_id_or_nothing(detent: CommandLine, job: str) -> None:
    def silent(*arguments: str) -> str:
        done = good(detent(*arguments, "--quiet"))
        assert done.err == "", done
        return done.out

    quiet = shown(detent("job", "get", job, "--json"))["id"]
    for verb in ("pause", "resume", "get"):
        assert silent("job", verb, job) == f"{quiet}\n"
    assert silent("job", "edit", job, "--set", "priority=7") == f"{quiet}\n"
    run = silent("job", "trigger", job)
    assert re.fullmatch(r"[0-9a-f-]{36}\n", run)
    assert detent("run", "wait", run.strip(), "--quiet").err.startswith("error: ")
    for arguments in (
        ("audit", "--job", job),
        ("job", "skip", job, "tomorrow 09:00"),
        ("pause", "--all", "--reason", "test"),
        ("resume", "--all"),
        ("dlq", "discard", run.strip(), "--yes"),
    ):
        assert silent(*arguments) == ""
    assert len(silent("job", "next", job, "--count", "3").splitlines()) == 2  # the third is skipped
    assert silent("job", "diff", job) == "priority\n"


# --- one job


def test_every_field_that_is_not_a_default_is_shown(detent: CommandLine) -> None:
    good(
        detent(
            *("job", "create", "full", "--every", "900s", "--url", "http://127.0.0.1:9/", "--method", "put"),
            *(
                "--header",
                "Accept: text/plain",
                "--payload",
                '{"deep": {"a": 1}}',
                "--queue",
                "slow",
                "--priority",
                "8",
            ),
            *("--tag", "a", "--no-retry-on", "ValueError", "--misfire-grace", "90s", "--max-concurrent", "3"),
            *("--starts-at", "2030-01-01T00:00:00Z", "--timeout", "10m", "--max-retries", "7"),
        )
    )
    seen = detent.on_terminal("job", "get", "full").out
    for words in (
        "every 900s",
        "PUT http://127.0.0.1:9/",
        "Accept",
        '{"deep": {"a": 1}}',
        "slow, priority 8",
        "ValueError",
        "1 min 30 s",
        "10 min",
        "7, exponential",
        "2030-01-01 00:00:00 UTC",
    ):
        assert words in seen
    assert re.search(r"^\w.* +3 *$", seen, re.MULTILINE)


def test_a_long_payload_is_shortened_on_a_terminal_and_nowhere_else(detent: CommandLine, tmp_path: Path) -> None:
    payload = json.dumps({"a": "x" * 300_000})
    (tmp_path / "payload.json").write_text(payload)
    given = ("--payload", f"@{tmp_path}/payload.json")
    good(detent("job", "create", "large", "--url", "http://127.0.0.1:9/", *given))
    run = json.loads(good(detent("task", "run", "large", "--in", "1h", *given, "--json")).out)["id"]
    for arguments in (("job", "get", "large"), ("run", "get", run)):
        seen = detent.on_terminal(*arguments).out
        assert "… (300,008 bytes; --json shows all)" in re.sub(r"\s+", " ", seen) and len(seen) < 20_000
        assert json.loads(detent(*arguments, "--json").out)["payload"] == json.loads(payload)
        assert "x" * 300_000 in detent(*arguments).out


def test_only_the_beginning_of_a_very_long_value_is_shown() -> None:
    assert indented("x" * 4_096) is None and indented({"a": 1}) is None
    assert indented("ä" * 5_000) == "ä" * 4_096 + "… (10,002 bytes; --json shows all)"
    assert str(indented(list(range(3_000)))).endswith("… (13,891 bytes; --json shows all)")
