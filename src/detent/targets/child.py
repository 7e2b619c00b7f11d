"""One command as the node sees it: started, its output read, and ended with everything it started.

The command's supervisor (`command_server.py`) reports how it ends, and closes its socket when nothing is left of it.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import ExitStack, suppress

from detent.targets.capture import Capture
from detent.targets.command_server import (
    EXITED,
    KILL,
    KILL_SECONDS,
    MESSAGE,
    NO_COMMAND,
    NO_FOLDER,
    NO_USER,
    STARTED,
    TERMINATE,
)
from detent.targets.commands import Command, CommandServer
from detent.targets.output import AttemptOutput

_CHUNK = 65_536
_END_SECONDS = KILL_SECONDS + 1.0


class RefusedError(Exception):
    """The command was not executed."""

    def __init__(self, step: int, error: OSError) -> None:
        super().__init__(step, error)
        self.step = step
        self.error = error


class Child:
    """Must be used inside a running event loop; `end` must be awaited at the end, whatever happened."""

    def __init__(
        self,
        server: CommandServer,
        command: Command,
        payload: bytes,
        limit: int,
        output: AttemptOutput | None = None,
    ) -> None:
        """`output`: where its lines go while it runs. Raises OSError when the request cannot be sent."""
        with ExitStack() as stack:
            self._output, writable = os.pipe()
            stack.callback(os.close, writable)
            try:
                if command.user is not None:  # so that it can open /dev/stdout, like any other user
                    os.fchown(writable, command.user.uid, -1)
                self._control = server.begin(command, payload, writable)
            except BaseException:
                os.close(self._output)
                raise
        self._started, self._exited = asyncio.Event(), asyncio.Event()
        self._silent, self._gone = asyncio.Event(), asyncio.Event()
        self._refusal: tuple[int, int] | None = None
        self._supervisor: int | None = None
        self._received = bytearray()
        self.code: int | None = None
        self.capture = Capture(limit)
        self._lines = output
        os.set_blocking(self._output, False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._output, self._on_output)
        self._loop.add_reader(self._control.fileno(), self._on_message)

    async def started(self) -> None:
        """Wait until the command is executed. Raises RefusedError."""
        await self._started.wait()
        if self._refusal is not None:
            step, number = self._refusal
            raise RefusedError(step, OSError(number, os.strerror(number)))

    async def wait(self, linger: float) -> None:
        """Wait until the command has ended, and then up to `linger` seconds for the last output of processes that it
        left running. `code` is then its exit code; negative: a signal; None: its supervisor was killed."""
        await self._exited.wait()
        await _within(linger, self._silent)

    async def stop(self, grace: float) -> None:
        """Ask the command and all it has started to end, and wait at most `grace` seconds."""
        self._send(TERMINATE)
        await _within(grace, self._gone)

    async def end(self) -> None:
        """Kill what is left, and close."""
        if not self._gone.is_set():
            self._send(KILL)
            await _within(_END_SECONDS, self._gone)
        if not self._gone.is_set() and self._supervisor is not None:  # it was stopped: then its server kills the rest
            with suppress(ProcessLookupError, PermissionError):
                os.kill(self._supervisor, signal.SIGKILL)
        self._loop.remove_reader(self._control.fileno())
        self._loop.remove_reader(self._output)
        self._control.close()
        os.close(self._output)

    def _send(self, order: bytes) -> None:
        with suppress(OSError):  # nothing is left of it
            self._control.send(order)

    def _on_message(self) -> None:
        try:
            data = self._control.recv(4096)
        except (BlockingIOError, InterruptedError):
            return
        except ConnectionError:
            data = b""
        self._received += data
        while len(self._received) >= MESSAGE.size:
            self._on_report(*MESSAGE.unpack_from(self._received))
            del self._received[: MESSAGE.size]
        if not data:
            self._loop.remove_reader(self._control.fileno())
            for event in (self._started, self._exited, self._gone):
                event.set()

    def _on_report(self, kind: int, number: int) -> None:
        if kind == STARTED:
            self._supervisor = number
            self._started.set()
        elif kind == EXITED:
            self.code = number
            self._exited.set()
        elif kind in (NO_USER, NO_FOLDER, NO_COMMAND):
            self._refusal = kind, number
            self._started.set()

    def _on_output(self) -> None:
        try:
            data = os.read(self._output, _CHUNK)
        except (BlockingIOError, InterruptedError):
            return
        if data:
            self.capture.feed(data)
            if self._lines is not None:
                self._lines.feed(data)
        else:
            self._loop.remove_reader(self._output)
            self._silent.set()


async def _within(seconds: float, event: asyncio.Event) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
