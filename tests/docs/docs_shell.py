"""A reader's shell: the blocks of one page run in it one after another, and what one exports the next one has.

A block of commands (`sh`) runs as a script that stops at the first failure. In a block with prompts (`console`) every
command runs on a terminal, and what it prints is compared with what stands below it: there `…` stands for anything, a
line of its own for any number of lines, and runs of spaces count as one.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import shlex
import signal
import struct
import subprocess
import termios
from collections.abc import Iterator
from pathlib import Path

from tests.docs.docs_pages import ROOT, Block
from tests.support.waiting import until_sync

LIMIT_SECONDS = 60
COLUMNS = 100
# The last is what uvicorn and Flask say.
READY = re.compile(r"^(listening on https?://\S+|[a-z]+ ready)$|[Rr]unning on http://", re.MULTILINE)
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\]8;[^\x1b]*\x1b\\")

_SCRIPT = """\
set -a -e -o pipefail
if [ -f {state} ]; then . {state}; cd "$(cat {folder})"; fi
trap 'code=$?; declare -px > {state}; pwd > {folder}; exit $code' EXIT
{commands}
"""


class Shell:
    def __init__(
        self,
        home: Path,
        start: Path,
        variables: dict[str, str],
        rewrites: dict[str, str],
        patience: float = LIMIT_SECONDS,
    ) -> None:
        """`start` is the folder the reader begins in, `rewrites` what is meant where a page says something else, and
        `patience` how long a server may take until it is ready."""
        self.home = home
        self.start = start
        self.rewrites = rewrites
        self.patience = patience
        self.environ = {
            "PATH": f"{ROOT / '.venv/bin'}:{os.environ['PATH']}",
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "TERM": "xterm",
            "NO_COLOR": "1",
            "COLUMNS": str(COLUMNS),
            **variables,
        }
        self.servers: list[subprocess.Popen[bytes]] = []
        self._count = 0

    # --- blocks ---

    def run(self, block: Block) -> None:
        if block.is_server:
            self.serve(block)
        elif block.language == "console":
            for command, expected in conversation(block):
                self._compare(block, command, expected)
        else:
            code, output = self._execute(block.text)
            assert code == block.exit_code, f"{block.place} ended with {code}:\n{block.text}\n{output}\n{self.logs}"

    def prints(self, block: Block) -> None:
        """A text is what some command prints, whatever its exit code."""
        before, _, command = block.marker.partition("printed by: ")
        assert command and not before, f"{block.place} is a text: say above it which command it is printed by"
        _, output = self._execute_on_terminal(f"{command} || true")
        assert block.text.strip() in " ".join(output.split()), f"{block.place}: {command} printed\n{output}"

    def serve(self, block: Block) -> None:
        """Start what keeps running, and wait until it says that it is ready."""
        if block.marker == "server instead":
            self.stop_servers()
        lines = block.text.splitlines()
        lines[-1] = f"exec {lines[-1].removeprefix('$ ')}"  # the server is this process, so that it can be stopped
        log = self.home / f"server-{block.line}.log"
        with log.open("wb") as file:
            server = subprocess.Popen(
                ["bash", str(self._script("\n".join(lines)))],
                cwd=self.start,
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        self.servers.append(server)
        until_sync(
            lambda: READY.search(log.read_text("utf-8", "replace")) or server.poll() is not None,
            self.patience,
            f"{block.place} to be ready",
        )
        text = log.read_text("utf-8", "replace")
        assert server.poll() is None and READY.search(text), f"{block.place} did not start:\n{text}"

    def stop_servers(self) -> None:
        """As Ctrl-C does, with everything that they started."""
        for server in reversed(self.servers):
            if server.poll() is None:
                os.killpg(server.pid, signal.SIGTERM)
        for server in self.servers:
            try:
                server.wait(LIMIT_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(server.pid, signal.SIGKILL)
                server.wait()
                raise
        self.servers.clear()

    @property
    def logs(self) -> str:
        """What the servers of this page had to say last."""
        return "\n".join(log.read_text("utf-8", "replace")[-4000:] for log in sorted(self.home.glob("server-*.log")))

    @property
    def folder(self) -> Path:
        """Where the reader is now."""
        kept = self.home / ".docs-folder"
        return Path(kept.read_text().strip()) if kept.exists() else self.start

    # --- one command ---

    def _script(self, commands: str) -> Path:
        for written, meant in self.rewrites.items():
            commands = commands.replace(written, shlex.quote(meant) if "&" in meant else meant)
        self._count += 1
        script = self.home / f"script-{self._count}.sh"
        state, folder = (shlex.quote(str(self.home / name)) for name in (".docs-state", ".docs-folder"))
        script.write_text(_SCRIPT.format(state=state, folder=folder, commands=commands))
        return script

    def _execute(self, commands: str) -> tuple[int, str]:
        done = subprocess.run(
            ["bash", str(self._script(commands))],
            cwd=self.start,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=LIMIT_SECONDS,
            start_new_session=True,
        )
        return done.returncode, done.stdout.decode("utf-8", "replace")

    def _execute_on_terminal(self, commands: str) -> tuple[int, str]:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
        process = subprocess.Popen(
            ["timeout", str(LIMIT_SECONDS), "bash", str(self._script(commands))],
            cwd=self.start,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        pieces = bytearray()
        with os.fdopen(ours, "rb", buffering=0) as terminal:
            try:
                while piece := terminal.read(65536):
                    pieces += piece
            except OSError:  # how Linux reports that the other end is closed
                pass
        return process.wait(), ESCAPES.sub("", pieces.decode("utf-8", "replace")).replace("\r\n", "\n")

    def _compare(self, block: Block, command: str, expected: list[str]) -> None:
        code, output = self._execute_on_terminal(command)
        assert code == block.exit_code, f"{block.place} ended with {code}:\n{command}\n{output}\n{self.logs}"
        for written, meant in self.rewrites.items():
            output = output.replace(meant, written)
        if expected:
            pattern = pattern_of(expected)
            assert pattern.fullmatch(normal(output)), (
                f"{block.place}: {command}\nprinted\n{output}\nand the page says\n" + "\n".join(expected)
            )


def conversation(block: Block) -> Iterator[tuple[str, list[str]]]:
    """The commands of a block with prompts, each with the lines that it is said to print."""
    command: list[str] = []
    printed: list[str] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            if command:
                yield "\n".join(command), printed
            command, printed = [line[2:]], []
        elif line.startswith("> ") and command and not printed:
            command.append(line[2:])
        else:
            assert command, f"{block.place} begins without a prompt"
            printed.append(line)
    assert command, f"{block.place} has no command"
    yield "\n".join(command), printed


def normal(text: str) -> str:
    return "".join(f"{' '.join(line.split())}\n" for line in text.splitlines() if line.strip())


def pattern_of(lines: list[str]) -> re.Pattern[str]:
    pieces = []
    for line in lines:
        words = " ".join(line.split())
        if words == "…":
            pieces.append(r"(?:.*\n)*?")
        elif words:
            pieces.append(".*".join(map(re.escape, words.split("…"))) + r"\n")
    return re.compile("".join(pieces))
