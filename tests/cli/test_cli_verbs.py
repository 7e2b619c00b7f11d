"""`detent job edit|next|retry`, `run retry`, `dlq …` and `node list` against a real server that runs jobs."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from detent.cli.edits import edited_fields
from tests.cli.command_line import CommandLine
from tests.cli.real_server import RealServer, running
from tests.support.waiting import until_sync

if TYPE_CHECKING:
    from tests.support.postgres import Postgres


@pytest.fixture(scope="module")
def real(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with postgres.database_apart() as url, running(tmp_path_factory.mktemp("server"), url) as server:
        yield server


@pytest.fixture
def detent(real: RealServer, tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path, real.url)


class Sink:
    """A target that refuses with 400, which is not tried again, until it is told to be good."""

    def __init__(self) -> None:
        self.good = False
        self.keys: list[str] = []
        sink = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                sink.keys.append(self.headers["Idempotency-Key"])
                self.send_response(200 if sink.good else 400)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        self._thread = threading.Thread(target=partial(self._server.serve_forever, 0.01))

    def __enter__(self) -> Sink:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def sink() -> Iterator[Sink]:
    with Sink() as running_sink:
        yield running_sink


@pytest.fixture
def job(detent: CommandLine, sink: Sink, request: pytest.FixtureRequest) -> str:
    """A job that ticks once a year, named after its test."""
    name = re.sub(r"\W+", "-", str(request.node.name)).strip("-")
    done = detent("job", "create", name, "--cron", "0 0 1 1 *", "--url", sink.url, "--payload", '{"a": 1}')
    assert done.code == 0, done.err
    return name


def get(detent: CommandLine, job: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(detent("job", "get", job, "--json").out)
    return document


def test_fields_of_a_job_are_changed_and_the_rest_is_kept(detent: CommandLine, job: str) -> None:
    before = get(detent, job)
    done = detent(
        *("job", "edit", job, "--set", "timeout_seconds=1m30s", "--set", "target.method=PUT", "--set", "payload.b=[2]"),
        *("--set", "tags=x, y", "--set", "target.headers.X-Kind=a"),
    )
    assert done.code == 0, done.err
    assert "  timeout_seconds: 300 → 90" in done.err and '  target.method: "POST" → "PUT"' in done.err
    after = get(detent, job)
    assert (after["timeout_seconds"], after["payload"], after["tags"]) == (90, {"a": 1, "b": [2]}, ["x", "y"])
    assert after["target"] == {**before["target"], "method": "PUT", "headers": {"X-Kind": "a"}}
    assert after["revision"] == before["revision"] + 1
    assert after["next_run_at"] == before["next_run_at"]
    again = detent("job", "edit", job, "--set", "timeout_seconds=90")
    assert again.err == f"No change in {job}.\n"
    back = detent("job", "edit", job, "--unset", "timeout_seconds", "--unset", "target.headers.X-Kind", "--json")
    assert json.loads(back.out)["timeout_seconds"] == 300 and get(detent, job)["target"]["headers"] == {}


def test_parts_of_a_target_are_read_by_their_types(detent: CommandLine, job: str) -> None:
    assignments = (
        "host_concurrency=5", "callback.lease_seconds=2.5", 'statuses.success=["2xx",304]', "body=5",
        "headers.X-Number=7", 'headers.X-Text=["a"]', "url=https://example.com/7",
    )  # fmt: skip
    done = detent("job", "edit", job, *(part for one in assignments for part in ("--set", f"target.{one}")))
    assert done.code == 0, done.err
    expected = {
        "host_concurrency": 5, "callback": {"lease_seconds": 2.5}, "statuses": {"success": ["2xx", 304]}, "body": "5",
        "headers": {"X-Number": "7", "X-Text": '["a"]'}, "url": "https://example.com/7",
    }  # fmt: skip
    assert {name: get(detent, job)["target"].get(name) for name in expected} == expected
    done = detent("job", "edit", job, "--set", 'target.callback={"lease_seconds": 5}', "--set", "target.body=[1]")
    assert done.code == 0, done.err
    after = get(detent, job)["target"]
    assert (after["callback"], after["body"]) == ({"lease_seconds": 5}, "[1]")


@pytest.mark.parametrize(
    ("target", "part", "text", "expected"),
    [
        ({"type": "shell"}, "command", '["echo", "a"]', ["echo", "a"]),
        ({"type": "shell"}, "command", "5", "5"),
        ({"type": "shell"}, "env.DEPTH", "5", "5"),
        ({"type": "shell"}, "env.KEY", '{"secret": "key"}', {"secret": "key"}),
        ({"type": "http"}, "tls.client_certificate", '{"secret": "key"}', {"secret": "key"}),
        ({"type": "topic"}, "topic", "[1]", "[1]"),
        ({"type": "topic"}, "key", "7", "7"),
        ({"type": "celery"}, "args", "[1]", [1]),
        ({"type": "celery"}, "kwargs.depth.max", "3", 3),
        ({"type": "celery"}, "ignore_result", "true", True),
        ({"type": "celery"}, "task", "7", "7"),
        ({"type": "http"}, "unknown", "7", "7"),
        ({}, "host_concurrency", "7", 7),
    ],
)
def test_a_part_of_a_target_stays_text_where_it_may_be_text(
    target: dict[str, Any], part: str, text: str, expected: object
) -> None:
    made = edited_fields({"target": target}, [f"target.{part}={text}"], ())["target"]
    for name in part.split("."):
        made = made[name]
    assert made == expected


def test_an_edit_can_be_previewed(detent: CommandLine, job: str) -> None:
    done = detent("job", "edit", job, "--set", "schedule=every 2h", "--dry-run")
    assert done.code == 0 and '  schedule: {"cron": "0 0 1 1 *"} → "every 2h"' in done.err
    assert get(detent, job)["revision"] == 1


def test_an_edit_that_was_overtaken_is_refused(detent: CommandLine, job: str, real: RealServer) -> None:
    with real.client as client:
        found = client.get_job(job)
        client.edit_job(job, {"priority": 9}, revision=found["revision"])
        from detent.errors import Conflict

        with pytest.raises(Conflict, match="revision 2"):
            client.edit_job(job, {"priority": 1}, revision=found["revision"])
    assert get(detent, job)["priority"] == 9


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "nothing to change"),
        (("--set", "priority"), "FIELD=VALUE"),
        (("--set", "priority=many"), "whole number"),
        (("--set", "prioriti=3"), "did you mean priority"),
        (("--set", "queue.x=3"), "only target and payload have parts"),
        (("--unset", "payload.zz"), "has no such part"),
        (("--set", "target.url.x=3"), "is not an object"),
        (("--unset", "target"), "has no default"),
        (("--set", "schedule=61 * * * *"), "outside 0 to 59"),
    ],
)
def test_an_edit_that_cannot_be_meant_is_refused(
    detent: CommandLine, job: str, arguments: tuple[str, ...], words: str
) -> None:
    done = detent("job", "edit", job, *arguments)
    assert done.code == 2 and words in done.err and done.err.count("\n") == 1
    assert get(detent, job)["revision"] == 1


def test_the_next_ticks_are_those_of_the_job(detent: CommandLine, sink: Sink) -> None:
    for name, schedule in (("hashed", "H H * * *"), ("steady", "every 7m")):
        detent("job", "create", name, "--schedule", schedule, "--url", sink.url)
        done = detent("job", "next", name, "--count", "3")
        assert done.code == 0 and len(done.rows) == 3, done.err
        assert done.rows[0][0][:19] == get(detent, name)["next_run_at"][:19]
    document = json.loads(detent("job", "next", "hashed", "--json").out)
    assert len(document["ticks"]) == 5 and document["description"]
    detent("job", "pause", "steady")
    assert "steady is paused" in detent("job", "next", "steady").err
    assert detent("job", "next", "nobody").code == 3
    assert detent("job", "next", "hashed", "--count", "0").code == 2


def test_a_finished_run_is_run_again(detent: CommandLine, job: str, sink: Sink) -> None:
    sink.good = True
    assert detent("job", "retry", job).code == 6
    first = detent("job", "trigger", job, "--wait", "-q").lines[0]
    again = detent("job", "retry", job, "--wait", "--timeout", "30", "--json")
    assert again.code == 0, again.err
    assert json.loads(again.out)["id"] != first and len(set(sink.keys)) == 2
    third = detent("run", "retry", first, "-q")
    assert third.code == 0 and detent("run", "wait", third.lines[0]).code == 0
    assert detent("run", "retry", first, "--timeout", "3s").code == 2
    assert detent("run", "retry", "0192f4c8-8c00-7000-8000-000000000007").code == 3


def test_dead_runs_are_listed_and_brought_back_as_themselves(detent: CommandLine, job: str, sink: Sink) -> None:
    dead = detent("job", "trigger", job, "--wait", "-q")
    assert dead.code == 5
    run = dead.lines[0]
    listed = detent("dlq", "list", "--job", job)
    assert [row[0] for row in listed.rows] == [run] and listed.rows[0][2] == "dead"
    looked = detent("dlq", "redrive", "--job", job, "--dry-run")
    assert looked.err == f"There is 1 dead run of {job}.\n"
    nobody = detent("dlq", "redrive", "--job", job)
    assert nobody.code == 2 and f"detent dlq redrive --job {job} --yes" in nobody.err
    sink.good = True
    done = detent("dlq", "redrive", run)
    assert (done.code, done.out, done.err) == (0, f"{run}\n", "Retried 1 run.\n")
    assert detent("run", "wait", run, "--timeout", "30s").code == 0
    assert len(set(sink.keys)) == 1
    not_dead = detent("dlq", "redrive", run)
    assert not_dead.code == 6 and "is not dead" in not_dead.err
    assert detent("dlq", "redrive", "--job", job, "--yes").err == f"There are no dead runs of {job}.\n"
    assert detent("dlq", "redrive").code == 2


def test_all_dead_runs_of_a_job_are_brought_back_at_a_rate_as_it_has_room(
    detent: CommandLine, job: str, sink: Sink
) -> None:
    runs = [detent("job", "trigger", job, "--wait", "-q").lines[0] for _ in range(3)]
    sink.good = True
    # One lane: a dead run waits while another of its job is under way.
    done = detent("dlq", "redrive", "--job", job, "--rate", "50/s", "--yes")
    assert (done.code, sorted(done.lines)) == (0, sorted(runs)), done.err
    assert detent("dlq", "list", "--job", job, "-q").out == ""
    assert detent("run", "wait", done.lines[-1], "--timeout", "30s").code == 0
    assert len(set(sink.keys)) == 3
    assert detent("dlq", "redrive", "--all", "--rate", "fast", "--yes").code == 2
    assert detent("dlq", "redrive", runs[0], "--rate", "5/s").code == 2


def test_dead_runs_are_reported_by_group_and_discarded(detent: CommandLine, job: str) -> None:
    runs = [detent("job", "trigger", job, "--wait", "-q").lines[0] for _ in range(3)]
    (row,) = detent("dlq", "list", "--group", "--job", job).rows
    group, count, jobs, _, error, sample = row
    assert (count, jobs, sample) == ("3", "1", runs[2])
    assert error.endswith("from <address>")
    assert detent("dlq", "list", "--group", group, "--job", job, "-q").lines == runs[::-1]
    looked = detent("dlq", "discard", "--job", job, "--group", group, "--dry-run")
    assert looked.err == f"There are 3 dead runs of {job} of group {group}.\n"
    asked = detent("dlq", "discard", runs[0])
    assert asked.code == 2 and f"detent dlq discard {runs[0]} --yes" in asked.err
    assert detent("dlq", "discard", runs[0], "--yes").err == "Discarded 1 run.\n"
    assert detent("dlq", "discard", runs[0], "--yes").code == 6
    assert detent("dlq", "discard", "--job", job, "--yes").err == "Discarded 2 runs.\n"
    assert detent("dlq", "list", "--job", job, "-q").out == ""
    assert detent("run", "get", runs[0], "--json").out.count('"discarded"') == 1


def test_past_ticks_are_backfilled(detent: CommandLine, sink: Sink) -> None:
    sink.good = True
    detent("job", "create", "past", "--cron", "0 * * * *", "--url", sink.url)
    stretch = ("2020-03-01T00:00:00Z", "2020-03-01T02:00")
    looked = detent("job", "backfill", "past", *stretch, "--dry-run")
    assert looked.lines == [f"2020-03-01T0{hour}:00:00Z" for hour in range(3)]
    assert "3 ticks from 2020-03-01 00:00:00 UTC to 2020-03-01 02:00:00 UTC of past would run." in looked.err
    asked = detent("job", "backfill", "past", *stretch)
    assert asked.code == 2 and "detent job backfill past 2020-03-01T00:00:00Z 2020-03-01T02:00 --yes" in asked.err
    begun = detent("job", "backfill", "past", *stretch, "--yes", "-q")
    assert (begun.code, begun.out) == (0, "3\n")
    until_sync(lambda: len(set(sink.keys)) == 3, 60, "three runs of the past")
    until_sync(lambda: detent("job", "catchup", "past", "-q").out == "0\n", 30)
    again = detent("job", "backfill", "past", *stretch, "--yes")
    assert again.code == 0 and "No tick (3 left out: they ran, or will run) of past would run." in again.err


def test_what_is_left_of_a_backfill_is_shown_and_dropped(detent: CommandLine, sink: Sink) -> None:
    sink.good = True
    detent("job", "create", "past", "--cron", "0 * * * *", "--url", sink.url)
    detent("job", "pause", "past")
    assert detent("job", "backfill", "past", "2019-03-01", "2019-03-01", "--yes").code == 6
    detent("job", "resume", "past")
    assert detent("job", "backfill", "past", "2019-03-01", "2019-05-31", "--yes").code == 0
    assert json.loads(detent("job", "catchup", "past", "--json").out)["items"][0]["kind"] == "backfill"
    asked = detent("job", "catchup", "past", "--drop")
    assert asked.code == 2 and "detent job catchup past --drop --yes" in asked.err
    assert "Dropped " in detent("job", "catchup", "past", "--drop", "--yes").err
    assert detent("job", "catchup", "past").out == ""
    assert "past has no past ticks to run" in detent.on_terminal("job", "catchup", "past").out
    assert detent("job", "backfill", "past", "someday", "now").code == 2
    assert detent("job", "backfill", "past", "2999-01-01", "2999-01-02").code == 2


def test_nodes_are_listed_with_what_they_lead(detent: CommandLine) -> None:
    until_sync(lambda: detent("node", "list").rows[0][4] == "256", 20)
    (row,) = detent("node", "list").rows
    assert row[1] == "alive" and row[3] == "api, scheduler, worker"
    document = json.loads(detent("node", "list", "--json").out)
    assert len(document["partitions"]) == 256 and len(document["nodes"]) == 1
    seen = detent.on_terminal("node", "list", width=140)
    assert "LEADS" in seen.out and "256" in seen.out and re.search(r" ago\b|\bnow\b", seen.out)


@pytest.mark.parametrize("noun", ["job", "node", "dlq"])
def test_lists_are_watched_only_on_a_terminal(detent: CommandLine, noun: str) -> None:
    done = detent(noun, "list", "--watch")
    assert done.code == 2 and "needs a terminal" in done.err


def test_lists_are_searched(detent: CommandLine, job: str) -> None:
    search: Callable[[str], list[str]] = lambda text: detent("job", "list", "--search", text, "-q").lines  # noqa: E731
    assert search(f"name:{job}") == [get(detent, job)["id"]]
    assert search(f"name:{job} status:paused") == []
    wrong = detent("job", "list", "--search", "colour:blue")
    assert wrong.code == 2 and "no field" in wrong.err
    assert detent("run", "list", "--search", f"job:{job}").out == ""


def test_a_deletion_can_be_previewed(detent: CommandLine, job: str) -> None:
    done = detent("job", "delete", job, "--dry-run")
    assert done.code == 0 and done.err.startswith(f"Would delete job {job}")
    assert detent("job", "get", job).code == 0


# --- ticks and payloads ---


def test_a_skipped_tick_is_marked_and_is_not_the_next_run(detent: CommandLine) -> None:
    detent("job", "create", "nightly", "--cron", "0 2 * * *", "--url", "http://127.0.0.1:9/", "--release", "staggered")
    try:
        first, second = detent("job", "next", "nightly", "--count", "2", "--quiet").out.split()
        detent("job", "skip", "nightly", first)
        lines = detent("job", "next", "nightly", "--count", "2").out.splitlines()
        assert [line.split("\t")[0] for line in lines] == [first, second]
        assert [line.split("\t")[2] for line in lines] == ["skipped", ""]
        assert detent("job", "next", "nightly", "--count", "2", "--quiet").out.split() == [second]
        shown = dict(line.split("\t", 1) for line in detent("job", "get", "nightly").out.splitlines() if "\t" in line)
        assert (shown["next_run_at"], shown["skipped_ticks"], shown["release"]) == (second, first, "staggered")
    finally:
        detent("job", "delete", "nightly", "--yes")


def test_a_payload_schema_is_read_from_a_file_and_refuses_with_exit_code_2(detent: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "schema.json").write_text('{"type": "object", "required": ["to"]}')
    target = ("--url", "http://127.0.0.1:9/")
    detent("job", "create", "post", "--payload-schema", f"@{tmp_path / 'schema.json'}", *target)
    try:
        assert json.loads(detent("job", "get", "post", "--json").out)["payload_schema"]["required"] == ["to"]
        assert "required" in detent("job", "get", "post").out
        refused = detent("task", "run", "post", "--payload", "{}")
        assert refused.code == 2
        assert 'The payload has no "to": add what is missing. (at /payload)' in refused.err
        refused = detent("job", "create", "bad", "--payload-schema", "{", *target)
        assert refused.code == 2
        assert "--payload-schema is not JSON" in refused.err
        detent("job", "edit", "post", "--unset", "payload_schema")
        assert detent("task", "run", "post", "--payload", "{}").code == 0
    finally:
        detent("job", "delete", "post", "--yes")
