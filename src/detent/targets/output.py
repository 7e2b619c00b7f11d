"""What one attempt writes: kept in its first and its last lines, in constant memory, and collected in chunks.

A line is added in the thread that writes it, under a lock of its attempt only. While there is room for first lines,
each is kept. Later lines only replace one another in a ring, so a handler that writes ten thousand lines a second costs
a few hundred nanoseconds for each, and nothing is masked, encoded or handed over for those that are left out.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from time import time
from typing import NamedTuple

from detent.domain.run import Call
from detent.domain.run_output import (
    COMMAND,
    HEAD_LINES,
    LINE_BYTES,
    LONGEST_LINE,
    TAIL_LINES,
    TAIL_PART,
    OutputChunk,
    OutputLine,
    encode_lines,
    last_lines,
    shortened,
)
from detent.targets.exceptions import describe
from detent.targets.text import storable, storable_text
from detent.targets.tracebacks import traceback_of

# The last lines are written this often, while they change.
TAIL_SECONDS = 1.0


class _Raw(NamedTuple):
    """A line as it was added: level and message are made text when it is collected."""

    number: int
    at: float
    level: int
    logger: str
    message: str


class AttemptOutput:
    """`add`, `printed`, `feed` and `end` are for the side that writes, `collect` for the one that stores."""

    __slots__ = (
        *("_call", "_changed", "_cut", "_fresh", "_head", "_head_open", "_limit", "_lock", "_number", "_part"),
        *("_partial", "_queued", "_ring", "_ring_size", "_room", "_tail", "_tail_at", "over"),
    )

    def __init__(self, call: Call, limit: int, changed: Callable[[AttemptOutput], None]) -> None:
        """`limit`: how many bytes are kept. `changed` is called in the thread that writes, once until `collect`
        returned that there is nothing left."""
        self._call = call
        self._limit = limit
        self._changed = changed
        self._lock = threading.Lock()
        self._head: list[_Raw] = []
        self._head_open = True
        self._room = limit // 2
        self._ring: deque[_Raw] = deque()
        self._ring_size = 0
        self._tail = bytearray()
        self._cut = False
        self._fresh = False
        self._tail_at = 0.0
        self._number = 0
        self._part = 0
        self._partial: dict[str, str] = {}
        self._queued = False
        self.over = False

    def log(self, record: logging.LogRecord) -> bool:
        """Add a record of a logger; returns whether it is one of the first lines."""
        first = self._head_open
        message = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            message += f"\n{(traceback_of(error, self._call.mask) if first else None) or describe(error)}"
        self.add(record.created, record.levelno, record.name, message)
        return first

    def add(self, at: float, level: int, logger: str, message: str) -> None:
        if len(message) > LONGEST_LINE:
            message = self._fitting(message)
        with self._lock:
            self._add(at, level, logger, message)
        if not self._queued:
            self._notify()

    def _notify(self) -> None:
        if not self._queued:
            self._queued = True
            self._changed(self)

    def _fitting(self, message: str) -> str:
        """Masked before it is shortened, so that no secret is cut in two."""
        if len(message) <= LONGEST_LINE:
            return message
        return shortened(message if self._call.mask is None else self._call.mask.cut_text(message))

    def _add(self, at: float, level: int, logger: str, message: str) -> None:
        self._number += 1
        line = _Raw(self._number, at, level, logger, message)
        if self._head_open:
            self._head.append(line)
            self._room -= len(message) + LINE_BYTES
            if self._room <= 0 or self._number >= HEAD_LINES:
                self._head_open = False
            return
        ring = self._ring
        ring.append(line)
        self._fresh = True
        self._ring_size += len(message)
        while len(ring) > TAIL_LINES or (self._ring_size > self._limit // 2 and len(ring) > 1):
            self._ring_size -= len(ring.popleft().message)

    def printed(self, stream: str, text: str) -> None:
        """Add the lines that are complete; `print` writes a line and its end separately."""
        if "\n" not in text:
            with self._lock:
                kept = self._partial.get(stream, "")
                self._partial[stream] = kept if len(kept) > LONGEST_LINE else kept + text[: LONGEST_LINE + 1]
            return
        with self._lock:
            *lines, rest = (self._partial.get(stream, "") + text).split("\n")
            self._partial[stream] = rest[: LONGEST_LINE + 1]
        at = time()
        for line in lines:
            self.add(at, logging.INFO, stream, line)

    def feed(self, data: bytes) -> None:
        """Add output of a command. Once the first lines are there, its bytes are only counted and kept, however many
        lines they are."""
        with self._lock:
            self._tail += data
            if self._head_open:
                data = self._feed_head()
            if not self._head_open:
                self._number += data.count(b"\n")
                self._fresh = True
                if len(self._tail) > self._limit:
                    del self._tail[: -(self._limit // 2)]
                    self._cut = True
            elif len(self._tail) > 2 * LONGEST_LINE:  # one endless line
                del self._tail[LONGEST_LINE:-LONGEST_LINE]
        self._notify()

    def _feed_head(self) -> bytes:
        """Take first lines; returns what is left."""
        lines = bytes(self._tail).split(b"\n", HEAD_LINES - self._number)[:-1]
        taken = 0
        for line in lines:
            if not self._head_open:
                break
            self._add(time(), logging.INFO, COMMAND, self._fitting(storable(line)))
            taken += len(line) + 1
        del self._tail[:taken]
        return bytes(self._tail)

    def end(self) -> None:
        """The attempt is over: a line without an end is complete, and later ones are not taken."""
        rest = [(stream, text) for stream, text in self._partial.items() if text]
        self._partial = {}
        for stream, text in rest:
            self.add(time(), logging.INFO, stream, text)
        with self._lock:
            if self._tail and not self._tail.endswith(b"\n"):
                if self._head_open:
                    self._add(time(), logging.INFO, COMMAND, self._fitting(storable(bytes(self._tail))))
                    self._tail.clear()
                else:
                    self._tail += b"\n"
                    self._number += 1
                    self._fresh = True
            self.over = True
        self._notify()

    def close_head(self) -> None:
        """Keep only last lines from here on: those that store lines are behind."""
        with self._lock:
            self._head_open = False

    # --- the side that stores ---

    def collect(self, now: float) -> tuple[list[OutputChunk], bool]:
        """What is to be stored, and whether more may come without another call of `changed`."""
        with self._lock:
            head, self._head = self._head, []
            over = self.over
            due = self._fresh and (over or now - self._tail_at >= TAIL_SECONDS)
            ring = list(self._ring) if due else []
            tail, last = (bytes(self._tail), self._number) if due else (b"", 0)
            if due:
                self._fresh, self._tail_at = False, now
            left = self._fresh
            if not left:
                self._queued = False
            if head:
                self._part += 1
        chunks = [self._chunk(self._part, self._finished(head))] if head else []
        if due:
            lines = self._of_bytes(tail, last) if tail else self._finished(ring)
            if kept := last_lines(lines, self._limit // 2):
                chunks.append(self._chunk(TAIL_PART, kept))
        return chunks, left

    def _finished(self, lines: Sequence[_Raw]) -> list[OutputLine]:
        mask = self._call.mask
        return [
            OutputLine(
                line.number,
                int(line.at * 1000),
                logging.getLevelName(line.level).lower(),
                storable_text(line.logger),
                storable_text(line.message if mask is None else mask.text(line.message)),
            )
            for line in lines
        ]

    def _of_bytes(self, tail: bytes, last: int) -> list[OutputLine]:
        """The last complete lines of a command; when each was written is not known."""
        text = storable(tail)
        mask, at = self._call.mask, int(time() * 1000)
        lines = (text if mask is None else mask.cut_text(text)).split("\n")[:-1]
        lines = lines[1 if self._cut and len(lines) > 1 else 0 :][-TAIL_LINES:]
        first = last - len(lines) + 1
        return [OutputLine(first + place, at, "info", COMMAND, shortened(line)) for place, line in enumerate(lines)]

    def _chunk(self, part: int, lines: Sequence[OutputLine]) -> OutputChunk:
        call = self._call
        first, last = lines[0].number, lines[-1].number
        return OutputChunk(call.run_id, call.token, call.attempt, part, first, last, encode_lines(lines))
