"""mypy and pyright find the mistakes that people make with the SDK, and nothing in programs without mistakes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.support.node_packages import missing, require_node

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
WRONG, RIGHT = HERE / "wrong_uses.py", HERE / "right_uses.py"
EXAMPLES = ROOT / "examples"
FOLDERS = sorted({file.parent for file in EXAMPLES.glob("*/*.py")})
# Django has no types. mypy takes all of it for Any, and need not say so; pyright infers them from its code, and finds
# neither `objects` of models nor, in versions before 6, `django.tasks`.
DJANGO = EXAMPLES / "django"
OF_DJANGO = ("--allow-subclassing-any", "--allow-untyped-decorators")
CHECK_SECONDS = 600
_FLAGGED = re.compile(r"^(?P<file>[^:]+):(?P<line>\d+): error: ")

Findings = dict[Path, set[int]]
Check = Callable[..., Findings]


def mypy(files: list[Path], folder: Path = ROOT) -> Findings:
    """With the settings of the project, and its cache. Files that are named are checked although they are excluded.
    `folder`: where imports are found, as when a program is started there."""
    chosen = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(ROOT / ".mypy_cache")]
    command = [sys.executable, "-m", "mypy", "--strict", *chosen, *(OF_DJANGO if folder == DJANGO else ())]
    done = subprocess.run(
        [*command, *map(str, files)],
        cwd=folder,
        env={**os.environ, "MYPYPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=CHECK_SECONDS,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found = [match for line in done.stdout.splitlines() if (match := _FLAGGED.match(line))]
    return _by_file((folder / match["file"], int(match["line"])) for match in found)


def pyright(files: list[Path], folder: Path = ROOT) -> Findings:
    require_node("what pyright says")
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, *map(str, files)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=CHECK_SECONDS, check=False)
    if not done.stdout.strip().startswith("{"):
        missing(f"pyright could not be started: {done.stderr[-300:]}", "what pyright says")
    report = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] == len(files), report["summary"]
    errors = [each for each in report["generalDiagnostics"] if each["severity"] == "error"]
    return _by_file((Path(each["file"]), each["range"]["start"]["line"] + 1) for each in errors)


def _by_file(places: Iterable[tuple[Path, int]]) -> Findings:
    found: Findings = {}
    for file, line in places:
        found.setdefault(file.resolve(), set()).add(line)
    return found


CHECKERS: list[Check] = [mypy, pyright]


@pytest.mark.parametrize("check", CHECKERS, ids=lambda check: check.__name__)
def test_each_wrong_use_is_flagged_and_nothing_else(check: Check) -> None:
    lines = WRONG.read_text("utf-8").splitlines()
    marked = {number for number, line in enumerate(lines, 1) if "# WRONG" in line}
    assert len(marked) >= 25
    found = check([WRONG]).get(WRONG, set())
    assert {number: lines[number - 1] for number in marked ^ found} == {}


@pytest.mark.parametrize("check", CHECKERS, ids=lambda check: check.__name__)
def test_programs_without_mistakes_are_accepted(check: Check) -> None:
    assert check([RIGHT]) == {}


@pytest.mark.parametrize(
    ("check", "folder"),
    [
        pytest.param(check, folder, id=f"{check.__name__}-{folder.name}")
        for folder in FOLDERS
        for check in CHECKERS
        if (check, folder) != (pyright, DJANGO)
    ],
)
def test_examples_are_accepted(check: Check, folder: Path) -> None:
    """Each as the program that it is: the modules of two of them may have the same name."""
    files = [file for file in sorted(folder.rglob("*.py")) if "migrations" not in file.parts]
    assert check(files, folder) == {}
