"""The outputs of all attempts of a process, and what is to be stored of them.

Handlers call `begin` and `progress` in any thread. One collector calls `collect`: in a node the writer
(worker/output.py), in a handler process the thread that sends to its node.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import time
from typing import NamedTuple

from detent.domain.run import Call
from detent.domain.run_output import OutputChunk, ProgressMark
from detent.runtime.clock import monotonic
from detent.targets.output import AttemptOutput


class Collected(NamedTuple):
    """What is to be stored; `more`: there will be more without another wake-up."""

    chunks: list[OutputChunk]
    marks: list[ProgressMark]
    more: bool


class Outputs:
    def __init__(self, limit: int, wake: Callable[[], None]) -> None:
        """`limit`: how many bytes are kept of an attempt; 0: none are. `wake` is called in the thread of a handler,
        when the collector has nothing to do until then."""
        self._limit = limit
        self._wake = wake
        self._changed: deque[AttemptOutput] = deque()
        self._active: list[AttemptOutput] = []
        self._marks: dict[str, ProgressMark] = {}
        self._idle = True
        # The collector is behind: attempts keep only their last lines.
        self.full = False

    def begin(self, call: Call) -> AttemptOutput | None:
        """Where the lines of an attempt go; None: they are not kept."""
        if not self._limit:
            return None
        output = AttemptOutput(call, self._limit, self._add)
        if self.full:
            output.close_head()
        return output

    def progress(self, run_id: str, token: int, fraction: float, message: str) -> None:
        self._marks[run_id] = ProgressMark(run_id, token, fraction, message, time())
        self._rouse()

    def _add(self, output: AttemptOutput) -> None:
        self._changed.append(output)
        self._rouse()

    def _rouse(self) -> None:
        if self._idle:
            self._idle = False
            self._wake()

    def collect(self) -> Collected:
        now = monotonic()
        while self._changed:
            self._active.append(self._changed.popleft())
        chunks: list[OutputChunk] = []
        left = []
        for output in self._active:
            found, more = output.collect(now)
            chunks += found
            if more:
                left.append(output)
        self._active = left
        marks = [self._marks.pop(run) for run in list(self._marks)]
        return Collected(chunks, marks, bool(left or chunks or marks))

    def rest(self) -> bool:
        """Nothing is left to collect: the next line wakes the collector. False: there is some already."""
        self._idle = True
        if self._changed or self._marks:
            self._idle = False
        return self._idle
