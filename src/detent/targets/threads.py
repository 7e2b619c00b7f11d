"""Threads that call plain functions.

Only one idle thread is woken at a time, and it wakes the next one if more work waits when it begins. A thread that is
woken waits for the interpreter lock, and until it has it, the one before may have done all the work.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from typing import TypeVar

from detent.targets.exceptions import describe
from detent.telemetry.log import logger

Result = TypeVar("Result")

log = logger("python")


class DaemonThreads:
    """A pool whose threads never keep the process alive: a handler that hangs cannot be stopped, only abandoned."""

    def __init__(self, size: int, name: str = "detent-handler") -> None:
        self._size = size
        self._name = name
        self._lock = threading.Lock()
        self._work: deque[Callable[[], None]] = deque()
        self._started = 0
        self._idle = 0
        self._waking = False  # a thread was woken or started, and has not begun yet
        self._ended = False
        self._alarm: SimpleQueue[None] = SimpleQueue()

    def call(self, work: Callable[[], None]) -> None:
        """In a thread, in order. RuntimeError if there is no thread and the system cannot start
        one: then the work is not done."""
        with self._lock:
            self._work.append(work)
            try:
                self._wake_one()
            except RuntimeError:  # the system has no more: the work waits for one of the others
                if not self._started:
                    self._work.pop()
                    raise

    def submit(self, work: Callable[[], Result]) -> Future[Result]:
        """As `call`, for work with a result."""
        future: Future[Result] = Future()

        def done() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work())
                except BaseException as error:
                    future.set_exception(error)

        self.call(done)
        return future

    def _wake_one(self) -> None:
        """With the lock, when there is work."""
        if self._waking:
            return
        if self._idle:
            self._idle -= 1
            self._waking = True
            self._alarm.put(None)
        elif self._started < self._size:
            threading.Thread(target=self._run, name=f"{self._name}_{self._started}", daemon=True).start()
            self._started += 1
            self._waking = True

    def end(self) -> None:
        """End each thread when it is idle; nothing may be called afterwards."""
        with self._lock:
            self._ended = True
            for _ in range(self._idle):
                self._alarm.put(None)
            self._idle = 0

    def _run(self) -> None:
        woken = True
        while True:
            work = self._next(woken)
            woken = work is None
            if work is not None:
                _done(work)
                del work
            elif self._ended:
                return
            else:
                self._alarm.get()

    def _next(self, woken: bool) -> Callable[[], None] | None:
        """None: there is no work, and the thread is idle."""
        with self._lock:
            if woken:
                self._waking = False
            if not self._work:
                self._idle += 1
                return None
            work = self._work.popleft()
            if self._work:
                with suppress(RuntimeError):  # the system has no more threads
                    self._wake_one()
            return work


def _done(work: Callable[[], None]) -> None:
    try:
        work()
    except BaseException as error:  # the thread goes on
        log.error("work in a thread failed", error=describe(error))
