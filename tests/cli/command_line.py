"""The real command line, run as its own process: into pipes, and on a terminal of its own."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any, NamedTuple

LIMIT_SECONDS = 60
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Finished(NamedTuple):
    code: int
    out: str
    err: str = ""

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.out.splitlines()]

    @property
    def rows(self) -> list[list[str]]:
        return [line.split("\t") for line in self.out.splitlines()]


class CommandLine:
    """`detent …` as a person types it, in a folder and with an environment of its own."""

    def __init__(self, folder: Path, api_url: str) -> None:
        self.folder = folder
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "DETENT_API_URL": api_url,
        }

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "detent", *arguments]

    def start(self, *arguments: str, **settings: Any) -> subprocess.Popen[bytes]:
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(self.command(*arguments), cwd=self.folder, **{"env": self.environ, **pipes, **settings})

    def __call__(self, *arguments: str, stdin: str = "", **environ: str) -> Finished:
        done = subprocess.run(
            self.command(*arguments),
            cwd=self.folder,
            env=self.environ | environ,
            input=stdin.encode(),
            capture_output=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )
        return Finished(done.returncode, done.stdout.decode(), done.stderr.decode())

    def on_terminal(
        self, *arguments: str, width: int = 100, typed: str = "", raw: bool = False, **environ: str
    ) -> Finished:
        """What a person sees who types this; stdout and stderr come as one."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
        terminal = {"TERM": "xterm", "PYTHONFAULTHANDLER": "1"}
        process = self.start(
            *arguments, stdin=theirs, stdout=theirs, stderr=theirs, env=self.environ | terminal | environ
        )
        os.close(theirs)
        os.write(ours, typed.encode())
        seen = _read_until_closed(ours, process)
        code = process.wait(LIMIT_SECONDS)
        os.close(ours)
        text = seen.decode().replace("\r\n", "\n")
        return Finished(code, text if raw else ESCAPES.sub("", text))


def _read_until_closed(descriptor: int, process: subprocess.Popen[bytes]) -> bytes:
    """A command that hangs is aborted after the limit, so that its stack is in what is returned."""
    seen = b""
    abort_at = time.monotonic() + LIMIT_SECONDS
    while True:
        ready, _, _ = select.select([descriptor], [], [], max(abort_at - time.monotonic(), 0))
        if not ready:
            abort_at += LIMIT_SECONDS
            process.send_signal(signal.SIGABRT)
            continue
        try:
            more = os.read(descriptor, 65536)
        except OSError:  # how Linux says that no process has the other end open
            return seen
        if not more:
            return seen
        seen += more
