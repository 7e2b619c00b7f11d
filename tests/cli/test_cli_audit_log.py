"""`detent audit-log …` against a real server: list, export and verify."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from detent.store import Store
from tests.cli.command_line import CommandLine
from tests.cli.test_cli_keys import serving


async def chain_all(store: Store) -> None:
    while await store.audit_log.extend_chain():
        pass


@pytest.fixture
def served(detent: CommandLine, database_url: str) -> Iterator[CommandLine]:
    """A server that does not schedule, so that events are chained when the test says so."""
    with serving(detent, "--database-url", database_url) as (pointed_at_it, _):
        yield pointed_at_it


@pytest.fixture
async def changed(served: CommandLine, store: Store) -> CommandLine:
    """Four changes, all of them chained."""
    for name in ("a", "b"):
        made = served("job", "create", name, "--every", "1h", "--url", "http://127.0.0.1:9/")
        assert made.code == 0, made.err
    assert served("job", "pause", "a", "--reason", "moving").code == 0
    assert served("job", "delete", "b", "--yes").code == 0
    await chain_all(store)
    return served


def actions(out: str) -> list[str]:
    return [line.split("\t")[3] for line in out.splitlines()]


async def test_events_are_listed_newest_first_and_found_by_what_is_asked(changed: CommandLine) -> None:
    listed = changed("audit-log", "list")
    assert actions(listed.out) == ["job.delete", "job.pause", "job.create", "job.create"]
    assert actions(changed("audit-log", "list", "--object", "a").out) == ["job.pause", "job.create"]
    assert actions(changed("audit-log", "list", "--action", "job.d", "--since", "1h").out) == ["job.delete"]
    assert changed("audit-log", "list", "--since", "2100-01-01T00:00:00Z").out == ""
    pause = json.loads(changed("audit-log", "list", "--action", "job.pause", "--json").out)["items"][0]
    assert (pause["before"], pause["after"]) == ({"status": "active"}, {"status": "paused", "reason": "moving"})
    assert pause["actor"] == {"kind": "local", "id": None, "name": "local, no key"}


async def test_an_intact_log_is_verified_and_its_head_is_printed(changed: CommandLine) -> None:
    done = changed("audit-log", "verify")
    assert (done.code, done.out) == (0, "")
    assert "is intact: 4 events, head 4:" in done.err
    head = json.loads(changed("audit-log", "verify", "--json").out)["head"]
    assert changed("audit-log", "verify", "--expect", head).code == 0
    other = changed("audit-log", "verify", "--expect", f"4:{'0' * 64}")
    assert other.code == 1 and "another hash than expected" in other.out


async def test_an_altered_event_is_named_by_its_number(changed: CommandLine, sql: Any) -> None:
    number = await sql.fetchval("UPDATE audit_events SET actor_name = 'eve' WHERE position = 3 RETURNING id")
    done = changed("audit-log", "verify")
    assert done.code == 1
    assert done.out == f"Event {number} at position 3 was altered: it no longer fits its hash.\n"
    assert "not intact: 1 fault in 4 events" in done.err


async def test_an_export_is_verified_later_without_a_server(changed: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    file.write_text(changed("audit-log", "export").out)
    alone = CommandLine(changed.folder, "http://127.0.0.1:1")
    assert alone("audit-log", "verify", str(file)).code == 0
    lines = file.read_text().splitlines()
    assert [json.loads(line)["position"] for line in lines] == [1, 2, 3, 4]
    file.write_text("\n".join([lines[0], lines[1].replace('"b"', '"c"'), lines[2], ""]))
    altered = alone("audit-log", "verify", str(file))
    assert altered.code == 1 and "at position 2 was altered" in altered.out
    file.write_text("\n".join([lines[0], *lines[2:]]))
    assert alone("audit-log", "verify", str(file)).out == "Event at position 2 was removed.\n"
    assert changed("audit-log", "export", "--after", "3").out.splitlines() == lines[3:]


async def test_events_that_are_not_chained_yet_are_counted(changed: CommandLine) -> None:
    assert changed("job", "resume", "a").code == 0
    done = changed("audit-log", "verify")
    assert done.code == 0 and "Not chained yet: 1 event" in done.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("verify", "--expect", "what"), "POSITION:HASH"),
        (("verify", "no-such-file"), "No such file"),
        (("export", "--after", "x"), "--after is 'x'"),
        (("list", "--since", "someday"), "--since is 'someday'"),
    ],
)
def test_wrong_usage_gets_one_sentence(detent: CommandLine, arguments: tuple[str, ...], said: str) -> None:
    done = detent("audit-log", *arguments)
    assert done.code == 2 and said in done.err


def test_a_file_that_is_no_export_is_refused_with_its_line(detent: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "other.jsonl"
    file.write_text('{"id": 1}\n')
    done = detent("audit-log", "verify", str(file))
    assert done.code == 2 and "Line 1 of" in done.err and done.err.count("\n") == 1


async def test_a_command_that_writes_to_the_database_directly_is_recorded_with_its_user(
    detent: CommandLine, database_url: str, sql: Any
) -> None:
    assert detent("key", "create", "--local", "--scope", "admin", "--database-url", database_url, "-q").code == 0
    event = await sql.fetchrow("SELECT * FROM audit_events")
    assert (event["action"], event["actor_kind"], event["actor_name"]) == (
        "key.create",
        "command",
        "detent key create --local",
    )
    assert event["address"] == socket.gethostname() and event["actor_id"]
