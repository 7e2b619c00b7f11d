"""Real `detent` processes: started with an environment of their own, killed and stopped, their logs kept."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from detent.client import JsonClient
from tests.support.waiting import until

START_SECONDS = 60.0
END_SECONDS = 45.0
# The interpreter of an environment with this version, and of one with the version before, where that is to be tried.
PRESENT = Path(sys.executable)
PREVIOUS = Path(os.environ.get("DETENT_TEST_PREVIOUS", PRESENT))
READY = re.compile(r"^(?:listening on (https?://\S+)|[a-z]+ ready)$", re.MULTILINE)


def environment(home: Path, **variables: str) -> dict[str, str]:
    """The environment of a process of a test: without the settings of the user who runs the tests."""
    kept = {name: os.environ[name] for name in ("PATH", "TMPDIR") if name in os.environ}
    return {**kept, "HOME": str(home), "LANG": "C.UTF-8", **variables}


class Node:
    """One process; its log is a file, so that nothing is lost when it dies."""

    def __init__(
        self,
        folder: Path,
        name: str,
        arguments: list[str],
        environ: dict[str, str],
        python: Path = PRESENT,
    ) -> None:
        """`python` is the one of an environment with another version, if it is not to be this one."""
        self.name = name
        self.python = python
        self.log = folder / f"{name}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [python, "-m", "detent", *arguments],
                cwd=folder,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._client: JsonClient | None = None

    # --- what it says ---

    @property
    def text(self) -> str:
        return self.log.read_text("utf-8", "replace")

    @property
    def url(self) -> str:
        found = READY.search(self.text)
        assert found is not None, f"{self.name} never said where it listens:\n{self.text}"
        assert found[1] is not None, f"{self.name} has no API"
        return found[1]

    @property
    def client(self) -> JsonClient:
        if self._client is None:
            self._client = JsonClient(self.url)
        return self._client

    def events(self, event: str) -> list[dict[str, Any]]:
        """The lines of its log that tell of this."""
        lines = [json.loads(line) for line in self.text.splitlines() if line.startswith("{")]
        return [line for line in lines if line["event"] == event]

    @property
    def identities(self) -> list[str]:
        """The names under which it has joined, in order."""
        return [line["node"] for line in self.events("joined")]

    @property
    def is_ready(self) -> bool:
        return READY.search(self.text) is not None

    @property
    def is_stopped(self) -> bool:
        """As with SIGSTOP."""
        return self._state() == "T"

    async def ready(self) -> Node:
        await until(lambda: READY.search(self.text) or self._over(), START_SECONDS, f"{self.name} to be ready")
        assert READY.search(self.text), f"{self.name} ended with code {self.process.returncode}:\n{self.text}"
        return self

    async def says(self, event: str, count: int = 1) -> None:
        await until(lambda: len(self.events(event)) >= count, START_SECONDS, f"{self.name} to say {event!r}")

    # --- what is done to it ---

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def kill(self) -> None:
        self.process.kill()
        assert await self.ended() == -signal.SIGKILL

    async def stopped(self) -> None:
        """Wait until the process has stopped itself, as with SIGSTOP."""
        await until(lambda: self.is_stopped or self._over(), START_SECONDS, f"{self.name} to stop")
        assert self.is_stopped, f"{self.name} ended instead of stopping:\n{self.text}"

    async def ended(self, seconds: float = END_SECONDS) -> int:
        """Its exit code; of a process that a signal killed, the signal's number below zero."""
        await until(self._over, seconds, f"{self.name} to end")
        code: int = self.process.returncode
        return code

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def _over(self) -> bool:
        return self.process.poll() is not None

    def _state(self) -> str:
        try:
            status = Path(f"/proc/{self.process.pid}/stat").read_text()
        except OSError:
            return ""
        return status.rpartition(")")[2].split()[0]


class Nodes:
    """The processes of one test: all of them are gone after it."""

    def __init__(self, folder: Path, **variables: str) -> None:
        self.folder = folder
        self.variables = variables
        self.started: list[Node] = []
        self._kept: list[tuple[str, str]] | None = None

    def begin(self, role: str, *arguments: str, python: Path | None = None, **variables: str) -> Node:
        """Start a process without waiting for it. `variables` are DETENT_ settings, or others with capitals. Unless a
        version is asked for, every second process is of the previous one where there is one to try."""
        environ = environment(self.folder, **self.variables)
        for name, value in variables.items():
            environ[name if name.isupper() else f"DETENT_{name.upper()}"] = value
        if role in ("serve", "api"):
            arguments = ("--port", "0", *arguments)
        version = python or (PREVIOUS if len(self.started) % 2 else PRESENT)
        node = Node(self.folder, f"{role}-{len(self.started) + 1}", [role, *arguments], environ, version)
        self.started.append(node)
        return node

    async def start(self, role: str, *arguments: str, python: Path | None = None, **variables: str) -> Node:
        return await self.begin(role, *arguments, python=python, **variables).ready()

    async def run(self, *arguments: str, python: Path | None = None, **variables: str) -> tuple[int, str]:
        """A command that ends by itself: its exit code, and all it printed."""
        environ = environment(self.folder, **variables)
        node = Node(self.folder, f"{arguments[0]}-{len(self.started) + 1}", list(arguments), environ, python or PRESENT)
        self.started.append(node)
        return await node.ended(), node.text

    @property
    def logs(self) -> list[tuple[str, str]]:
        """By name, also after the folder is gone."""
        return [(node.name, node.text) for node in self.started] if self._kept is None else self._kept

    def close(self) -> None:
        if self._kept is not None:
            return
        for node in self.started:
            node.close()
        self._kept = self.logs
        for data in {path.parent for path in self.folder.rglob("postmaster.pid")}:
            stop_left_over_server(data)


def unexpected_tracebacks(text: str) -> list[str]:
    """The lines of a log with a traceback that is not of a handler: those of failed attempts are there on purpose."""
    return [line for line in text.splitlines() if "Traceback" in line and not line.startswith('{"part": "run"')]


def stop_left_over_server(cluster: Path) -> None:
    """A test that killed everything leaves the embedded PostgreSQL running."""
    try:
        process = int((cluster / "postmaster.pid").read_text().split()[0])
        os.kill(process, signal.SIGQUIT)
    except (OSError, ValueError, IndexError):
        return


def is_alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"  # no process here reaps the server's process


async def command_line(folder: Path, url: str, *arguments: str, **variables: str) -> tuple[int, str, str]:
    """Run `detent …` as a command: exit code, stdout, stderr."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "detent", *arguments),
        cwd=folder,
        env=environment(folder, DETENT_API_URL=url, **variables),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()
