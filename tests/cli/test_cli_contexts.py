"""Contexts and `detent config show`: which server is used, with which key, and which setting decided that."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from tests.cli.command_line import CommandLine
from tests.cli.contract_server import ContractServer


@pytest.fixture
def alone(detent: CommandLine) -> CommandLine:
    """Without DETENT_API_URL, which would win over every context."""
    del detent.environ["DETENT_API_URL"]
    return detent


def origins(detent: CommandLine, *arguments: str, **environ: str) -> dict[str, list[str]]:
    done = detent("config", "show", "--origin", *arguments, **environ)
    assert done.code == 0, done.err
    return {row[0]: row[1:] for row in done.rows}


def test_a_context_names_a_server_and_the_file_of_its_key(alone: CommandLine, server: ContractServer) -> None:
    done = alone("context", "add", "here", "--url", server.url, "--key-file", "here.key")
    assert done.code == 0 and "which is now the current one" in done.err and "does not exist yet" in done.err
    (alone.folder / "here.key").write_text("sekret\n")
    assert alone("job", "list").code == 0
    assert server.requests[-1].headers["Authorization"] == "Bearer sekret"
    stored = alone.folder / ".config" / "detent" / "contexts.toml"
    assert stat.S_IMODE(stored.stat().st_mode) == 0o600
    assert "sekret" not in stored.read_text()


def test_contexts_are_listed_switched_and_removed(alone: CommandLine) -> None:
    assert alone("context", "list").out == ""
    alone("context", "add", "one", "--url", "http://one.example")
    alone("context", "add", "two", "--url", "http://two.example")
    assert alone("context", "list").rows == [
        ["*", "one", "http://one.example", ""],
        ["", "two", "http://two.example", ""],
    ]
    assert alone("context", "use", "two").err == "Commands now use http://two.example.\n"
    assert alone("context", "show").out == "http://two.example (context two)\n"
    assert alone("context", "show", DETENT_CONTEXT="one").out == "http://one.example (context one)\n"
    assert alone("--context", "one", "context", "show", DETENT_CONTEXT="two").out.startswith("http://one.example")
    assert alone("context", "remove", "two").code == 0
    assert alone("context", "show").out == "http://127.0.0.1:8787 (default)\n"
    assert alone("context", "list", "-q").out == "one\n"
    alone("context", "use", "one")
    assert alone("context", "use", "--none").code == 0
    assert alone("context", "show").out == "http://127.0.0.1:8787 (default)\n"


def test_flags_win_over_variables_over_the_context_over_the_file(alone: CommandLine) -> None:
    (alone.folder / "detent.toml").write_text('api_url = "http://file.example"\nconcurrency = 7\n')
    assert origins(alone)["api_url"][0] == "http://file.example"
    alone("context", "add", "one", "--url", "http://one.example")
    assert origins(alone)["api_url"] == ["http://one.example", "context one"]
    assert origins(alone)["concurrency"][0] == "7"
    told = origins(alone, DETENT_API_URL="http://env.example")
    assert told["api_url"] == ["http://env.example", "DETENT_API_URL"]
    told = origins(alone, "--api-url", "http://flag.example", DETENT_API_URL="http://env.example")
    assert told["api_url"] == ["http://flag.example", "--api-url"]
    warned = alone("context", "use", "one", DETENT_API_URL="http://env.example")
    assert "DETENT_API_URL is set" in warned.err


def test_no_key_is_sent_to_a_server_it_was_not_given_for(alone: CommandLine, server: ContractServer) -> None:
    (alone.folder / "detent.toml").write_text('api_key = "of-the-file"\n')
    (alone.folder / "key").write_text("of-the-context")
    alone("context", "add", "other", "--url", "http://other.example", "--key-file", "key")
    assert alone("job", "list", "--api-url", server.url).code == 0
    assert server.requests[-1].headers["Authorization"] == "Bearer of-the-file"
    alone("context", "add", "here", "--url", server.url, "--use")
    assert alone("job", "list").code == 0
    assert "Authorization" not in server.requests[-1].headers
    assert alone("job", "list", DETENT_API_KEY="of-the-variable").code == 0
    assert server.requests[-1].headers["Authorization"] == "Bearer of-the-variable"


def test_what_cannot_be_meant_is_refused_in_one_sentence(alone: CommandLine) -> None:
    assert alone("context", "add", "a b", "--url", "http://x.example").code == 2
    assert alone("context", "add", "a", "--url", "nonsense").code == 2
    assert alone("context", "use", "nobody").code == 3
    assert alone("context", "remove", "nobody").code == 3
    assert alone("context", "use").code == 2
    alone("context", "add", "a", "--url", "http://x.example")
    assert alone("context", "add", "a", "--url", "http://y.example").code == 6
    assert alone("context", "add", "a", "--url", "http://y.example", "--replace").code == 0
    unknown = alone("job", "list", DETENT_CONTEXT="nobody")
    assert unknown.code == 3 and "(there are: a)" in unknown.err
    (alone.folder / ".config" / "detent" / "contexts.toml").write_text("contexts = 5\n")
    broken = alone("job", "list")
    assert broken.code == 2 and "fix it" in broken.err and broken.err.count("\n") == 1


def test_a_node_is_started_whatever_the_contexts_are(alone: CommandLine) -> None:
    folder = Path(alone.folder / ".config" / "detent")
    folder.mkdir(parents=True)
    (folder / "contexts.toml").write_text("nonsense")
    done = alone("api", "--port", "x")
    assert done.code == 2 and "--port" in done.err


def test_every_setting_is_shown_and_no_secret_is(alone: CommandLine) -> None:
    url = "postgresql://ada:hunter2@db.example/jobs?sslpassword=hunter3&sslmode=require"
    told = origins(alone, DETENT_DATABASE_URL=url, DETENT_API_KEY="hunter4")
    assert told["database_url"] == [
        "postgresql://ada@db.example/jobs?sslpassword=(hidden)&sslmode=require",
        "DETENT_DATABASE_URL",
    ]
    assert told["api_key"] == ["(hidden)", "DETENT_API_KEY"]
    assert told["port"] == ["8787", "default"]
    document = json.loads(alone("config", "show", "--json", DETENT_DATABASE_URL=url, DETENT_API_KEY="hunter4").out)
    assert "hunter" not in json.dumps(document)
    seen = alone.on_terminal("config", "show", "--origin")
    assert "the embedded PostgreSQL in data_dir" in seen.out and "FROM" in seen.out
