"""What an attempt writes while it runs: lines, and how far it is. No I/O.

Of each attempt the beginning and the end are kept: the first `HEAD_LINES` lines and the last `TAIL_LINES`, each within
half of the bytes that the setting `run_log_bytes` allows. Lines have numbers, so a gap between two of them is the
number of lines that were left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
from msgspec import Struct

HEAD_LINES = 500
TAIL_LINES = 500
LONGEST_LINE = 8_192
LONGEST_MESSAGE = 500
# What stands for the logger of lines that no logger wrote: the output of a command, or of a pull worker.
COMMAND = "output"
# The part of an attempt's lines that is replaced until the attempt ends: its last lines.
TAIL_PART = 32_767
# What a line costs in storage apart from its message.
LINE_BYTES = 40


class OutputLine(NamedTuple):
    """One line, or one record of a log with the lines of its traceback."""

    number: int
    at_ms: int
    level: str
    logger: str
    message: str

    @property
    def size(self) -> int:
        return LINE_BYTES + len(self.message) + len(self.logger)


class OutputChunk(Struct, frozen=True, tag=True):
    """Some consecutive lines of one attempt as JSON, or its last lines."""

    run_id: str
    token: int
    attempt: int
    part: int
    first: int
    last: int
    lines: str


class ProgressMark(Struct, frozen=True, tag=True):
    """How far an attempt is; `at` in seconds since 1970."""

    run_id: str
    token: int
    fraction: float
    message: str
    at: float


_decoder = msgspec.json.Decoder(list[OutputLine])


def encode_lines(lines: Sequence[OutputLine]) -> str:
    return msgspec.json.encode(lines).decode()


def decode_lines(text: str) -> list[OutputLine]:
    found: list[OutputLine] = _decoder.decode(text)
    return found


def shortened(message: str) -> str:
    """A line that is too long keeps its beginning and its end."""
    if len(message) <= LONGEST_LINE:
        return message
    half = LONGEST_LINE // 2
    return f"{message[:half]} […{len(message) - 2 * half} characters left out…] {message[-half:]}"


def last_lines(lines: Sequence[OutputLine], limit: int) -> list[OutputLine]:
    """The last of these lines that fit."""
    kept: list[OutputLine] = []
    size = 0
    for line in reversed(lines[-TAIL_LINES:]):
        size += line.size
        if size > limit and kept:
            break
        kept.append(line)
    return kept[::-1]


def left_out(lines: Iterable[OutputLine], after: int = 0) -> int:
    """How many lines are missing between these, and before them since number `after`."""
    missing = 0
    for line in lines:
        missing += max(0, line.number - after - 1)
        after = line.number
    return missing
