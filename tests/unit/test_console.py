"""What a process prints at its start and its end: four lines on a terminal, one line for programs."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from detent.devtools.demo import report
from detent.domain.job import HttpTarget
from detent.domain.run import Call, Failed, Succeeded
from detent.node.console import Console
from detent.settings.settings import Settings

URL = "http://127.0.0.1:8787"
ALL = ("api", "scheduler", "worker")


class Screen(io.StringIO):
    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal

    @property
    def lines(self) -> list[str]:
        return self.getvalue().splitlines()


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Screen:
    return shown_on(monkeypatch, terminal=True)


def shown_on(monkeypatch: pytest.MonkeyPatch, *, terminal: bool) -> Screen:
    screen = Screen(terminal)
    system = SimpleNamespace(stderr=screen, argv=["bin/detent", "serve", "--demo"])
    monkeypatch.setattr("detent.node.console.sys", system)
    return screen


def test_a_terminal_shows_what_runs_what_to_open_and_what_to_try(terminal: Screen, tmp_path: Path) -> None:
    Console(Settings(data_dir=tmp_path), ALL).started(URL)
    what, open_this, try_this, keys = terminal.lines
    assert what.endswith(f"is running: API, scheduler and worker, with its own PostgreSQL in {tmp_path}.")
    assert URL in open_this and "dashboard" in open_this
    assert "bin/detent job list" in try_this
    assert "requests from this machine need none" in keys


def test_a_terminal_shows_that_requests_need_a_key(terminal: Screen, tmp_path: Path) -> None:
    Console(Settings(data_dir=tmp_path), ALL).started(URL, keys_needed=True)
    assert "Every request needs one" in terminal.lines[3] and "DETENT_API_KEY" in terminal.lines[3]


def test_another_port_is_part_of_the_command_to_try(terminal: Screen, tmp_path: Path) -> None:
    Console(Settings(data_dir=tmp_path), ALL).started("http://127.0.0.1:8790")
    assert "DETENT_API_URL=http://127.0.0.1:8790 bin/detent job list" in terminal.lines[2]


def test_a_password_is_not_printed(terminal: Screen) -> None:
    console = Console(Settings(database_url="postgresql://anna:secret@db.example.org/jobs"), ("worker",))
    console.started(None)
    console.stopped()
    assert "on the database jobs at db.example.org" in terminal.lines[0]
    assert "secret" not in terminal.getvalue() and "anna" not in terminal.getvalue()


def test_the_end_says_what_is_saved_and_how_to_start_again(terminal: Screen, tmp_path: Path) -> None:
    console = Console(Settings(data_dir=tmp_path), ALL)
    console.stopping()
    console.stopped()
    assert terminal.lines[-2:] == [
        f"Stopped. Jobs and their history are saved in {tmp_path}.",
        "Start again with: bin/detent serve --demo",
    ]


def test_programs_get_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    screen = shown_on(monkeypatch, terminal=False)
    console = Console(Settings(data_dir=tmp_path / "new"), ALL, demo=True)
    console.starting()
    console.started(URL)
    console.stopping()
    console.stopped()
    assert screen.lines == [f"listening on {URL}"]
    assert console.log_level == "info"


def test_a_new_database_is_announced_since_creating_it_takes_seconds(terminal: Screen, tmp_path: Path) -> None:
    Console(Settings(data_dir=tmp_path / "new"), ALL).starting()
    assert terminal.lines == [f"Creating a PostgreSQL database in {tmp_path / 'new'} …"]


def test_the_demo_reports_job_status_and_duration_of_an_attempt() -> None:
    call = Call(
        job_id="1", job="demo-flaky", run_id="2", scheduled_at=datetime(2026, 1, 1, tzinfo=UTC), attempt=2,
        idempotency_key="k", token=1, payload=None, target=HttpTarget(url=URL), timeout_seconds=1,
    )  # fmt: skip
    assert report(call, Succeeded(), 0.0126).split()[1:] == ["demo-flaky", "succeeded", "13", "ms", "attempt", "2"]
    assert report(call, Failed("no route"), 0.001).endswith("failed         1 ms  attempt 2: no route")
