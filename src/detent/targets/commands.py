"""The node's end of the process that starts commands (`command_server.py`)."""

from __future__ import annotations

import asyncio
import fcntl
import marshal
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from detent.targets import command_server
from detent.targets.exit_watch import ExitWatch
from detent.targets.shell_user import ShellUser
from detent.telemetry.log import logger

log = logger("shell")

# What an interpreter may need to start. Nothing else of the node's environment, which holds the database's password.
_KEPT_VARIABLES = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
_CLOSE_SECONDS = command_server.KILL_SECONDS + 1.0


class Command(NamedTuple):
    words: Sequence[bytes]
    environment: dict[bytes, bytes]
    folder: Path
    user: ShellUser | None

    def description(self) -> bytes:
        identity = None if self.user is None else (self.user.uid, self.user.gid, list(self.user.groups))
        return marshal.dumps((list(self.words), self.environment, os.fsencode(self.folder), identity))


class CommandServer:
    """Started when the first command needs it, and again if it has ended."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._requests: socket.socket | None = None

    def start(self) -> socket.socket:
        """The socket for requests to a server that runs."""
        if self._requests is None or self._process is None:
            self._process, self._requests = _spawn()
        return self._requests

    def begin(self, command: Command, payload: bytes, output: int) -> socket.socket:
        """Have a command started that writes to `output`; our end of the socket to its supervisor. Raises OSError."""
        with ExitStack() as stack:
            stack.callback(os.close, description := _sealed_file(command.description()))
            stack.callback(os.close, source := _sealed_file(payload))
            ours, theirs = socket.socketpair()
            stack.enter_context(theirs)
            try:
                self._send([description, source, output, theirs.fileno()])
            except BaseException:
                ours.close()
                raise
        ours.setblocking(False)
        return ours

    def _send(self, descriptors: list[int]) -> None:
        try:
            socket.send_fds(self.start(), [b"\0"], descriptors)
        except ConnectionError:
            log.error("the process that starts commands has ended, and is started again")
            self._forget()
            socket.send_fds(self.start(), [b"\0"], descriptors)

    def _forget(self) -> None:
        if self._requests is not None:
            self._requests.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = self._requests = None

    async def close(self) -> None:
        """The server ends by itself when its socket is closed and no command is left."""
        if self._process is not None and self._requests is not None:
            self._requests.close()
            watch = ExitWatch(self._process)
            try:
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await watch.exited.wait()
            except TimeoutError:
                log.error("the process that starts commands did not end, and is killed")
            finally:
                watch.close()
                self._forget()


def _spawn() -> tuple[subprocess.Popen[bytes], socket.socket]:
    ours, theirs = socket.socketpair()
    environment = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    with theirs:
        try:
            process = subprocess.Popen(  # noqa: S603 (our own module)
                [sys.executable, "-I", "-S", command_server.__file__, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=environment,
                cwd="/",
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
    ours.setblocking(False)
    return process, ours


def _sealed_file(content: bytes) -> int:
    """A file instead of a pipe: a command that does not read its input cannot block the node. It is sealed: a command
    could otherwise write to it, and it is kept in memory."""
    if not hasattr(os, "memfd_create"):
        return _unnamed_file(content)
    descriptor = os.memfd_create("payload", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        _fill(descriptor, content)
        fcntl.fcntl(
            descriptor,
            fcntl.F_ADD_SEALS,
            fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE,
        )
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _unnamed_file(content: bytes) -> int:
    descriptor, name = tempfile.mkstemp()
    try:
        Path(name).unlink()
        _fill(descriptor, content)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _fill(descriptor: int, content: bytes) -> None:
    with os.fdopen(descriptor, "wb", closefd=False) as file:
        file.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
