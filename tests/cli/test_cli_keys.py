"""`detent key …` and `detent tenant …`, against real servers that others can reach."""

from __future__ import annotations

import contextlib
import json
import re
import signal
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import click
import pytest

from detent.cli.root import root
from tests.cli.command_line import LIMIT_SECONDS, CommandLine

KEY = re.compile(r"dtn_[a-z2-7]{10}_[a-z2-7]{52}")
LISTENING = re.compile(rb"listening on (http://\S+)")


@contextlib.contextmanager
def serving(detent: CommandLine, *arguments: str) -> Iterator[tuple[CommandLine, int]]:
    """A server of its own, the command line pointed at it, and the server's process id."""
    process = detent.start("api", "--port", "0", *arguments)
    assert process.stderr is not None
    try:
        seen = b""
        while not (found := LISTENING.search(seen)):
            line = process.stderr.readline()
            assert line, seen.decode()
            seen += line
        url = found[1].decode().replace("0.0.0.0", "127.0.0.1")
        yield CommandLine(detent.folder, url), process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=LIMIT_SECONDS)
        assert not KEY.search((out + err).decode())


@pytest.fixture
def database(database_url: str) -> tuple[str, str]:
    return ("--database-url", database_url)


def first_key(detent: CommandLine, *arguments: str) -> str:
    done = detent("key", "create", "--local", "-q", *arguments)
    assert done.code == 0, done.err
    assert KEY.fullmatch(done.out.strip())
    return done.out.strip()


def test_a_server_that_others_can_reach_asks_for_the_first_key(detent: CommandLine, database: tuple[str, str]) -> None:
    for command in ("serve", "api"):
        done = detent(command, "--host", "0.0.0.0", "--port", "0", *database)
        assert (done.code, done.out) == (2, "")
        assert done.err.count("\n") == 1 and "`detent key create --local --scope admin`" in done.err
    required = detent("serve", "--require-keys", "--port", "0", *database)
    assert (required.code, required.out) == (2, "")
    assert required.err.count("\n") == 1 and "`detent key create --local --scope admin`" in required.err
    first_key(detent, "--scope", "admin", *database)
    with serving(detent, "--host", "0.0.0.0", *database) as (reached, _):
        assert reached("version", "--server").code == 0


def test_the_first_key_is_said_to_end_access_without_one_and_the_refusal_says_what_to_do(
    detent: CommandLine, database: tuple[str, str]
) -> None:
    with serving(detent, *database) as (reached, _):
        assert reached("job", "list").code == 0
        refused = reached("key", "create", "--scope", "work")
        assert refused.code == 2 and "first key must have the scope admin" in refused.err
        made = reached("key", "create", "--scope", "admin")
        assert made.code == 0 and "from now on every request needs a key" in made.err
        assert "DETENT_API_KEY" in made.err and "detent context add" in made.err
        refused = reached("job", "list")
        assert (refused.code, refused.out) == (4, "") and refused.err.count("\n") == 1
        assert "DETENT_API_KEY" in refused.err and "detent context add" in refused.err
        reached.environ["DETENT_API_KEY"] = made.out.strip()
        assert reached("job", "list").code == 0
        assert "first key" not in reached("key", "create", "--scope", "work").err


def test_a_demo_is_not_for_others(detent: CommandLine) -> None:
    done = detent("serve", "--demo", "--host", "0.0.0.0")
    assert done.code == 2 and "--demo" in done.err


def test_the_key_is_the_data_and_all_else_is_talk(detent: CommandLine, database: tuple[str, str]) -> None:
    done = detent("key", "create", "--local", "--scope", "write", "--expires", "90d", *database)
    assert done.code == 0
    assert KEY.fullmatch(done.out.removesuffix("\n"))
    assert not KEY.search(done.err)
    assert "write" in done.err and "not shown again" in done.err
    quiet = detent("key", "create", "--local", "-q", *database)
    assert KEY.fullmatch(quiet.out.removesuffix("\n")) and quiet.err == ""
    document = json.loads(detent("key", "create", "--local", "--json", "--name", "mine", *database).out)
    assert KEY.fullmatch(document["key"])
    assert (document["scope"], document["name"], document["tenant"]) == ("read", "mine", "default")
    assert document["created_by"] is None and document["created_at"].endswith("Z")


@pytest.mark.parametrize(
    ("text", "days"), [("90d", 90), ("+90d", 90), ("in 90 days", 90), ("2101-01-31T00:00:00Z", None)]
)
def test_a_key_expires_when_people_say_so(
    detent: CommandLine, database: tuple[str, str], text: str, days: int | None
) -> None:
    document = json.loads(detent("key", "create", "--local", "--json", "--expires", text, *database).out)
    created, expires = map(datetime.fromisoformat, (document["created_at"], document["expires_at"]))
    if days is None:
        assert abs(expires - datetime.fromisoformat(text)) < timedelta(seconds=5)
    else:
        assert expires - created == timedelta(days=days)


