"""Apps in a program that is started as such: workers import its functions by another name than `__main__`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """
from detent import Detent

app = Detent(url={url!r})

@app.task
def send(to: str) -> None: ...

if __name__ == "__main__":
    app.register_sync()
"""


def started(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize(
    ("arguments", "module"),
    [(["shop.py"], "shop"), (["-m", "shop"], "shop"), (["-m", "store.orders"], "store.orders")],
)
async def test_functions_of_a_program_are_registered_under_the_name_by_which_a_worker_imports_them(
    database_url: str, look: Any, tmp_path: Path, arguments: list[str], module: str
) -> None:
    place = tmp_path.joinpath(*module.split(".")).with_suffix(".py")
    place.parent.mkdir(exist_ok=True)
    place.write_text(PROGRAM.format(url=database_url))
    done = started(*arguments, folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    definition = await look.fetchval("SELECT definition::jsonb -> 'target' ->> 'function' FROM jobs")
    assert definition == f"{module}:send"


async def test_a_program_in_no_file_is_not_registered(database_url: str, look: Any, tmp_path: Path) -> None:
    done = started("-c", PROGRAM.format(url=database_url), folder=tmp_path)
    assert "UsageError: No worker can import the function of 'send': this program is in no file." in done.stderr
    assert await look.fetchval("SELECT count(*) FROM jobs") == 0
