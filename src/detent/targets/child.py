"""One command as a process of its own: started, its output read, and ended with everything it started.

The process is not reaped before its group has been killed for the last time: until then no other process can get its
number, so the signal cannot hit a stranger.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from pathlib import Path

from detent.targets import process_tree
from detent.targets.capture import Capture
from detent.targets.exit_watch import ExitWatch

_CHUNK = 65_536
_LONGEST_PAUSE = 0.3
_KILL_ROUNDS = 50
_KILL_PAUSE = 0.02
_DYING_SECONDS = 1.0


class Child:
    """Must be used inside a running event loop; `finish` must be called at the end, whatever happened."""

    def __init__(self, process: subprocess.Popen[bytes], output: int, limit: int) -> None:
        self._process = process
        self._output = output
        self._loop = asyncio.get_running_loop()
        self._watch = ExitWatch(process)
        self._silent = asyncio.Event()
        self.capture = Capture(limit)
        os.set_blocking(output, False)
        self._loop.add_reader(output, self._on_output)

    @classmethod
    def start(
        cls, words: Sequence[bytes], environment: dict[bytes, bytes], folder: Path, payload: bytes, limit: int
    ) -> Child:
        """Raises OSError or ValueError when there is no such command or it cannot be started."""
        with ExitStack() as stack:
            source = _payload_file(payload)
            stack.callback(os.close, source)
            readable, writable = os.pipe()
            stack.callback(os.close, writable)
            try:
                process = subprocess.Popen(  # noqa: S603 (running what the job says is what this target is for)
                    words,
                    stdin=source,
                    stdout=writable,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    cwd=folder,
                    start_new_session=True,
                )
            except BaseException:
                os.close(readable)
                raise
        return cls(process, readable, limit)

    async def wait(self, linger: float) -> None:
        """Until the command has ended, and then a moment for the last output of what it left running."""
        await self._watch.exited.wait()
        try:
            async with asyncio.timeout(linger):
                await self._silent.wait()
        except TimeoutError:
            pass

    async def stop(self, grace: float, marks: tuple[bytes, ...], executor: Executor) -> None:
        """End the command and all it has started: ask, wait at most `grace` seconds, kill."""

        async def find(known: frozenset[process_tree.Member]) -> frozenset[process_tree.Member]:
            if not process_tree.can_look():
                return frozenset()
            return await self._loop.run_in_executor(executor, process_tree.family, self._process.pid, marks, known)

        members = await find(frozenset())
        process_tree.send(self._process.pid, members, signal.SIGTERM)
        deadline, pause = self._loop.time() + grace, 0.01
        while (members or not self._watch.exited.is_set()) and self._loop.time() < deadline:
            await asyncio.sleep(min(pause, deadline - self._loop.time()))
            pause = min(2 * pause, _LONGEST_PAUSE)
            members = await find(members)
        for _ in range(_KILL_ROUNDS):
            process_tree.send(self._process.pid, members, signal.SIGKILL)
            members = await find(members)
            if not members:
                break
            await asyncio.sleep(_KILL_PAUSE)
        try:
            async with asyncio.timeout(_DYING_SECONDS):
                await self._watch.exited.wait()
        except TimeoutError:  # it hangs inside the kernel; its end will be noticed when it comes
            pass

    def finish(self) -> int | None:
        """Kill what is left of the group, reap, close. The exit code: negative a signal, None still dying."""
        process_tree.send(self._process.pid, frozenset(), signal.SIGKILL)
        self._loop.remove_reader(self._output)
        os.close(self._output)
        self._watch.close()
        return self._process.wait() if self._watch.exited.is_set() else self._process.poll()

    def _on_output(self) -> None:
        try:
            data = os.read(self._output, _CHUNK)
        except (BlockingIOError, InterruptedError):
            return
        if data:
            self.capture.feed(data)
        else:
            self._loop.remove_reader(self._output)
            self._silent.set()


def _payload_file(payload: bytes) -> int:
    """A file instead of a pipe: a command that does not read its input cannot block the node."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("payload")
    else:
        descriptor, name = tempfile.mkstemp()
        Path(name).unlink()
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(payload)
        os.lseek(descriptor, 0, os.SEEK_SET)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
