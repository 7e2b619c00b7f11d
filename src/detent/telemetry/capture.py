"""Which run the code that logs or prints belongs to.

A context variable names it, which tasks and `asyncio.to_thread` inherit. Outside of runs, a record of a logger or a
`print` costs one look at that variable.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, Protocol, TextIO, cast

from detent.domain.masking import Mask


class LineSink(Protocol):
    """The run that lines belong to. Called in the thread that logs or prints."""

    @property
    def facts(self) -> Mapping[str, object]:
        """The run in the keys of the log."""
        ...

    def logged(self, record: logging.LogRecord) -> bool:
        """Keep a record; returns whether the log of the node has it too."""
        ...

    def printed(self, stream: str, text: str) -> None: ...


mask_in_use: ContextVar[Mask | None] = ContextVar("mask", default=None)
sink_in_use: ContextVar[LineSink | None] = ContextVar("sink", default=None)


class Handling:
    """Around the code of a handler: its lines belong to this run, and its secrets are masked in the log. A class, not a
    generator: it is entered for every run."""

    __slots__ = ("_mask", "_masked", "_sink", "_sunk")
    _masked: Token[Mask | None]
    _sunk: Token[LineSink | None]

    def __init__(self, mask: Mask | None, sink: LineSink | None) -> None:
        self._mask = mask
        self._sink = sink

    def __enter__(self) -> None:
        self._masked = mask_in_use.set(self._mask)
        self._sunk = sink_in_use.set(self._sink)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        mask_in_use.reset(self._masked)
        sink_in_use.reset(self._sunk)


class RunStream:
    """Stands for `sys.stdout` or `sys.stderr`: what a run writes is also kept as its output."""

    def __init__(self, stream: TextIO, name: str) -> None:
        self._stream = stream
        self._name = name
        self._write = stream.write

    def write(self, text: str) -> int:
        sink = sink_in_use.get()
        if sink is not None:
            sink.printed(self._name, text)
        return self._write(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __iter__(self) -> Iterator[str]:
        return iter(self._stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def captured_streams() -> Iterator[None]:
    """Keep what runs print, while this block is open. Nested blocks and streams that others replaced are left alone."""
    before: dict[str, TextIO] = {}
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and not isinstance(stream, RunStream):
            before[name] = stream
            setattr(sys, name, cast("TextIO", RunStream(stream, name)))
    try:
        yield
    finally:
        for name, stream in before.items():
            if isinstance(getattr(sys, name), RunStream):
                setattr(sys, name, stream)
