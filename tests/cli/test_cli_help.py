"""Help, version, completion, schedules in words: what works without a server."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import typing
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
import pytest

from detent.cli.document import is_default
from detent.cli.reference import page
from detent.cli.root import root
from detent.domain.job import JobSpec
from detent.domain.job_fields import JOB_FIELDS
from detent.settings.settings import SETTINGS
from detent.version import __version__
from tests.cli.command_line import CommandLine
from tests.cli.contract_server import ContractServer


def commands(group: click.Group, path: str = "detent") -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        yield f"{path} {name}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")


COMMANDS = dict(commands(root))


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_explains_itself(path: str) -> None:
    command = COMMANDS[path]
    assert command.help and command.get_short_help_str(100)
    if not isinstance(command, click.Group):
        assert f"$ {path}" in command.help or f"({path}" in command.help or f"| {path}" in command.help
        assert all(len(line) < 80 for line in command.help.splitlines())
    for parameter in command.params:
        assert not isinstance(parameter, click.Option) or parameter.hidden or parameter.help, parameter.name


@pytest.mark.parametrize("path", ["detent serve", "detent scheduler", "detent worker", "detent api"])
def test_every_flag_of_a_node_is_a_setting(path: str) -> None:
    names = {parameter.name for parameter in COMMANDS[path].params}
    assert names - {"demo", "config", "reload", "supervisor"} <= set(SETTINGS)


def test_every_field_of_a_job_has_a_flag() -> None:
    names = {parameter.name for parameter in COMMANDS["detent job create"].params}
    assert {field.name for field in JOB_FIELDS} - names == {"target"}  # --url, --shell and --python make it


def test_every_field_of_a_job_is_described_once() -> None:
    assert [field.name for field in JOB_FIELDS] == [field.name for field in msgspec.structs.fields(JobSpec)]


def test_the_choices_that_are_described_are_those_of_the_model() -> None:
    hints = typing.get_type_hints(JobSpec)
    listed = {field.name: field.choices for field in JOB_FIELDS if field.choices}
    assert set(listed) >= {"dst_gap", "retry_backoff", "concurrent_policy", "delivery"}
    for name, choices in listed.items():
        known = [str(word) for word in _words(hints[name]) if word is not None]
        assert sorted(choices) == sorted(known), name


def test_the_defaults_that_are_described_are_those_of_the_model() -> None:
    for described, field in zip(JOB_FIELDS, msgspec.structs.fields(JobSpec), strict=True):
        if described.name in ("schedule", "target", "idempotency_key_template"):
            continue
        default = field.default_factory() if field.default is msgspec.NODEFAULT else field.default
        assert is_default(described, default), described.name


def _words(hint: object) -> Iterator[object]:
    for argument in typing.get_args(hint):
        if isinstance(argument, str) or argument is None:
            yield argument
        else:
            yield from _words(argument)


def test_help_is_plain_in_a_pipe_and_drawn_on_a_terminal(detent: CommandLine) -> None:
    plain = detent("--help")
    assert plain.code == 0 and "\x1b" not in plain.out
    headings = ["Options:", "Jobs and runs:", "Start detent:", "Administration:"]
    assert [line for line in plain.lines if line in headings] == headings
    drawn = detent.on_terminal("--help", raw=True)
    assert drawn.code == 0 and "\x1b[" in drawn.out and "Start detent" in drawn.out
    assert detent("job", "-h").out.startswith("Usage: detent job ")


def test_a_noun_without_a_verb_shows_its_verbs(detent: CommandLine) -> None:
    done = detent("job")
    assert (done.code, done.out) == (2, "")
    assert "create" in done.err and "error" not in done.err


def test_the_version_is_that_of_the_package(detent: CommandLine) -> None:
    assert detent("--version").out == f"detent {__version__}\n"
    assert detent("version").out.startswith(f"detent {__version__} (Python 3.")
    assert json.loads(detent("version", "--server", "--json").out)["server"] == {"version": "9.9.9"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(detent: CommandLine, shell: str) -> None:
    done = detent("completion", shell)
    assert done.code == 0 and f"_DETENT_COMPLETE={shell}_complete" in done.out


def test_completion_knows_commands_and_the_names_of_jobs(detent: CommandLine, server: ContractServer) -> None:
    server.add_job("report")
    server.add_job("ping")

    def complete(line: str) -> list[str]:
        words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
        return detent(_DETENT_COMPLETE="bash_complete", **words).lines

    assert "plain,pause" in complete("detent job pa")
    assert complete("detent job get rep") == ["plain,report"]
    detent.environ["DETENT_API_URL"] = "http://127.0.0.1:1"
    assert complete("detent job get rep") == [""]


def test_a_schedule_is_explained_without_a_server(detent: CommandLine) -> None:
    arguments = (
        "cron",
        "explain",
        "30 2 * * *",
        "--tz",
        "Europe/Berlin",
        "--from",
        "2027-03-27T12:00:00Z",
        "--next",
        "2",
    )
    done = detent(*arguments, DETENT_API_URL="")
    assert done.rows == [
        ["2027-03-28T01:00:00Z", "2027-03-28T03:00:00+02:00", "moved"],
        ["2027-03-29T00:30:00Z", "2027-03-29T02:30:00+02:00", ""],
    ]
    assert done.err == "note: 02:30 does not exist on 2027-03-28: runs at 03:00\n"
    answer = json.loads(detent(*arguments, "--dst-gap", "skip", "--json").out)
    assert answer["skipped"] and answer["ticks"][0]["at"] == "2027-03-29T00:30:00Z"
    seen = detent.on_terminal(*arguments)
    assert "(Europe/Berlin)" in seen.out and "Sun 2027-03-28 03:00:00 +0200" in seen.out


def test_the_script_of_the_schema_needs_no_database(detent: CommandLine) -> None:
    done = detent("db", "sql")
    assert done.code == 0 and "CREATE TABLE jobs" in done.out


def test_the_reference_page_is_that_of_the_commands() -> None:
    stored = Path(__file__).parents[2] / "docs" / "cli.md"
    assert stored.read_text() == page(), "run `make docs-cli`"


def test_the_reference_page_knows_every_command_and_option() -> None:
    text = page()
    for path, command in COMMANDS.items():
        assert f"# {path}\n" in text
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not parameter.hidden:
                assert all(f"`{name}`" in text for name in parameter.opts), path


def test_help_is_made_without_what_only_some_commands_need() -> None:
    """Imports are what its time goes into, and they can be counted where time cannot."""
    code = (
        "import sys; sys.argv = ['detent', '--help']; from detent.cli import main; main(); print(sorted(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(ast.literal_eval(done.stdout.splitlines()[-1]))
    assert not loaded & {
        "asyncio",
        "asyncpg",
        "yaml",
        "rich",
        "rich_click",
        "starlette",
        "aiohttp",
        "uvicorn",
        "msgspec",
    }
