"""One process for handlers, as the node sees it: started once, given one call after another, ended with its group.

A process that dies during a call is one failed attempt of that call's run. If it had not reported that the call began,
the handler was surely not called.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

import msgspec

from detent.domain.run import Call, Failed, NotBegun, Outcome
from detent.domain.run_output import OutputChunk, ProgressMark
from detent.targets.calls import timed_out
from detent.targets.exit_watch import ExitWatch
from detent.targets.frames import (
    LENGTH_BYTES,
    Ask,
    Begun,
    CallAnswer,
    CallDone,
    FromProcess,
    Holding,
    ProcessReady,
    Setup,
    Stop,
    ToProcess,
    Unfit,
    frame,
    length_of,
    outcome_in,
    read_by_node,
    start_of,
)

MODULE = "detent.node.handler_process"
READY_WITHIN = 60.0
GRACE = 2.0
RETIRE_SECONDS = 15.0
_EXIT_SECONDS = 1.0

Hold = Callable[[Call], Holding | None]
Receive = Callable[[OutputChunk | ProgressMark], None]


class UnfitError(Exception):
    """No process for handlers could be started."""


class _DiedError(Exception):
    """The process ended before it was ready."""


class HandlerProcess:
    """Must be used inside a running event loop, and by one call at a time."""

    def __init__(
        self, process: subprocess.Popen[bytes], ours: socket.socket, hold: Hold, receive: Receive = lambda message: None
    ) -> None:
        """`receive` gets the lines and the progress of the calls."""
        self._process = process
        self._ours = ours
        self._hold = hold
        self._receive = receive
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._call: Call | None = None
        self._begun = asyncio.Event()
        self._over: asyncio.Future[Outcome] = self._loop.create_future()
        self._reading: asyncio.Task[None] | None = None
        self.runs = 0
        self.idle_since = 0.0
        self._watch = ExitWatch(process, self._on_exit)

    @classmethod
    async def start(cls, setup: Setup, hold: Hold, receive: Receive = lambda message: None) -> HandlerProcess:
        """A process that is ready, or UnfitError. Started from the main thread: Linux ends a child that asked for it
        with the thread that started it."""
        process, ours = _spawn()
        child = cls(process, ours, hold, receive)
        try:
            await child._open(setup)
        except _DiedError:
            await child.kill()
            raise UnfitError(f"it died ({exit_text(process.returncode)})") from None
        except BaseException:
            await to_the_end(child.kill())
            raise
        return child

    async def _open(self, setup: Setup) -> None:
        self._reader, self._writer = await asyncio.open_unix_connection(sock=self._ours)
        self._reading = self._loop.create_task(self._read())
        self._send(setup)
        try:
            async with asyncio.timeout(READY_WITHIN):
                await self._ready
        except TimeoutError:
            raise UnfitError(f"it was not ready within {READY_WITHIN:g} s") from None

    @property
    def alive(self) -> bool:
        return not self._watch.exited.is_set() and self._reading is not None and not self._reading.done()

    async def run(self, call: Call) -> Outcome | NotBegun:
        """Call a handler. Afterwards `alive` says whether the process can be used again."""
        self.runs += 1
        self._call, self._over = call, self._loop.create_future()
        self._begun.clear()
        try:
            self._send(start_of(call))
            return await self._outcome(call.timeout_seconds)
        finally:
            self._call = None

    async def _outcome(self, timeout_seconds: float) -> Outcome | NotBegun:
        try:
            async with asyncio.timeout(READY_WITHIN):
                await self._first(self._begun.wait())
            async with asyncio.timeout(timeout_seconds):
                await self._first(asyncio.shield(self._over))
        except TimeoutError:
            await to_the_end(self._interrupt())
            return timed_out(timeout_seconds) if self._begun.is_set() else NotBegun("A process for handlers hung.")
        except asyncio.CancelledError:
            await to_the_end(self._interrupt())
            raise
        if self._over.done():
            return self._over.result()
        await self.kill()
        how = exit_text(self._process.returncode)
        return Failed(f"The handler's process died ({how}).") if self._begun.is_set() else NotBegun(f"It died ({how}).")

    async def _first(self, event: Awaitable[object]) -> None:
        """Wait until this has happened, or everything that the process had sent has been read."""
        assert self._reading is not None
        waiting = asyncio.ensure_future(event)
        try:
            await asyncio.wait((waiting, self._reading), return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()

    async def _interrupt(self) -> None:
        """Ask the handler to end, give it a moment, then kill it."""
        self._send(Stop())
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE):
                await self._first(asyncio.shield(self._over))
        if not self._over.done():
            await self.kill()

    async def retire(self) -> None:
        """No more calls: the process ends when its socket is closed, after the shut-down hooks of its app. It limits
        the time for these itself."""
        self._close_socket()
        with suppress(TimeoutError):
            async with asyncio.timeout(RETIRE_SECONDS):
                await self._watch.exited.wait()
        await self.kill()

    async def kill(self) -> None:
        """End it and all it has started in its session, and read its last output. It is reaped last: until then no
        other process can have its number."""
        self._kill_group()
        await self._wait_for_exit()
        if self._reading is not None:
            await asyncio.wait({self._reading}, timeout=_EXIT_SECONDS)
            self._reading.cancel()
        self._close_socket()
        self._watch.close()
        self._process.poll()

    def _close_socket(self) -> None:
        if self._reading is not None:
            self._writer.close()
        else:
            self._ours.close()

    # --- messages from and to the process ---

    def _send(self, message: ToProcess) -> None:
        if not self._writer.is_closing():
            self._writer.write(frame(message))

    async def _read(self) -> None:
        try:
            while True:
                header = await self._reader.readexactly(LENGTH_BYTES)
                self._hear(read_by_node(await self._reader.readexactly(length_of(header))))
        except (asyncio.IncompleteReadError, OSError, msgspec.MsgspecError):
            await self._wait_for_exit()
        if not self._ready.done():
            self._ready.set_exception(_DiedError())

    async def _wait_for_exit(self) -> None:
        """Its socket is closed, so it ends or has ended; one that does not is killed by `kill`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_EXIT_SECONDS):
                await self._watch.exited.wait()

    def _hear(self, message: FromProcess) -> None:
        match message:
            case ProcessReady():
                self._ready.set_result(None)
            case Unfit(error=error):
                self._ready.set_exception(UnfitError(error))
            case Begun():
                self._begun.set()
            case Ask(number=number):
                self._send(CallAnswer(number, None if self._call is None else self._hold(self._call)))
            case OutputChunk() | ProgressMark():
                call = self._call  # only of its own run: a process is not trusted with those of others
                if call is not None and (call.run_id, call.token) == (message.run_id, message.token):
                    self._receive(message)
            case CallDone():
                if not self._over.done():
                    self._over.set_result(outcome_in(message))

    # --- its end ---

    def _on_exit(self) -> None:
        """Kill what it forked too: that may hold its socket open, and reading would not end."""
        self._kill_group()
        self._loop.call_later(_EXIT_SECONDS, self._stop_reading)

    def _kill_group(self) -> None:
        if self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _stop_reading(self) -> None:
        if self._reading is not None:
            self._reading.cancel()


def _spawn() -> tuple[subprocess.Popen[bytes], socket.socket]:
    """The process, and our end of the socket to it."""
    ours, theirs = socket.socketpair()
    with theirs:
        command = [sys.executable, "-P", "-m", MODULE, str(theirs.fileno()), str(os.getpid())]
        try:
            process = subprocess.Popen(  # noqa: S603 (our own module)
                command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], start_new_session=True
            )
        except OSError as error:
            ours.close()
            raise UnfitError(f"it cannot be started ({error.strerror or error})") from error
    return process, ours


async def to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """Finish this even if the caller is cancelled again meanwhile; the caller raises the cancellation afterwards."""
    task = asyncio.ensure_future(work)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.shield(task)


def exit_text(code: int | None) -> str:
    if code is None:
        return "it did not end"
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
