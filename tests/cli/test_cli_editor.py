"""`detent job edit JOB` in an editor, against a real server."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command_line import CommandLine
from tests.cli.real_server import RealServer, running
from tests.support.postgres import Postgres

pytestmark = pytest.mark.usefixtures("job")


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory, postgres: Postgres) -> Iterator[RealServer]:
    with postgres.database_apart() as url, running(tmp_path_factory.mktemp("server"), url) as server:
        yield server


@pytest.fixture
def shell(real: RealServer, tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path, real.url)


@pytest.fixture
def job(real: RealServer) -> Iterator[str]:
    with real.client as client:
        client.create_job(
            {"name": "report", "schedule": "0 9 * * *", "target": {"type": "http", "url": "http://127.0.0.1:9/"}}
        )
    yield "report"
    with real.client as client:
        client.delete_job("report")


def editor(folder: Path, *lines: str) -> str:
    """A program that edits: `text` is what it was given, `opened` how often it was started."""
    program = folder / "editor.py"
    body = "\n".join(lines)
    program.write_text(
        "import pathlib, sys\n"
        "path, counter = pathlib.Path(sys.argv[1]), pathlib.Path(__file__).with_suffix('.count')\n"
        "opened = int(counter.read_text()) + 1 if counter.exists() else 1\n"
        "counter.write_text(str(opened))\n"
        "text = path.read_text()\n"
        f"{body}\n"
        "path.write_text(text)\n"
    )
    return f"{sys.executable} {program}"


def test_what_is_saved_is_what_the_job_becomes(shell: CommandLine, real: RealServer) -> None:
    chosen = editor(
        shell.folder, "assert 'schedule: 0 9 * * *' in text", "text = text.replace('0 9', '0 7') + 'priority: 8\\n'"
    )
    done = shell.on_terminal("job", "edit", "report", EDITOR=chosen)
    assert done.code == 0 and 'schedule: "0 9 * * *" → "0 7 * * *"' in done.out and "priority: 5 → 8" in done.out
    with real.client as client:
        job = client.get_job("report")
    assert (job["schedule"], job["priority"]) == ("0 7 * * *", 8)


def test_a_removed_field_gets_its_default(shell: CommandLine, real: RealServer) -> None:
    with real.client as client:
        client.edit_job("report", {"priority": 9})
    chosen = editor(shell.folder, "text = text.replace('priority: 9\\n', '')")
    assert shell("job", "edit", "report", "--quiet", EDITOR=chosen).err == ""
    with real.client as client:
        assert client.get_job("report")["priority"] == 5


def test_a_wrong_text_opens_again_with_the_reason(shell: CommandLine, real: RealServer) -> None:
    chosen = editor(
        shell.folder,
        "if opened == 1: text = text.replace('0 9', '0 99')",
        "if opened == 2: assert text.startswith('# error: ') and '99' in text; text = text + '\\tx: *y\\n'",
        "if opened == 3: assert 'YAML' in text; text = text.replace('0 99', '0 6').partition('\\tx')[0]",
    )
    done = shell.on_terminal("job", "edit", "report", EDITOR=chosen)
    assert done.code == 0 and '"0 9 * * *" → "0 6 * * *"' in done.out
    with real.client as client:
        assert client.get_job("report")["schedule"] == "0 6 * * *"


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ("", 0, "No change in report."),
        ("text = ''", 0, "No change in report."),
        ("sys.exit(3)", 2, "The editor ended with exit code 3: nothing was changed."),
    ],
)
def test_without_a_change_nothing_happens(shell: CommandLine, change: str, code: int, words: str) -> None:
    done = shell("job", "edit", "report", EDITOR=editor(shell.folder, change))
    assert done.code == code and words in done.err


def test_a_job_that_was_changed_meanwhile_is_left_alone(shell: CommandLine, real: RealServer) -> None:
    other = f"{sys.executable} -m detent job edit report --set priority=7 --api-url {real.url}"
    chosen = editor(
        shell.folder, f"import subprocess; subprocess.run({other.split()!r}, check=True)", "text += 'priority: 2\\n'"
    )
    done = shell("job", "edit", "report", EDITOR=chosen)
    assert done.code == 6 and "Your text is kept in " in done.err
    kept = Path(done.err.rpartition("Your text is kept in ")[2].strip().removesuffix("."))
    assert "priority: 2" in kept.read_text()
    kept.unlink()
    with real.client as client:
        assert client.get_job("report")["priority"] == 7


def test_a_dry_run_only_shows_what_would_change(shell: CommandLine, real: RealServer) -> None:
    done = shell("job", "edit", "report", "--dry-run", EDITOR=editor(shell.folder, "text = text.replace('0 9', '0 7')"))
    assert done.code == 0 and "Would change report" in done.err
    with real.client as client:
        assert client.get_job("report")["schedule"] == "0 9 * * *"


def test_an_editor_that_does_not_exist_is_named(shell: CommandLine) -> None:
    done = shell("job", "edit", "report", EDITOR="no-such-editor")
    assert done.code == 2 and "The editor 'no-such-editor' cannot be started" in done.err
