"""What the command line says and returns when something is wrong: one line, the right code, never a traceback."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import pytest

from tests.cli.command_line import LIMIT_SECONDS, CommandLine, Finished
from tests.cli.contract_server import Answer, ContractServer, good, problem

Run = Callable[..., Finished]

SCHEDULES = "give exactly one of --cron, --every, --at, --rrule, --schedule or --task."
TARGETS = "give exactly one of --url, --shell, --python, --topic-url or --celery."


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("job create a --task --every 1h --url u", f"--every and --task are both given: {SCHEDULES}"),
        (
            "job create a --url u --concurrency-rate fast",
            "--concurrency-rate is 'fast': give a number, such as 5 or 0.5.",
        ),
        ("job create a --cron c --every e --url u", f"--cron and --every are both given: {SCHEDULES}"),
        ("job create a --cron c", f"The job has no target: {TARGETS}"),
        ("job create a --cron c --url u --shell s", f"--url and --shell are both given: {TARGETS}"),
        ("job lst", "No such command 'lst'. Did you mean 'list'? See 'detent job --help'."),
        ("task enqueue a", "No such command 'enqueue'. Did you mean 'run'? See 'detent task --help'."),
        ("job run a", "No such command 'run'. Did you mean 'trigger'? See 'detent job --help'."),
        ("run wait", "Missing argument 'RUN'. See 'detent run wait --help'."),
        ("job list --jsn", "No such option '--jsn'. Did you mean '--json'? See 'detent job list --help'."),
        ("job create a --owner x", "No such option '--owner'. See 'detent job create --help'."),
        ("run list --tag x", "No such option '--tag'. See 'detent run list --help'."),
        ("job create a --window x", "No such option '--window'. Did you mean '--missed-window'?"),
        ("job delete a b", "Got unexpected extra argument (b). See 'detent job delete --help'."),
        ("job list --json -q", "--json and --quiet are both given: give one of the two."),
        ("job list --limit 0", "--limit is '0': give a whole number of at least 1."),
        ("job trigger a --timeout 5m", "--timeout is given without --wait: it limits the wait."),
        ("serve --port abc", "--port is 'abc': give a port number between 0 and 65535."),
        ("worker --queue a,,b", "--queues is ('a,,b',): give one or more queue names"),
        ("--config nowhere.toml job list", "The settings file"),
        ("job list --api-url nowhere", "--api-url is 'nowhere': give an address such as"),
        ("cron explain x", "'x' has 1 field"),
        ("cron explain @daily --next 0", "--next is '0': give a whole number between 1 and 1000."),
        (
            "cron explain @daily --from someday",
            "--from is 'someday': give a time such as now, 10m, 2h ago, tomorrow 09:00 or 2030-01-31T12:00:00Z.",
        ),
    ],
)
def test_wrong_usage_is_one_sentence_and_exit_code_2(inside: Run, line: str, sentence: str) -> None:
    done = inside(*line.split())
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"error: {sentence}")
    assert done.err.count("\n") == 1


def test_without_a_server_the_exit_code_is_7(detent: CommandLine) -> None:
    for arguments in (
        ("job", "list", "--api-url", "http://127.0.0.1:1"),
        ("--api-url", "http://127.0.0.1:1", "job", "list"),
    ):
        done = detent(*arguments)
        assert (done.code, done.out) == (7, "")
        assert done.err == (
            "error: No detent server answers at http://127.0.0.1:1: "
            "start one with `detent serve`, or set DETENT_API_URL.\n"
        )


@pytest.mark.parametrize(("status", "code"), [(401, 4), (403, 4), (409, 6), (500, 1), (503, 7)])
def test_a_refusal_becomes_its_exit_code(inside: Run, server: ContractServer, status: int, code: int) -> None:
    server.answers.append(problem(status, "Because of this."))
    done = inside("job", "list")
    assert done.code == code
    assert done.err.startswith("error: Because of this.")


def test_no_error_of_a_target_reaches_the_terminal_raw(detent: CommandLine, server: ContractServer) -> None:
    server.answers.append(problem(409, "evil\x1b[2J\nsecond line"))
    assert detent("job", "list").err == "error: evil\\x1b[2J second line\n"


def test_an_unexpected_error_is_one_line_unless_asked_for_more(detent: CommandLine, server: ContractServer) -> None:
    broken = good({"items": [{"name": "half a job"}], "next_cursor": None})
    server.answers += [broken, broken]
    done = detent("job", "list")
    assert done.code == 1
    assert done.err == ("error: Internal error (KeyError: 'status'): set DETENT_DEBUG=1 for a traceback.\n")
    assert "Traceback (most recent call last)" in detent("job", "list", DETENT_DEBUG="1").err


def test_a_reader_that_goes_away_is_no_error(detent: CommandLine, server: ContractServer) -> None:
    for number in range(2000):
        server.add_job(f"job-{number}", payload="x" * 100)
    process = detent.start("job", "list", "--limit", "2000", "--json")
    assert process.stdout is not None and process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    with process.stderr as errors:
        assert errors.read() == b""
    assert process.wait(LIMIT_SECONDS) == 141


def test_a_closed_stdout_is_no_error(detent: CommandLine) -> None:
    command = ["sh", "-c", 'exec "$@" >&-', "sh", *detent.command("job", "list")]
    done = subprocess.run(
        command, cwd=detent.folder, env=detent.environ, stderr=subprocess.PIPE, timeout=LIMIT_SECONDS, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_the_key_comes_from_the_environment(detent: CommandLine, server: ContractServer) -> None:
    detent("job", "list", DETENT_API_KEY="k-123")
    assert server.requests[0].headers["Authorization"] == "Bearer k-123"


def test_the_address_comes_from_the_settings_file_too(detent: CommandLine, server: ContractServer) -> None:
    (detent.folder / "other.toml").write_text(f'api_url = "{server.url}"\n')
    assert detent("job", "list", "--config", "other.toml", DETENT_API_URL="").code == 0


def test_text_that_is_no_utf_8_is_shown_somehow(detent: CommandLine, server: ContractServer) -> None:
    job = server.add_job("half \ud800 of a pair")
    answer = Answer(200, json.dumps({"items": [job], "next_cursor": None}).encode())
    server.answers += [answer, answer, answer]
    assert json.loads(detent("job", "list", "--json").out)["items"] == [job]
    assert detent("job", "list").rows[0][0] == "half \\ud800 of a pair"
    assert detent("job", "list", PYTHONIOENCODING="ascii").code == 0
