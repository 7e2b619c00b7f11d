"""The audit of dependencies: real pip-audit, and databases of vulnerabilities that answer in different ways."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.ports import free_port
from tools.audit_dependencies import audit

Knows = Callable[[str], list[str] | None]
LOCK = f"good==1.0 \\\n    --hash=sha256:{'a' * 64}\npoor==2.0 \\\n    --hash=sha256:{'b' * 64}\n"


@contextmanager
def database(knows: Knows) -> Iterator[list[str]]:
    """Answers as OSV does. `knows` gives the ids of a package's vulnerabilities, or None for an error."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            package = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["package"]
            found = knows(package["name"])
            body = json.dumps({"vulns": [vulnerability(package, each) for each in found]} if found else {}).encode()
            self.send_response(500 if found is None else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield options(server.server_port)
        finally:
            server.shutdown()


def vulnerability(package: dict[str, str], name: str) -> dict[str, object]:
    ranges = [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "2.0.1"}]}]
    return {"id": name, "summary": "bad", "affected": [{"package": package, "ranges": ranges}]}


def options(port: int) -> list[str]:
    return ["-s", "osv", "--osv-url", f"http://127.0.0.1:{port}/v1/query"]


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    file = tmp_path / "some.lock"
    file.write_text(LOCK)
    return file


def test_a_finding_fails_and_names_the_package_the_advisory_and_the_fix(
    lock: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with database({"flask": ["OLD-1"], "poor": ["BAD-7"], "good": []}.get) as asked:
        assert audit(asked, lock) == 1
    assert capsys.readouterr().out.splitlines() == [
        "poor 2.0: BAD-7, fixed in 2.0.1",
        "2 packages audited, 1 known vulnerabilities.",
    ]


def test_an_accepted_finding_does_not_fail(lock: Path) -> None:
    with database({"flask": ["OLD-1"], "poor": ["BAD-7"], "good": []}.get) as asked:
        assert audit([*asked, "--ignore-vuln", "BAD-7"], lock) == 0


def test_no_finding_is_a_success_that_counts_the_packages(lock: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with database({"flask": ["OLD-1"], "poor": [], "good": []}.get) as asked:
        assert audit(asked, lock) == 0
    assert capsys.readouterr().out == "2 packages audited, 0 known vulnerabilities.\n"


def test_a_database_that_cannot_be_reached_is_a_visible_skip(lock: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert audit(options(free_port()), lock) == 0
    assert capsys.readouterr().out.startswith("SKIPPED: the database of vulnerabilities cannot be asked (")


def test_a_mirror_without_advisories_is_a_visible_skip_and_not_a_success(
    lock: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with database(lambda _: []) as asked:
        assert audit(asked, lock) == 0
    assert "it knows nothing about flask==0.5" in capsys.readouterr().out


def test_an_audit_that_breaks_off_is_a_failure(lock: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with database({"flask": ["OLD-1"], "good": []}.get) as asked:
        assert audit(asked, lock) == 2
    assert "The audit could not be finished" in capsys.readouterr().err
