"""`detent job …` as its own process against a server that speaks the contract."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.command_line import CommandLine, Finished
from tests.cli.contract_server import ContractServer, stamp

Run = Callable[..., Finished]
URL = ("--url", "http://127.0.0.1:9/")


def sent(server: ContractServer) -> Any:
    return server.requests[-1].body


def test_a_cron_job_is_created_and_shown_in_words(detent: CommandLine, server: ContractServer) -> None:
    done = detent("job", "create", "hello", "--cron", "*/5 * * * *", "--tz", "Europe/Berlin", *URL)
    assert (done.code, done.err) == (0, "Created job hello.\n")
    assert ["description", "Every 5 minutes"] in done.rows
    assert "next_run_at" in dict(done.rows)
    assert sent(server) == {
        "name": "hello",
        "schedule": {"cron": "*/5 * * * *"},
        "timezone": "Europe/Berlin",
        "target": {"type": "http", "url": "http://127.0.0.1:9/"},
    }


def test_every_flag_of_a_job_reaches_the_server(inside: Run, server: ContractServer) -> None:
    flags = shlex.split(
        "--starts-at 2030-01-01T00:00:00Z --ends-at 2031-01-01T00:00:00Z --max-runs 7 --jitter 1.5s --dst-gap skip "
        "--dst-overlap both --day-match and --dialect quartz --allow-past --queue slow --priority 9 --timeout 1h30m "
        "--max-retries 0 --retry-backoff linear --retry-base 500ms --retry-max 1d --concurrent-policy ALLOW "
        "--max-concurrent 2 --missed-window RUN_ONCE --misfire-grace 90 --delivery at_most_once --idempotency-key x "
        "--retry-on TimeoutError --retry-on shop.Busy --retry-delays 'TimeoutError=30s, shop.Busy=2m' "
        "--tag a --tag b --method put --header Accept:text/plain --header X-Time:12:30 --payload '{\"a\":[1]}'"
    )
    assert inside("job", "create", "hello", "--cron", "0 9 1 * MON", *URL, *flags).code == 0
    document = sent(server)
    assert document.pop("target") == {
        "type": "http",
        "url": "http://127.0.0.1:9/",
        "method": "PUT",
        "headers": {"Accept": "text/plain", "X-Time": "12:30"},
    }
    assert document == {
        "name": "hello",
        "schedule": {"cron": "0 9 1 * MON"},
        "starts_at": "2030-01-01T00:00:00Z",
        "ends_at": "2031-01-01T00:00:00Z",
        "max_runs": 7,
        "jitter_seconds": 1.5,
        "dst_gap": "skip",
        "dst_overlap": "both",
        "day_match": "and",
        "dialect": "quartz",
        "allow_past": True,
        "queue": "slow",
        "priority": 9,
        "timeout_seconds": 5400,
        "max_retries": 0,
        "retry_backoff": "linear",
        "retry_base_seconds": 0.5,
        "retry_max_seconds": 86400,
        "retry_on": ["TimeoutError", "shop.Busy"],
        "retry_delays": {"TimeoutError": 30, "shop.Busy": 120},
        "concurrent_policy": "ALLOW",
        "max_concurrent": 2,
        "missed_window": "RUN_ONCE",
        "misfire_grace_seconds": 90,
        "delivery": "at_most_once",
        "idempotency_key_template": "x",
        "tags": ["a", "b"],
        "payload": {"a": [1]},
    }


def test_warnings_of_the_server_are_passed_on(inside: Run, server: ContractServer) -> None:
    server.add_job("hello", warnings=["This one ticks only in leap years."])
    done = inside("job", "create", "hello", "--every", "5m", *URL, "--upsert")
    assert done.err == "No change in job hello.\nwarning: This one ticks only in leap years.\n"
    assert server.requests[-1].method == "PUT"


def test_a_job_can_come_from_a_file_with_flags_on_top(detent: CommandLine, server: ContractServer) -> None:
    job = {"name": "hello", "schedule": "@daily", "target": {"type": "shell", "command": "true"}, "priority": 1}
    (detent.folder / "job.json").write_text(json.dumps(job))
    assert detent("job", "create", "-f", "job.json", "--priority", "8").code == 0
    assert sent(server) == {**job, "priority": 8}
    assert detent("job", "create", "other", "-f", "-", stdin=json.dumps(job)).code == 0
    assert sent(server)["name"] == "other"


def test_a_payload_can_come_from_a_file_or_stdin(detent: CommandLine, server: ContractServer) -> None:
    (detent.folder / "payload.json").write_text('{"from": "file"}')
    assert detent("job", "create", "a", "--every", "5m", *URL, "--payload", "@payload.json").code == 0
    assert sent(server)["payload"] == {"from": "file"}
    assert detent("job", "create", "b", "--every", "5m", *URL, "--payload", "-", stdin='"stdin"').code == 0
    assert sent(server)["payload"] == "stdin"


def test_a_refusal_names_the_wrong_part(inside: Run) -> None:
    done = inside("job", "create", "hello", "--cron", "61 * * * *", *URL)
    assert (done.code, done.out) == (2, "")
    assert done.err == "error: The minute 61 is out of range: give 0 to 59. (at /schedule/cron)\n"


def test_a_name_that_is_taken_is_a_conflict(inside: Run, server: ContractServer) -> None:
    server.add_job("hello")
    done = inside("job", "create", "hello", "--every", "5m", *URL)
    assert done.code == 6
    assert done.err == "error: A job named 'hello' exists already: choose another name.\n"


def test_jobs_are_listed_as_lines_ids_or_json(inside: Run, server: ContractServer) -> None:
    job = server.add_job("hello", target={"type": "shell", "command": ["echo", "a b"]})
    lines = inside("job", "list")
    assert lines.rows == [
        ["hello", "active", "*/5 * * * *", "UTC", job["next_run_at"], "", "", "shell echo 'a b'", job["id"]]
    ]
    assert inside("job", "list", "-q").out == f"{job['id']}\n"
    assert json.loads(inside("job", "list", "--json").out) == {"items": [job], "next_cursor": None}


def test_a_list_is_filtered_and_paged_by_the_server(inside: Run, server: ContractServer) -> None:
    for number in range(5):
        server.add_job(f"job-{number}")
    done = inside("job", "list", "--limit", "2", "--status", "active", "--tag", "x", "--prefix", "job", "--json")
    assert [job["name"] for job in json.loads(done.out)["items"]] == ["job-0", "job-1"]
    assert server.requests[-1].query == {"limit": ["2"], "status": ["active"], "tag": ["x"], "prefix": ["job"]}
    cursor = json.loads(done.out)["next_cursor"]
    assert len(inside("job", "list", "--cursor", cursor).rows) == 3


def test_the_certificates_of_a_target_are_a_secret_and_a_file(detent: CommandLine, server: ContractServer) -> None:
    (detent.folder / "ca.pem").write_text("-----BEGIN CERTIFICATE-----\n")
    flags = ("--url", "https://h/", "--tls-client-certificate", "ledger", "--tls-ca", "ca.pem")
    assert detent("job", "create", "hello", "--every", "1h", *flags).code == 0
    assert sent(server)["target"] == {
        "type": "http",
        "url": "https://h/",
        "tls": {"client_certificate": {"secret": "ledger"}, "ca": "-----BEGIN CERTIFICATE-----\n"},
    }
    missing = detent("job", "create", "hello", "--every", "1h", "--url", "https://h/", "--tls-ca", "no.pem")
    assert (missing.code, missing.err) == (
        2,
        "error: --tls-ca names no.pem, which cannot be read (No such file or directory).\n",
    )
    alone = detent("job", "create", "hello", "--every", "1h", "--shell", "true", "--tls-client-certificate", "ledger")
    assert alone.code == 2 and "without --url" in alone.err


def test_body_statuses_and_limit_of_a_target_are_flags(detent: CommandLine, server: ContractServer) -> None:
    (detent.folder / "body.txt").write_text('{"day": {{ scheduled_at.date }}}')
    flags = ("--success-status", "2xx,304", "--retry-status", "409", "--retry-status", "423", "--host-concurrency", "3")
    create = ("job", "create", "hello", "--every", "1h", "--url", "https://h/{{ payload.id }}")
    assert detent(*create, "--body", "@body.txt", *flags).code == 0
    assert sent(server)["target"] == {
        "type": "http",
        "url": "https://h/{{ payload.id }}",
        "body": '{"day": {{ scheduled_at.date }}}',
        "statuses": {"success": ["2xx", 304], "retry": [409, 423]},
        "host_concurrency": 3,
    }
    more = ("--body", '{"day": "{{ scheduled_at.date }}"}', "--no-retry-status", "501", "--upsert")
    assert detent(*create, *more).code == 0
    assert sent(server)["target"]["body"] == {"day": "{{ scheduled_at.date }}"}
    assert sent(server)["target"]["statuses"] == {"no_retry": [501]}


def test_a_callback_is_a_lease_of_an_http_target(detent: CommandLine, server: ContractServer) -> None:
    flags = ("--url", "https://h/", "--callback", "90s")
    assert detent("job", "create", "hello", "--every", "1h", *flags).code == 0
    assert sent(server)["target"] == {"type": "http", "url": "https://h/", "callback": {"lease_seconds": 90}}
    alone = detent("job", "create", "hello", "--every", "1h", "--shell", "true", "--callback", "90s")
    assert alone.code == 2 and "--callback is given without --url" in alone.err
    wrong = detent("job", "create", "hello", "--every", "1h", "--url", "https://h/", "--callback", "soon")
    assert wrong.code == 2 and "--callback" in wrong.err


def test_a_job_is_shown_without_the_values_of_its_headers(inside: Run, server: ContractServer) -> None:
    target = {"type": "http", "url": "http://h/", "method": "GET", "headers": {"Authorization": "Bearer hidden"}}
    server.add_job("hello", target=target)
    done = inside("job", "get", "hello")
    assert ["headers", "Authorization"] in done.rows
    assert "hidden" not in done.out


def test_a_job_that_is_not_there_is_exit_code_3(inside: Run) -> None:
    done = inside("job", "get", "nobody")
    assert (done.code, done.out, done.err) == (3, "", "error: There is no job 'nobody'.\n")


def test_a_job_is_paused_and_resumed(inside: Run, server: ContractServer) -> None:
    job = server.add_job("it's")
    done = inside("job", "pause", "it's", "--reason", "holiday")
    assert (done.code, done.out) == (0, "")
    assert "detent job resume 'it'\"'\"'s'" in done.err
    assert sent(server) == {"reason": "holiday"}
    done = inside("job", "resume", job["id"], "--json")
    assert json.loads(done.out)["status"] == "active"
    assert done.err.startswith("Resumed it's; next run 20")


def test_a_trigger_prints_the_run(detent: CommandLine, server: ContractServer) -> None:
    server.add_job("hello")
    done = detent("job", "trigger", "hello")
    (run_id,) = server.runs
    assert done.out == f"{run_id}\n"
    assert f"detent run wait {run_id}" in done.err


def test_a_trigger_can_wait_for_the_end(detent: CommandLine, server: ContractServer) -> None:
    answer = server.add_run(server.add_job("hello"), "pending")
    server.after_looks[answer["id"]] = ["running", "succeeded"]
    server.next_trigger = answer
    done = detent("job", "trigger", "hello", "--wait")
    assert done.code == 0
    assert ["status", "succeeded"] in done.rows


def test_history_lists_the_runs_of_one_job(inside: Run, server: ContractServer) -> None:
    job = server.add_job("hello")
    dead = server.add_run(job, "dead", error="boom\nbang")
    server.add_run(job, "succeeded")
    server.add_run(server.add_job("other"), "dead")
    done = inside("job", "history", "hello", "--status", "dead")
    assert done.rows == [[dead["id"], "dead", dead["scheduled_at"], "4", "1500", "1", "boom bang"]]


def test_deleting_requires_yes_without_a_terminal(detent: CommandLine, server: ContractServer) -> None:
    server.add_job("hello")
    done = detent("job", "delete", "hello")
    assert done.code == 2
    assert "detent job delete hello --yes" in done.err
    assert server.jobs
    done = detent("job", "delete", "hello", "--yes")
    assert (done.code, done.out, done.err) == (0, "", "Deleted job hello.\n")
    assert not server.jobs


@pytest.mark.parametrize(("typed", "code", "left"), [("n\n", 1, 1), ("y\n", 0, 0)])
def test_deleting_asks_a_person(detent: CommandLine, server: ContractServer, typed: str, code: int, left: int) -> None:
    server.add_job("hello")
    done = detent.on_terminal("job", "delete", "hello", typed=typed)
    assert done.code == code
    assert "Delete job hello? [y/N]" in done.out
    assert len(server.jobs) == left


def test_a_table_fits_its_terminal(detent: CommandLine, server: ContractServer) -> None:
    name = "a-name-that-goes-on-and-on-and-on-and-on-and-on"
    server.add_job(name, next_run_at=stamp(3600 * 5.1), last_run_at=stamp(-185), last_status="dead")
    for width in (80, 120):
        done = detent.on_terminal("job", "list", width=width)
        assert done.code == 0
        header, row = done.lines
        assert header.startswith("NAME") and max(len(header), len(row)) <= width
        assert "in 5 h" in row and "3 min ago" in row and "dead" in row and "…" in row
    assert name in detent.on_terminal("job", "list", width=200).out


def test_a_job_on_a_terminal_shows_words_and_local_times(detent: CommandLine, server: ContractServer) -> None:
    server.add_job(
        "hello", timezone="Asia/Tokyo", next_run_at="2040-01-01T00:00:00Z", schedule={"every": "90m"}, payload={"a": 1}
    )
    done = detent.on_terminal("job", "get", "hello")
    assert "Schedule   every 90m (Every 5 minutes)" in done.lines
    assert any(line.startswith("Next run   2040-01-01 09:00:00 Asia/Tokyo (in ") for line in done.lines)
    assert "Timeout    5 min" in done.lines


def test_colours_are_for_terminals_and_for_those_who_want_them(detent: CommandLine, server: ContractServer) -> None:
    server.add_job("hello")
    assert "\x1b[32m" in detent.on_terminal("job", "list", raw=True).out
    assert "\x1b[32m" not in detent.on_terminal("job", "list", raw=True, NO_COLOR="1").out
    assert "\x1b" not in detent("job", "list").out


def test_what_others_wrote_cannot_drive_the_terminal(detent: CommandLine, server: ContractServer) -> None:
    server.add_job("evil\x1b]0;title\x07\u202ename")
    for done in (detent("job", "list"), detent("job", "get", "evil\x1b]0;title\x07\u202ename")):
        assert "evil\\x1b]0;title\\x07\\u202ename" in done.out
    assert "\x1b]" not in detent.on_terminal("job", "list", raw=True, width=150).out


def test_a_first_list_says_how_to_go_on(detent: CommandLine) -> None:
    done = detent.on_terminal("job", "list")
    assert (done.code, done.lines) == (0, ["There are no jobs yet: create one, see `detent job create --help`."])
    assert detent("job", "list").out == ""
