"""`detent alert-rule`, against a real server whose scheduler sends the messages."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from detent.runtime.envelope import generate_master_key
from tests.cli.command_line import CommandLine
from tests.cli.real_server import running

if TYPE_CHECKING:
    from tests.support.postgres import Postgres


class Hook(BaseHTTPRequestHandler):
    bodies: ClassVar[list[Any]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.bodies.append(body)
        self.send_response(500 if self.path == "/broken" else 204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""


@pytest.fixture(scope="module")
def hook() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Hook)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="module")
def detent(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    folder: Path = tmp_path_factory.mktemp("server")
    with (
        postgres.database_apart() as database,
        running(folder, database, DETENT_SECRET_KEY=generate_master_key()) as server,
    ):
        yield CommandLine(folder, server.url)


def told(detent: CommandLine, *arguments: str, stdin: str = "") -> Any:
    done = detent(*arguments, "--json", stdin=stdin)
    assert done.code == 0, done.err
    return json.loads(done.out)


def test_a_rule_is_created_shown_changed_tested_and_deleted(detent: CommandLine, hook: str) -> None:
    done = detent("alert-rule", "create", "ops", "--on", "dead", "--on", "deadline", "--webhook", hook, "--tag", "pay")
    assert (done.code, done.err) == (0, "Created alert rule ops: `detent alert-rule test ops` sends a test message.\n")
    rule = told(detent, "alert-rule", "get", "ops")
    assert (rule["events"], rule["tags"], rule["receiver"]["url"]) == (["dead", "deadline"], ["pay"], hook)
    changed = told(
        detent, "alert-rule", "edit", "ops", "--quiet-hours", "22:00-07:00", "--quiet-zone", "Europe/Berlin", "--group",
        "5m", "--no-recovered",
    )  # fmt: skip
    assert changed["quiet_hours"] == {"start": "22:00", "end": "07:00", "timezone": "Europe/Berlin"}
    assert (changed["group_seconds"], changed["recovered"], changed["tags"]) == (300, False, ["pay"])
    assert [row[0] for row in detent("alert-rule", "list").rows] == ["ops"]
    tried = detent("alert-rule", "test", "ops")
    assert (tried.code, tried.err) == (0, "The receiver of ops got the test message.\n")
    assert Hook.bodies[-1]["type"] == "alert.test"
    (message,) = told(detent, "alert-rule", "messages", "ops")["items"]
    assert (message["status"], message["event"]) == ("sent", "test")
    shown = detent.on_terminal("alert-rule", "get", "ops").out
    assert re.search(r"^Last sent +20[-0-9]+ [:0-9]+ UTC \((now|.* ago)\)$", shown, re.M)
    detent("alert-rule", "edit", "ops", "--webhook", f"{hook}/broken", "--quiet-hours", "none")
    failed = detent("alert-rule", "test", "ops")
    assert failed.code == 1 and "answered with status 500" in failed.err
    assert detent("alert-rule", "delete", "ops", "--yes").err == "Deleted alert rule ops.\n"
    assert detent("alert-rule", "get", "ops").code == 3


def test_the_options_of_a_mail_become_its_receiver(detent: CommandLine) -> None:
    detent("secret", "set", "smtp-password", stdin="correct horse")
    rule = told(
        detent, "alert-rule", "create", "mail", "--on", "catch_up", "--ticks", "5", "--email", "a@example.com",
        "--email", "b@example.com", "--from", "detent@example.com", "--smtp", "smtp.example.com:2525", "--smtp-tls",
        "implicit", "--smtp-user", "detent", "--smtp-password", "smtp-password",
    )  # fmt: skip
    assert rule["receiver"] == {
        "type": "email", "host": "smtp.example.com", "port": 2525, "tls": "implicit", "sender": "detent@example.com",
        "to": ["a@example.com", "b@example.com"], "username": "detent", "password": {"secret": "smtp-password"},
    }  # fmt: skip
    assert rule["catch_up_ticks"] == 5


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (("--webhook", "https://example.com/"), "--on is missing"),
        (("--on", "dead"), "The receiver is missing"),
        (("--on", "burning", "--slack", "https://example.com/"), "burning"),
        (("--on", "dead", "--slack", "https://example.com/", "--pagerduty", "k"), "a rule has one receiver"),
        (("--on", "dead", "--email", "a@example.com"), "--smtp is missing"),
        (("--on", "dead", "--slack", "https://example.com/", "--quiet-hours", "22"), "22:00-07:00"),
        (("--on", "dead", "--pagerduty", "nowhere"), "detent secret set nowhere"),
    ],
)
def test_bad_options_are_refused_with_the_way_out(detent: CommandLine, options: tuple[str, ...], part: str) -> None:
    done = detent("alert-rule", "create", "bad", *options)
    assert done.code == 2 and part in done.err
    assert detent("alert-rule", "get", "bad").code == 3
