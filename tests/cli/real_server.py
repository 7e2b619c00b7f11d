"""A real server in its own process, on a database of its own, and the command line pointed at it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from detent.client import JsonClient
from tests.cli.command_line import CommandLine

READY = re.compile(r"listening on (http://\S+)")
STOP_SECONDS = 30


class RealServer:
    """`detent serve`; it can be killed and started again, on the same port."""

    def __init__(self, folder: Path, database_url: str, *options: str, **variables: str) -> None:
        self.folder = folder
        self._variables = variables
        self.url = ""
        self._arguments = ["serve", "--database-url", database_url, *options]
        self._process: subprocess.Popen[bytes] | None = None
        self._starts = 0

    def start(self) -> None:
        port = self.url.rpartition(":")[2] or "0"
        self._starts += 1
        log = self.folder / f"server-{self._starts}.log"
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "detent", *self._arguments, "--port", port],
                cwd=self.folder,
                env=CommandLine(self.folder, "").environ
                | {"DETENT_API_URL": "", "DETENT_LEASE_TTL_SECONDS": "2", **self._variables},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        from tests.support.waiting import until_sync

        ended = self._process.poll
        until_sync(lambda: READY.search(log.read_text()) or ended() is not None, 60, "the server to listen")
        found = READY.search(log.read_text())
        assert found is not None, log.read_text()
        self.url = found[1]

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        assert self._process.wait() == -signal.SIGKILL

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait(STOP_SECONDS)

    @property
    def client(self) -> JsonClient:
        return JsonClient(self.url)


@contextmanager
def running(folder: Path, database_url: str, *options: str, **variables: str) -> Iterator[RealServer]:
    server = RealServer(folder, database_url, *options, **variables)
    server.start()
    try:
        yield server
    finally:
        server.stop()
