"""Files that expand or nest without end: one sentence and exit code 2, at once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from detent.declarative.jobs_file import read_files
from detent.errors import UsageError
from detent.settings.settings import Settings
from tests.cli.command_line import CommandLine

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
DEEP = "deeper than 64 levels: make it flatter."
TOO_MANY_VALUES = "expand to too many values: write them out, or split the file."


def levels(first: str, level: Callable[[int], str]) -> str:
    return first + "".join(level(number) for number in range(1, 10))


HOSTILE = {
    # Ten aliases of ten aliases: a billion values.
    "aliases.yaml": (
        levels("a0: &a0 [x]\n", lambda n: f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n"),
        TOO_MANY_VALUES,
    ),
    "merges.yaml": (
        levels("m0: &m0 {k: 1}\n", lambda n: f"m{n}: &m{n} {{<<: [{', '.join([f'*m{n - 1}'] * 10)}]}}\n"),
        TOO_MANY_VALUES,
    ),
    "itself.yaml": ("jobs: &a [*a]", DEEP),
    "merges-itself.yaml": ("jobs: &a {<<: *a}", DEEP),
    "brackets.yaml": ("[" * 300_000, DEEP),
    "closed.yaml": ("{a: " * 20_000 + "1" + "}" * 20_000, DEEP),
    "keys.yaml": ("? " * 20_000, DEEP),
    "documents.yaml": (
        (levels("a0: &a0 [x]\n", lambda n: f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}, *a{n - 1}]\n") + "---\n") * 20,
        TOO_MANY_VALUES,
    ),
    "indented.yaml": ("\n".join(" " * depth + "a:" for depth in range(200)), DEEP),
    "brackets.json": ("[" * 100_000, DEEP),
    "objects.json": ('{"a":' * 100_000, DEEP),
    "brackets.toml": ("a = " + "[" * 20_000, DEEP),
    "tables.toml": ("a = " + "{a = " * 20_000, DEEP),
    "key.toml": ("a" + ".a" * 50_000 + " = 1", DEEP),
    "quoted-key.toml": ("a = {" + "a" + ".'a'" * 50_000 + " = 1}", DEEP),
    "header.toml": ("[a" + " . a" * 50_000 + "]", DEEP),
    # The fourth quote belongs to the text, and opens no other one.
    "quotes.toml": ('a = ["""x"""", ' + "[" * 20_000 + '"', DEEP),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_that_nests_or_expands_without_end_is_refused_in_one_sentence(name: str) -> None:
    text, reason = HOSTILE[name]
    (fault,) = read_files([(name, text)], NOW).faults
    assert fault.message.endswith(reason)


def test_what_a_person_writes_with_aliases_and_dots_is_read() -> None:
    job = "{<<: *job, name: n%d}"
    jobs = ", ".join(job % number for number in range(1_000))
    shared = "{schedule: every 1h, target: {type: http, url: 'https://example.org/'}}"
    text = f"jobs:\n  - &job {shared[:-1]}, name: first}}\n  - {jobs.replace('}, {', '}' + chr(10) + '  - {')}\n"
    found = read_files([("jobs.yaml", text)], NOW)
    assert not found.faults
    assert len(found.jobs) == 1_001
    quoted = "[[jobs]]\nname = '" + "a." * 70 + "'\nschedule = 'every 1h'  # " + "[" * 100 + "\n"
    quoted += "target.type = 'http'\ntarget.url = 'https://example.org/'\n"
    assert not read_files([("jobs.toml", quoted)], NOW).faults


@pytest.mark.parametrize("text", ['\\"', '\\"""\n'])
def test_a_file_of_texts_that_are_not_closed_is_refused_without_a_search_for_each(text: str) -> None:
    (fault,) = read_files([("open.toml", text * 100_000 + "\\")], NOW).faults
    assert fault.message.startswith("This is not TOML")


def test_a_settings_file_that_nests_without_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "detent.toml").write_text("port = " + "[" * 5_000)
    with pytest.raises(UsageError, match="nested deeper than 64 levels on line 1: make it flatter"):
        Settings.load({}, {"HOME": str(tmp_path)}, tmp_path)


@pytest.mark.parametrize(
    "arguments",
    [
        ("apply", "jobs.yaml", "--dry-run"),
        ("job", "list"),
        ("job", "create", "x", "--every", "1h", "--url", "http://127.0.0.1:9/", "--payload", "@deep.json"),
    ],
    ids=["a jobs file", "a settings file", "a payload"],
)
def test_the_command_line_ends_with_2_and_one_sentence(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    detent = CommandLine(tmp_path, "http://127.0.0.1:9")
    (tmp_path / "jobs.yaml").write_text(HOSTILE["merges.yaml"][0])
    (tmp_path / "deep.json").write_text("[" * 200_000)
    if arguments == ("job", "list"):
        (tmp_path / "detent.toml").write_text(HOSTILE["key.toml"][0])
    done = detent(*arguments)
    assert done.code == 2
    assert "Traceback" not in done.err and "Internal error" not in done.err
    assert done.out == ""
