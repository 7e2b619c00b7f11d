"""A test process that is killed leaves no server behind: real servers, a real SIGKILL, and a look at what is left."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import guardian
from tests.support.pgbouncer import require_pgbouncer
from tests.support.processes import is_alive
from tests.support.servers import require_servers
from tests.support.waiting import until_sync
from tests.system.starts_servers import FOLDER, KINDS

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).parent / "starts_servers.py"
SECONDS = 60.0
# How many processes there are at least, so that a test that sees none proves something.
FEWEST = {"postgres": 2, "pgbouncer": 3, "node": 3, "fleet": 3, "chromium": 3}


def require_chromium() -> None:
    if not (shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")):
        pytest.skip("Chromium is not installed: the tests of the dashboard say how")


REQUIRED: dict[str, Callable[[], None]] = {
    "pgbouncer": require_pgbouncer,
    "chromium": require_chromium,
    **dict.fromkeys(("etcd", "redis", "zookeeper"), require_servers),
}


@pytest.fixture
def started() -> Iterator[Callable[[str], dict[str, Any]]]:
    """Starts the program with a kind of server; what it announced. It does not outlive the test either."""
    programs: list[subprocess.Popen[bytes]] = []

    def start(kind: str) -> dict[str, Any]:
        command = [sys.executable, "-m", "tests.system.starts_servers", kind]
        program = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        programs.append(program)
        assert program.stdout is not None
        announced: dict[str, Any] = json.loads(program.stdout.readline())
        return announced

    yield start
    for program in programs:
        program.kill()
        program.communicate()


def nothing_is_left(announced: dict[str, Any]) -> bool:
    paths = [os.fsencode(folder) for folder in announced["folders"]]
    alive = [process for process in announced["processes"] if is_alive(process)]
    return not alive and not guardian.belonging(paths) and not any(map(os.path.exists, announced["folders"]))


@pytest.mark.parametrize(
    "kind", [kind if kind == "postgres" else pytest.param(kind, marks=pytest.mark.long) for kind in KINDS]
)
def test_the_servers_of_a_killed_test_process_are_gone(kind: str, started: Callable[[str], dict[str, Any]]) -> None:
    REQUIRED.get(kind, lambda: None)()
    announced = started(kind)
    assert len(announced["processes"]) >= FEWEST.get(kind, 1) + 1, "the guardian and the servers"
    os.kill(announced["pid"], signal.SIGKILL)
    until_sync(lambda: nothing_is_left(announced), SECONDS, f"{kind} to be gone")


@pytest.mark.long
@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_nor_are_they_left_by_one_that_is_ended_otherwise(
    ending: signal.Signals, started: Callable[[str], dict[str, Any]]
) -> None:
    announced = started("node")
    os.kill(announced["pid"], ending)
    until_sync(lambda: nothing_is_left(announced), SECONDS, "all to be gone")


def test_what_is_left_when_the_guardian_is_killed_too_is_cleaned_up_by_the_next_process(
    started: Callable[[str], dict[str, Any]],
) -> None:
    announced = started("postgres")
    (guarding,) = [process for process in announced["processes"] if b"guardian.py" in command_of(process)]
    os.kill(guarding, signal.SIGKILL)
    os.kill(announced["pid"], signal.SIGKILL)
    servers = [process for process in announced["processes"] if process != guarding]
    assert all(map(is_alive, servers)), "no guardian is left to end them"
    started("postgres")
    until_sync(lambda: nothing_is_left(announced), SECONDS, "the next process to clean up")


def test_a_folder_that_is_in_use_is_left_alone_by_the_next_process(started: Callable[[str], dict[str, Any]]) -> None:
    first, second = started("redis"), started("redis")
    assert all(map(is_alive, [*first["processes"], *second["processes"]]))
    assert all(map(os.path.exists, first["folders"]))


@pytest.mark.parametrize("victim", [pytest.param("controller", marks=pytest.mark.long), "worker"])
def test_the_server_of_a_killed_run_of_pytest_is_gone(tmp_path: Path, victim: str) -> None:
    command = [sys.executable, "-m", "pytest", "-n", "1", "-p", "no:cacheprovider", "--timeout", "0", str(PROGRAM)]
    with (tmp_path / "log").open("wb") as log:
        run = subprocess.Popen(
            command, env={**os.environ, FOLDER: str(tmp_path)}, stdout=log, stderr=log, start_new_session=True
        )
    try:
        until_sync(lambda: (tmp_path / "announced").exists() or run.poll() is not None, SECONDS, "the server")
        announced = json.loads((tmp_path / "announced").read_text())
        os.kill(run.pid if victim == "controller" else announced["pid"], signal.SIGKILL)
        until_sync(lambda: nothing_is_left(announced), SECONDS, "the server to be gone")
    finally:
        run.kill()
        run.wait()


def command_of(process: int) -> bytes:
    return Path(f"/proc/{process}/cmdline").read_bytes()
