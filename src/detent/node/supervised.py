"""A process that `--reload` starts: which signals it obeys."""

from __future__ import annotations

import ctypes
import os
import signal
from contextlib import suppress

_PR_SET_PDEATHSIG = 1


def obey_supervisor(parent: int) -> None:
    """For the process that `--reload` starts again and again. Ctrl-C reaches all processes of the terminal: only the
    supervisor acts on it, with one SIGTERM to this process. If the supervisor dies, Linux sends that SIGTERM. A
    function, not SIG_IGN, because programs that handlers start would inherit SIG_IGN."""
    signal.signal(signal.SIGINT, lambda *_: None)
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    if os.getppid() != parent:
        raise SystemExit(1)
