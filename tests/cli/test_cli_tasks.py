"""`detent task run|list` and `detent tenant grant-enqueue|revoke-enqueue` against a real server that runs tasks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.command_line import CommandLine, Finished
from tests.cli.real_server import running
from tests.cli.test_cli_verbs import Sink
from tests.support.postgres import RUNTIME_ROLE

if TYPE_CHECKING:
    from tests.support.postgres import Postgres


@pytest.fixture(scope="module")
def detent(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    folder: Path = tmp_path_factory.mktemp("server")
    with postgres.database_apart() as url, running(folder, url) as server, Sink() as sink:
        sink.good = True
        line = CommandLine(folder, server.url)
        good(line("job", "create", "mail", "--task", "--url", sink.url))
        good(line("job", "create", "idle", "--task", "--url", sink.url, "--queue", "nobody"))
        good(line("job", "pause", "idle"))
        yield line


def good(done: Finished) -> Finished:
    assert done.code == 0, done
    return done


def told(detent: CommandLine, *arguments: str) -> Any:
    return json.loads(good(detent(*arguments, "--json")).out)


def test_a_run_is_enqueued_and_waited_for(detent: CommandLine) -> None:
    done = good(detent("task", "run", "mail", "--payload", '{"to": "ada"}', "--wait", "--timeout", "30s"))
    assert done.err.startswith("Enqueued mail: `detent run wait ")
    shown = dict(done.rows[:3])
    assert (shown["job"], shown["status"]) == ("mail", "succeeded")


def test_a_run_is_enqueued_for_later_with_all_that_it_is_given(detent: CommandLine) -> None:
    done = good(detent("task", "run", "idle", "--in", "10m", "--priority", "-7", "--queue", "q", "--unique-key", "a"))
    assert done.err.startswith("Enqueued idle, due in 10 min: ")
    (run,) = done.lines
    again = good(detent("task", "run", "idle", "--unique-key", "a", "--unique-for", "1h", "--concurrency-key", "k"))
    assert again.err == f"Nothing enqueued: run {run} (pending) has the unique key.\n"
    assert again.lines == [run]
    later = told(detent, "task", "run", "idle", "--at", "2h")
    assert (
        later["created"]
        and (datetime.fromisoformat(later["scheduled_at"]) - datetime.now().astimezone()).seconds > 7000
    )
    assert told(detent, "run", "get", later["id"])["status"] == "pending"


def test_the_runs_of_a_file_are_enqueued_together(detent: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    file.write_text("".join(json.dumps({"payload": n, "unique_key": f"file-{n % 4}"}) + "\n\n" for n in range(6)))
    done = good(detent("task", "run", "idle", "--file", str(file)))
    assert done.err == "Enqueued 4 runs of idle; 2 had a run with their unique key already.\n"
    assert len(done.lines) == 6 and len(set(done.lines)) == 4
    items = json.loads(good(detent("task", "run", "idle", "-f", "-", "--json", stdin="{}\n{}")).out)["items"]
    assert [item["created"] for item in items] == [True, True]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("mail", "--in", "soon"), 2, "--in is 'soon'"),
        (("mail", "--in", "5m", "--at", "2030-01-01"), 2, "--in and --at are both given"),
        (("mail", "--priority", "101"), 2, "between -100 and 100"),
        (("mail", "--unique-for", "1h"), 2, "without --unique-key"),
        (("mail", "--in", "400d"), 2, "delay_seconds is 34560000"),
        (("mail", "--unique-key", "k" * 201), 2, "1 to 200 characters"),
        (("mail", "--payload", "{"), 2, "--payload is not JSON"),
        (("mail", "--file", "-", "--in", "5m"), 2, "--file and --in are both given"),
        (("mail", "--file", "-", "--wait"), 2, "--file and --wait are both given"),
        (("mail", "--file", "-"), 2, "has no run"),
        (("mail", "--file", "nowhere.jsonl"), 2, "nowhere.jsonl, which cannot be read"),
        (("mail", "--timeout", "5s"), 2, "without --wait"),
        (("nobody",), 3, "There is no task or job 'nobody'"),
    ],
)
def test_a_mistake_is_reported(detent: CommandLine, arguments: tuple[str, ...], code: int, words: str) -> None:
    done = detent("task", "run", *arguments)
    assert done.code == code and words in done.err, done


@pytest.mark.parametrize(
    ("line", "words"), [("{", "Line 2 of stdin is not JSON"), ("3", "is not an object"), ('{"a": 1}', "has no field")]
)
def test_a_wrong_line_of_a_file_is_named_and_nothing_is_enqueued(detent: CommandLine, line: str, words: str) -> None:
    before = told(detent, "task", "list")
    done = detent("task", "run", "idle", "--file", "-", stdin=f"{{}}\n{line}\n")
    assert done.code == 2 and words in done.err, done
    assert told(detent, "task", "list")["items"][1]["pending"] == before["items"][1]["pending"]


def test_tasks_are_listed(detent: CommandLine) -> None:
    good(detent("job", "create", "listed", "--task", "--url", "http://127.0.0.1:9/"))
    good(detent("job", "pause", "listed"))
    good(detent("task", "run", "listed"))
    good(detent("task", "run", "listed", "--in", "1h"))
    rows = {row[0]: row for row in good(detent("task", "list")).rows}
    assert rows["listed"][1:7] == ["paused", "2", "1", "1", "0", "0"]
    assert "listed" in good(detent("task", "list", "-q")).lines
    assert "PENDING" in good(detent.on_terminal("task", "list")).out


def test_a_trigger_of_a_task_and_an_enqueue_of_a_job_are_the_same_kind_of_run(detent: CommandLine) -> None:
    good(detent("job", "create", "yearly", "--cron", "0 0 1 1 *", "--url", "http://127.0.0.1:9/", "--queue", "nobody"))
    (run,) = good(detent("task", "run", "yearly")).lines
    assert told(detent, "run", "get", run)["status"] == "pending"
    (triggered,) = good(detent("job", "trigger", "idle", "--if-busy", "refuse")).lines
    assert told(detent, "run", "get", triggered)["status"] == "pending"


def test_a_database_role_is_granted_to_enqueue(detent: CommandLine) -> None:
    assert good(detent("tenant", "enqueue-grants", "default")).lines == []
    done = good(detent("tenant", "grant-enqueue", "default", RUNTIME_ROLE))
    assert done.err == f"The database role {RUNTIME_ROLE} may enqueue runs of default.\n"
    assert good(detent("tenant", "enqueue-grants", "default", "-q")).lines == [RUNTIME_ROLE]
    good(detent("tenant", "revoke-enqueue", "default", RUNTIME_ROLE))
    assert good(detent("tenant", "enqueue-grants", "default")).lines == []
    again = detent("tenant", "revoke-enqueue", "default", RUNTIME_ROLE)
    assert again.code == 3 and "there is nothing to revoke" in again.err
    unknown = detent("tenant", "grant-enqueue", "default", "nobody")
    assert unknown.code == 3 and "The database server has no role 'nobody'" in unknown.err
