"""Programs that run and import themselves by their name, too."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys

from core import dt


@dt.function()
def resize(): ...


if __name__ == "__main__":
    import main  # as uvicorn.run("main:web") does

    assert main is not sys.modules["__main__"]
    print(sorted(dt.functions))
"""
TWICE = """
from core import dt


@dt.function("resize")
def one(): ...


@dt.function("resize")
def other(): ...
"""


def run(folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    folder.joinpath("core.py").write_text("from detent import Detent\n\ndt = Detent()\n")
    folder.joinpath("main.py").write_text(program)
    return subprocess.run([sys.executable, "main.py"], cwd=folder, capture_output=True, text=True, check=False)


def test_a_program_that_imports_itself_has_each_function_once(tmp_path: Path) -> None:
    done = run(tmp_path, PROGRAM)
    assert (done.returncode, done.stdout) == (0, "['main:resize']\n"), done.stderr


def test_two_functions_of_a_program_need_two_names(tmp_path: Path) -> None:
    done = run(tmp_path, TWICE)
    assert done.returncode == 1
    assert "This app has two functions 'resize': rename one of them." in done.stderr
