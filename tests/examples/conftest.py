"""A real server in a separate process, on a separate database."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.waiting import until_sync

LISTENING = re.compile(r"^listening on (http://\S+)$", re.MULTILINE)


@pytest.fixture
def server_url(database_url: str, tmp_path: Path) -> Iterator[str]:
    log = tmp_path / "serve.log"
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "DETENT_DATABASE_URL": database_url}
    with log.open("wb") as out:
        command = [sys.executable, "-m", "detent", "serve", "--port", "0"]
        server = subprocess.Popen(command, cwd=tmp_path, env=environ, stdout=out, stderr=out)
    try:
        found = until_sync(lambda: LISTENING.search(log.read_text()), 60, "the server to listen")
        yield found[1]
    finally:
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0, log.read_text()
    assert "Traceback" not in log.read_text(), log.read_text()
