"""`detent role`, against a real server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.command_line import CommandLine
from tests.cli.real_server import running

if TYPE_CHECKING:
    from tests.support.postgres import Postgres


@pytest.fixture(scope="module")
def detent(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    folder: Path = tmp_path_factory.mktemp("server")
    with postgres.database_apart() as url, running(folder, url) as server:
        line = CommandLine(folder, server.url)
        line.environ["DETENT_API_KEY"] = good(line, "key", "create", "--scope", "admin", "-q").strip()
        yield line


def good(detent: CommandLine, *arguments: str) -> str:
    done = detent(*arguments)
    assert done.code == 0, done.err
    return str(done.out)


def told(detent: CommandLine, *arguments: str) -> Any:
    return json.loads(good(detent, *arguments, "--json"))


def test_roles_are_bound_listed_and_taken_away(detent: CommandLine) -> None:
    bound = told(detent, "role", "bind", "user", "ada@example.com", "editor", "--queue", "mail")
    assert (bound["tenant"], bound["role"], bound["queue"], bound["tag"]) == ("default", "editor", "mail", None)
    again = detent("role", "bind", "user", "ada@example.com", "editor", "--queue", "mail")
    assert again.code == 6
    assert "has this role already" in again.err
    (row,) = detent("role", "list").rows
    assert row[:4] == [str(bound["id"]), "user ada@example.com", "editor", "mail"]
    good(detent, "role", "unbind", str(bound["id"]), "--yes")
    assert told(detent, "role", "list")["items"] == []
    assert detent("role", "unbind", str(bound["id"]), "--yes").code == 3


def test_a_bound_key_does_what_its_roles_say(detent: CommandLine) -> None:
    made = told(detent, "key", "create", "--scope", "bound")
    good(detent, "role", "bind", "key", made["id"], "editor", "--tag", "mine")
    admin, detent.environ["DETENT_API_KEY"] = detent.environ["DETENT_API_KEY"], made["key"]
    try:
        good(detent, "job", "create", "mine", "--every", "1h", "--url", "http://127.0.0.1:9/", "--tag", "mine")
        other = detent("job", "create", "other", "--every", "1h", "--url", "http://127.0.0.1:9/")
        assert other.code == 4
        assert "limited to the tag 'mine'" in other.err
        assert detent("key", "list").code == 4
    finally:
        detent.environ["DETENT_API_KEY"] = admin


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("bind", "user", "ada", "admin", "--queue", "mail"), "The role admin is about the whole tenant"),
        (("bind", "key", "aaaaaaaaaa", "viewer"), "There is no key 'aaaaaaaaaa' in this tenant"),
        (("bind", "user", "ada", "owner"), "owner"),
        (("unbind", "seven", "--yes"), "give a number"),
    ],
    ids=lambda value: value if isinstance(value, str) else value[0],
)
def test_wrong_input_is_refused_with_a_sentence(detent: CommandLine, arguments: tuple[str, ...], sentence: str) -> None:
    done = detent("role", *arguments)
    assert done.code == 2
    assert sentence in done.err
