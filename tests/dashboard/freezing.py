"""A PostgreSQL that accepts connections and does not answer: all its processes are stopped, as with a hung disk."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from detent.store.embedded import EmbeddedServer


@contextmanager
def frozen(server: EmbeddedServer) -> Iterator[None]:
    """Stop the postmaster first, so that it starts no further process."""
    stopped = [server.postmaster]
    os.kill(server.postmaster, signal.SIGSTOP)
    try:
        for child in _children(server.postmaster):
            with suppress(ProcessLookupError):  # it ended by itself
                os.kill(child, signal.SIGSTOP)
                stopped.append(child)
        yield
    finally:
        for process in reversed(stopped):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGCONT)


def _children(process: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
