"""What a worker says that it serves."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from detent import Detent
from detent.node.console import Console
from detent.node.served import ServedWork, served_work
from detent.settings.settings import Settings
from tests.unit.test_console import ALL, URL, Screen, shown_on, terminal

__all__ = ["terminal"]  # the fixture

TARGETS = ["http", "python"]


def shop() -> Detent:
    app = Detent("shop")

    @app.job(cron="0 9 * * MON", timezone="Europe/Berlin")
    def report() -> None: ...

    @app.job(name="import", every=timedelta(minutes=15), queue="slow")
    def import_orders() -> None: ...

    @app.task()
    def send_mail() -> None: ...

    @app.function("resize")
    def resize() -> None: ...

    return app


def served(app: Detent | None, **settings: Any) -> ServedWork:
    found = served_work(Settings(**settings), ("worker",), app, TARGETS)
    assert found is not None
    return found


def test_a_terminal_shows_each_job_with_its_schedule_function_and_queue() -> None:
    words = [line.split() for line in served(shop(), queues=("default", "slow"), concurrency=7).lines()]
    assert words[0] == ["App", "shop,", "with", "4", "functions:"]
    assert words[1][:6] == ["report", "0", "9", "*", "*", "MON"] and words[1][-2:] == ["queue", "default"]
    assert words[1][6] == "Europe/Berlin" and words[1][7].endswith("report")
    assert words[2][:2] == ["import", "every"] and words[2][-2:] == ["queue", "slow"]
    assert words[3][:3] == ["send-mail", "on", "demand"]
    assert words[4] == ["-", "for", "jobs", "that", "name", "it", "resize"]
    assert " ".join(words[5]) == (
        "Runs http and python jobs of the queues default and slow, at most 7 at the same time."
    )


def test_queues_of_the_app_that_this_worker_does_not_serve_are_named() -> None:
    lines = list(served(shop()).lines())
    assert lines[-2] == (
        "Not served by this worker: the queue slow (import). Start it with --queue default --queue slow to serve all."
    )
    assert served(shop()).fields()["queues_not_served"] == ["slow"]
    assert "queues_not_served" not in served(shop(), queues=("default", "slow")).fields()


def test_a_worker_without_an_app_calls_no_python_function() -> None:
    assert list(served(None).lines()) == ["Runs  http jobs of the queue default, at most 100 at the same time."]


def test_a_long_list_ends_with_the_number_of_the_others() -> None:
    app = Detent("many")
    for number in range(30):
        app.task(name=f"task-{number}")(_function(number))
    lines = list(served(app).lines())
    assert len(lines) == 23 and lines[21].strip() == "and 10 more"
    assert served(app).fields()["more_jobs"] == 10


def _function(number: int) -> Any:
    def function() -> None: ...

    function.__qualname__ = f"function_{number}"
    return function


def test_a_server_without_an_app_says_nothing_of_its_worker() -> None:
    assert served_work(Settings(), ALL, None, TARGETS) is None
    assert served_work(Settings(), ("scheduler",), None, []) is None


def test_the_terminal_of_a_server_shows_its_app_before_what_to_open(terminal: Screen) -> None:
    Console(Settings(), ALL).started(URL, served=served(shop(), queues=("default", "slow")))
    assert terminal.lines[1].startswith("App   shop") and terminal.lines[7].startswith(f"Open  {URL}")


def test_the_log_has_one_line_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = shown_on(monkeypatch, terminal=False)
    with capture_logs() as logged:
        Console(Settings(), ("worker",)).started(None, served=served(shop()))
    (line,) = logged
    assert line["event"] == "serving" and line["app"] == "shop"
    assert line["queues"] == ["default"] and line["concurrency"] == 100
    assert line["jobs"][0] == "report (0 9 * * MON Europe/Berlin)"
    assert screen.lines == ["worker ready"]
