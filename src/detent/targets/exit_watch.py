"""Notices the end of a child process without reaping it: until it is reaped, no other process can get its number."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress


class ExitWatch:
    """Must be used inside a running event loop; `close` it before the process is reaped."""

    def __init__(self, process: subprocess.Popen[bytes], on_exit: Callable[[], None] = lambda: None) -> None:
        """`on_exit` is called on the loop, once, before `exited` is set."""
        self._process = process
        self._on_exit = on_exit
        self._loop = asyncio.get_running_loop()
        self._pidfd: int | None = None
        self.exited = asyncio.Event()
        try:
            self._pidfd = os.pidfd_open(process.pid)
        except (AttributeError, OSError):  # not Linux, or a sandbox that forbids it
            threading.Thread(target=self._wait_in_thread, daemon=True).start()
        else:
            self._loop.add_reader(self._pidfd, self._exited)

    def close(self) -> None:
        if self._pidfd is not None:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None

    def _exited(self) -> None:
        self.close()
        self._on_exit()
        self.exited.set()

    def _wait_in_thread(self) -> None:
        self._process.wait()
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._exited)
