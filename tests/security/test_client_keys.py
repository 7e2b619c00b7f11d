"""Keys and passwords of the command line: sent only where they belong, and not shown to the whole machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from detent.cli import main
from tests.cli.command_line import Finished
from tests.cli.contract_server import ContractServer


@pytest.fixture
def server() -> Iterator[ContractServer]:
    with ContractServer() as running:
        yield running


class CommandLine:
    """The command line inside this process, in a folder and with an environment of its own."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capsys = capsys

    def __call__(self, *arguments: str, **environ: str) -> Finished:
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.folder)
            for name in [name for name in os.environ if name.startswith(("DETENT_", "XDG_"))]:
                patch.delenv(name)
            for name, value in {"HOME": str(self.folder), **environ}.items():
                patch.setenv(name, value)
            patch.setattr(sys, "argv", ["detent", *arguments])
            code = main()
        captured = self._capsys.readouterr()
        return Finished(code, captured.out, captured.err)


@pytest.fixture
def cloned(server: ContractServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """In a cloned repository, whose detent.toml names a server of its author."""
    (tmp_path / "detent.toml").write_text(f'api_url = "{server.url}"\n')
    return CommandLine(tmp_path, capsys)


@pytest.mark.parametrize("variable", ["DETENT_API_KEY", "DETENT_API_KEY_FILE"])
def test_a_key_of_the_environment_is_not_sent_to_the_address_of_a_file_that_was_found(
    cloned: CommandLine, server: ContractServer, variable: str
) -> None:
    (cloned.folder / "key").write_text("secret")
    value = "secret" if variable == "DETENT_API_KEY" else "key"
    for command in (("job", "list"), ("job", "list", "--json"), ("doctor",)):
        refused = cloned(*command, **{variable: value})
        assert refused.code == 2, refused.err
        assert f"{variable} is set, but the address {server.url} is from" in refused.err
        assert f"set DETENT_API_URL={server.url}, give --api-url, or name the file with --config." in refused.err
        assert refused.err.count("\n") == 1
    assert not server.requests


def test_the_key_goes_where_the_user_says(cloned: CommandLine, server: ContractServer) -> None:
    ways: tuple[tuple[tuple[str, ...], dict[str, str]], ...] = (
        ((), {"DETENT_API_URL": server.url}),
        (("--api-url", server.url), {}),
        (("--config", "detent.toml"), {}),
    )
    for flags, environ in ways:
        assert cloned("job", "list", *flags, DETENT_API_KEY="secret", **environ).code == 0
        assert server.requests[-1].headers["Authorization"] == "Bearer secret"


def test_without_a_key_the_file_that_was_found_is_used(cloned: CommandLine, server: ContractServer) -> None:
    assert cloned("job", "list").code == 0
    assert "Authorization" not in server.requests[-1].headers


def test_the_key_of_a_file_goes_to_the_address_of_that_file_only(cloned: CommandLine, server: ContractServer) -> None:
    (cloned.folder / "detent.toml").write_text(f'api_url = "{server.url}"\napi_key = "of-the-file"\n')
    assert cloned("job", "list").code == 0
    assert server.requests[-1].headers["Authorization"] == "Bearer of-the-file"
    (cloned.folder / "detent.toml").write_text('api_url = "http://127.0.0.1:9"\napi_key = "of-the-file"\n')
    assert cloned("job", "list", "--api-url", server.url).code == 0
    assert "Authorization" not in server.requests[-1].headers


def test_a_password_on_the_command_line_is_warned_of_once(cloned: CommandLine) -> None:
    url = "postgresql://ada:hunter2@127.0.0.1:9/detent"
    warned = cloned("db", "status", "--database-url", url)
    assert warned.err.count("The password in --database-url is visible to every user of this machine") == 1
    assert "set DETENT_DATABASE_URL, or DETENT_DATABASE_URL_FILE" in warned.err
    assert "hunter2" not in warned.err
    silent = cloned("db", "status", "--database-url", "postgresql://ada@127.0.0.1:9/detent")
    assert "password in --database-url" not in silent.err
    assert "password in" not in cloned("db", "status", DETENT_DATABASE_URL=url).err
