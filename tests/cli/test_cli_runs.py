"""`detent run …` as its own process against a server that speaks the contract."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
from collections.abc import Callable

import pytest

from tests.cli.command_line import LIMIT_SECONDS, CommandLine, Finished
from tests.cli.contract_server import ContractServer, problem, stamp

Run = Callable[..., Finished]
ATTEMPT = {"attempt": 1, "token": 7, "node": "aa", "outcome": "failed", "error": "HTTP 500\nfrom the target"}


def test_runs_are_listed_as_lines_ids_or_json(inside: Run, server: ContractServer) -> None:
    run = server.add_run(server.add_job("hello"), "succeeded")
    assert inside("run", "list").rows == [[run["id"], "hello", "succeeded", run["scheduled_at"], "4", "1500", "1", ""]]
    assert inside("run", "list", "-q").lines == [run["id"]]
    assert json.loads(inside("run", "list", "--json").out) == {"items": [run], "next_cursor": None}


def test_the_list_notes_that_a_run_waits_for_its_callback(inside: Run, server: ContractServer) -> None:
    server.add_run(server.add_job("hello"), "running", node="callback:host-1", error=None)
    (row,) = inside("run", "list").rows
    assert row[-1] == "waits for its callback"


def test_runs_are_filtered_by_job_and_by_what_people_call_failed(inside: Run, server: ContractServer) -> None:
    job = server.add_job("hello")
    dead, running = server.add_run(job, "dead"), server.add_run(job, "running")
    server.add_run(job, "succeeded")
    server.add_run(server.add_job("other"), "dead")
    done = inside("run", "list", "--job", "hello", "--status", "failed", "--status", "running", "-q")
    assert done.lines == [dead["id"], running["id"]]


def test_a_run_is_shown_with_its_attempts(detent: CommandLine, server: ContractServer) -> None:
    attempt = {**ATTEMPT, "started_at": "2030-01-01T00:00:00Z", "finished_at": "2030-01-01T00:00:02.500Z"}
    run = server.add_run(server.add_job("hello"), "succeeded", attempts=[attempt], attempt=2, result={"rows": 3})
    done = detent("run", "get", run["id"])
    assert ["result", '{"rows": 3}'] in done.rows
    assert done.rows[-1][:3] == ["attempt", "1", "failed"]
    seen = detent.on_terminal("run", "get", run["id"], TZ="Europe/Berlin")
    assert "ATTEMPT  OUTCOME  STARTED               TOOK  NODE  ERROR" in seen.lines
    assert "      1  failed   2030-01-01 01:00:00  2.5 s  aa    HTTP 500 from the target" in seen.lines
    assert re.search(r"^Scheduled +.* Europe/Berlin \(", seen.out, re.MULTILINE)
    assert re.search(r'^Result +{"rows": 3}', seen.out, re.MULTILINE)
    assert json.loads(detent("run", "get", run["id"], "--json").out) == run


def test_tracebacks_are_shown_by_attempt_and_the_same_one_only_once(
    detent: CommandLine, server: ContractServer
) -> None:
    first, other = 'Traceback:\n  File "a.py"\nKeyError: 1', "Traceback:\nValueError: \x1b[31m2"
    attempts = [
        {**ATTEMPT, "attempt": number, "started_at": None, "finished_at": "2030-01-01T00:00:02Z", "traceback": text}
        for number, text in enumerate((first, first, None, first, other), 1)
    ]
    run = server.add_run(server.add_job("hello"), "dead", attempts=attempts, attempt=5)
    seen = detent.on_terminal("run", "get", run["id"])
    _, _, shown = seen.out.partition("\nTraceback of attempt 1:\n")
    assert shown.splitlines() == [
        *first.splitlines(),
        "",
        "Traceback of attempt 2: as before.",
        "",
        "Traceback of attempt 4: as before.",
        "",
        "Traceback of attempt 5:",
        "Traceback:",
        "ValueError: \\x1b[31m2",
    ]
    assert "KeyError" not in detent("run", "get", run["id"]).out, "in a pipe there is a line for each attempt"


def test_a_run_is_shown_with_its_stored_steps(detent: CommandLine, server: ContractServer) -> None:
    step = {"name": "charge", "attempt": 2, "finished_at": "2030-01-01T00:00:02.500Z", "duration_ms": 1500}
    run = server.add_run(server.add_job("hello"), "dead", steps=[step])
    assert detent("run", "get", run["id"]).rows[-1] == ["step", "charge", "2", "2030-01-01T00:00:02.500Z", "1500"]
    seen = detent.on_terminal("run", "get", run["id"], TZ="Europe/Berlin")
    assert "STEP    ATTEMPT  FINISHED              TOOK" in seen.lines
    assert "charge        2  2030-01-01 01:00:02  1.5 s" in seen.lines


def test_a_table_never_cuts_the_id_of_a_run(detent: CommandLine, server: ContractServer) -> None:
    run = server.add_run(server.add_job("a-rather-long-name-for-a-job"), "dead", error="x" * 300)
    for width in (40, 80, 160):
        assert run["id"] in detent.on_terminal("run", "list", width=width).out


def test_a_range_of_ticks_is_shown_as_one(inside: Run, server: ContractServer) -> None:
    gone = {"reason": "down", "ticks": 12, "until": stamp(-60), "started_at": None, "attempt": None, "token": None}
    server.add_run(server.add_job("hello"), "missed", **gone)
    assert inside("run", "list").rows[0][-1] == "12 ticks: down"


def test_waiting_ends_with_the_run(detent: CommandLine, server: ContractServer) -> None:
    run = server.add_run(server.add_job("hello"), "pending")
    server.after_looks[run["id"]] = ["pending", "running", "retrying", "succeeded"]
    done = detent("run", "wait", run["id"])
    assert (done.code, done.err) == (0, "")
    assert ["status", "succeeded"] in done.rows


@pytest.mark.parametrize("status", ["dead", "cancelled"])
def test_waiting_for_a_run_that_does_not_succeed_is_exit_code_5(
    inside: Run, server: ContractServer, status: str
) -> None:
    run = server.add_run(server.add_job("hello"), status, error="HTTP 500\nfrom the target")
    done = inside("run", "wait", run["id"])
    assert done.code == 5
    assert done.err == f"error: Run {run['id']} of hello ended {status}: HTTP 500 from the target\n"


def test_waiting_too_long_is_exit_code_124(detent: CommandLine, server: ContractServer) -> None:
    run = server.add_run(server.add_job("hello"), "running")
    done = detent("run", "wait", run["id"], "--timeout", "100ms")
    assert (done.code, done.out) == (124, "")
    assert done.err == f"error: Run {run['id']} is still running after 0.1 s.\n"


NOBODY = "No worker has the function 'resize': start one with `detent worker --app MODULE:app`."


def test_waiting_says_once_what_the_run_waits_for(detent: CommandLine, server: ContractServer) -> None:
    run = server.add_run(server.add_job("hello"), "pending", waiting_for=NOBODY)
    done = detent("run", "wait", run["id"], "--timeout", "2500ms")
    assert done.code == 124
    assert done.err.splitlines()[0] == f"Run {run['id']} is pending. {NOBODY}"
    assert done.err.count("No worker has") == 1


def test_a_run_that_starts_at_once_is_waited_for_in_silence(detent: CommandLine, server: ContractServer) -> None:
    run = server.add_run(server.add_job("hello"), "pending", waiting_for=NOBODY)
    server.after_looks[run["id"]] = ["pending", "running", "succeeded"]
    assert detent("run", "wait", run["id"]).err == ""


def test_a_run_that_waits_shows_for_what(inside: Run, server: ContractServer) -> None:
    run = server.add_run(server.add_job("hello"), "pending", waiting_for=NOBODY)
    assert ["waiting_for", NOBODY] in inside("run", "get", run["id"]).rows


def test_cancelling_needs_a_yes_and_an_open_run(inside: Run, server: ContractServer) -> None:
    run = server.add_run(server.add_job("hello"), "running")
    assert inside("run", "cancel", run["id"]).code == 2
    assert run["status"] == "running"
    done = inside("run", "cancel", run["id"], "--yes")
    assert (done.code, done.err) == (0, f"Run {run['id']} is cancelled.\n")
    assert inside("run", "cancel", run["id"], "--yes").code == 6


def test_watching_draws_until_ctrl_c_and_survives_a_server_that_is_away(
    detent: CommandLine, server: ContractServer
) -> None:
    run = server.add_run(server.add_job("hello"), "running")
    ours, theirs = pty.openpty()
    process = detent.start("run", "list", "--watch", stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    _read_until(ours, run["id"])
    server.answers.append(problem(503, "The database is away."))
    _read_until(ours, "The database is away.")
    process.send_signal(signal.SIGINT)
    assert process.wait(LIMIT_SECONDS) == 130
    os.close(ours)


def test_watching_needs_a_terminal(detent: CommandLine) -> None:
    done = detent("run", "list", "--watch")
    assert (done.code, done.err) == (2, "error: --watch needs a terminal and no --json or --quiet: leave it out.\n")


def test_ctrl_c_while_waiting_is_quiet(detent: CommandLine, server: ContractServer) -> None:
    run = server.add_run(server.add_job("hello"), "running")
    process = detent.start("run", "wait", run["id"], stderr=subprocess.STDOUT)
    server.wait_for_requests(1)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=LIMIT_SECONDS)
    assert (process.returncode, out) == (130, b"")


def _read_until(descriptor: int, text: str) -> None:
    seen = b""
    while text.encode() not in seen:
        seen += os.read(descriptor, 65536)