def test_keys_are_made_listed_and_revoked_through_the_server(detent: CommandLine, database: tuple[str, str]) -> None:
    admin = first_key(detent, "--scope", "admin", *database)
    with serving(detent, "--host", "0.0.0.0", *database) as (reached, _):
        refused = reached("job", "list")
        assert (refused.code, refused.out) == (4, "") and "DETENT_API_KEY" in refused.err
        reached.environ["DETENT_API_KEY"] = admin
        made = json.loads(reached("key", "create", "--scope", "operate", "--name", "deploys", "--json").out)
        rows = {row[0]: row for row in reached("key", "list").rows}
        assert rows[made["id"]][1:4] == ["deploys", "operate", "active"]
        assert rows[made["id"]][-1] == admin.split("_")[1]
        less = {"DETENT_API_KEY": made["key"]}
        assert reached("job", "list", **less).code == 0
        refused = reached("job", "create", "j", "--every", "1h", "--url", "http://127.0.0.1:9/", **less)
        assert refused.code == 4 and "this needs write" in refused.err
        assert reached("key", "revoke", made["id"]).code == 2  # not a terminal: it cannot be confirmed
        assert reached("key", "revoke", made["id"], "--yes").err == f"Revoked key {made['id']}.\n"
        refused = reached("job", "list", **less)
        assert refused.code == 4 and made["key"] not in refused.err
        assert reached("key", "revoke", "aaaaaaaaaa", "--yes").code == 3
        seen = reached.on_terminal("key", "list", width=80)
        assert "revoked" in seen.out and not KEY.search(seen.out)


def test_a_key_is_read_from_the_environment_or_a_file_and_is_in_no_process_list(
    detent: CommandLine, database: tuple[str, str]
) -> None:
    admin = first_key(detent, "--scope", "admin", *database)
    (detent.folder / "key").write_text(f"{admin}\n")
    with serving(detent, "--host", "0.0.0.0", *database) as (reached, pid):
        assert reached("job", "list", DETENT_API_KEY_FILE="key").code == 0
        watching = reached.start("run", "list", "--json", env=reached.environ | {"DETENT_API_KEY": admin})
        for process in (pid, watching.pid):
            assert admin not in Path(f"/proc/{process}/cmdline").read_text()
        watching.communicate(timeout=LIMIT_SECONDS)
        assert watching.returncode == 0


def test_no_command_takes_a_key_as_a_flag() -> None:
    def options(command: click.Command) -> Iterator[str]:
        for parameter in command.params:
            yield from parameter.opts if isinstance(parameter, click.Option) else ()
        for inner in command.commands.values() if isinstance(command, click.Group) else ():
            yield from options(inner)

    assert not [name for name in options(root) if "api-key" in name or name in ("--key", "--secret", "--token")]


def test_tenants_and_their_keys(detent: CommandLine, database: tuple[str, str]) -> None:
    admin = first_key(detent, "--scope", "admin", *database)
    done = detent("key", "create", "--local", "--tenant", "shop", *database)
    assert done.code == 2 and "`detent tenant create shop`" in done.err
    with serving(detent, "--host", "0.0.0.0", *database) as (reached, _):
        reached.environ["DETENT_API_KEY"] = admin
        assert reached("tenant", "create", "shop", "-q").lines == ["shop"]
        assert reached("tenant", "create", "shop").code == 6
        assert reached("tenant", "list", "-q").lines == ["default", "shop"]
        key = reached("key", "create", "--tenant", "shop", "--scope", "write", "-q").out.strip()
        assert len(reached("key", "list", "--tenant", "shop").rows) == 1
        for owner in ({"DETENT_API_KEY": key}, {}):
            made = reached("job", "create", "same", "--every", "1h", "--url", "http://127.0.0.1:9/", **owner)
            assert made.code == 0, made.err
            assert len(reached("job", "list", "-q", **owner).lines) == 1
        assert reached("tenant", "list", DETENT_API_KEY=key).code == 4
    assert detent("key", "create", "--local", "--tenant", "shop", *database).code == 0


def test_the_first_key_is_made_in_an_embedded_database_whether_it_runs_or_not(detent: CommandLine) -> None:
    where = ("--data-dir", "data")
    admin = first_key(detent, "--scope", "admin", *where)
    with serving(detent, "--host", "0.0.0.0", *where) as (reached, _):
        for key in (admin, first_key(detent, *where)):
            assert reached("job", "list", DETENT_API_KEY=key).code == 0


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--expires", "soon", "--local"), "--expires"),
        (("--expires", "0", "--local"), "--expires"),
        (("--expires", "1h ago", "--local"), "--expires"),
        (("--data-dir", "data"), "--local"),
        (("--scope", "all"), "--scope"),
    ],
)
def test_wrong_usage_is_one_sentence(detent: CommandLine, arguments: tuple[str, ...], word: str) -> None:
    done = detent("key", "create", *arguments)
    assert (done.code, done.out) == (2, "")
    assert word in done.err and done.err.count("\n") == 1


def test_a_database_that_is_not_migrated_is_refused_with_the_reason(
    detent: CommandLine, empty_database_url: str
) -> None:
    done = detent("key", "create", "--local", "--database-url", empty_database_url)
    assert (done.code, done.out) == (7, "") and "detent db migrate" in done.err
