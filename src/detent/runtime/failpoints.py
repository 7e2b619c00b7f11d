"""Named steps of the protocol at which a test can make a process die, stall or lose its connection.

Inert unless a process is started with `--failpoints` (or DETENT_FAILPOINTS), and refused in production mode. The
syntax is `STEP=ACTION[@N]`, several joined by `;`: the action happens on the N-th hit of the step (default: the first),
once. Actions: `exit` (like kill -9), `stop` (SIGSTOP to itself), `sleep:SECONDS`, `error`, `drop` (the reply is lost:
the caller treats its write as of unknown outcome).

Steps of a scheduler: S1 lease sent, S2 lease held, S3 batch due and computed, S4 runs written but not committed,
S5 committed but the reply not seen, S6 reply seen but not handed on, S7 handed on. Of a worker: W1 woken, W2 claim
committed, W3 handler about to be called, W4 handler done, W5 settle committed but the reply not seen, W6 settled, W7
accepted run handed over but the reply not seen.
Others: R1 dead node found, R2 runs rescued, A1 request parsed, A2 request committed, M1 between two migrations.
"""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import dataclass

from detent.errors import UsageError

STEPS = frozenset({*(f"S{n}" for n in range(1, 8)), *(f"W{n}" for n in range(1, 8)), "R1", "R2", "A1", "A2", "M1"})
ACTIONS = frozenset({"exit", "stop", "sleep", "error", "drop"})


class FailpointError(Exception):
    """Raised by the action `error`."""


class ReplyDropped(Exception):  # noqa: N818 - it says what happened
    """Raised by the action `drop`: the caller never learns what the server answered."""


@dataclass
class Failpoint:
    action: str
    seconds: float
    on_hit: int
    hits: int = 0


_armed: dict[str, Failpoint] = {}


def arm(text: str, *, production: bool = False) -> None:
    """Arm the failpoints named in `text`; an empty text arms none."""
    _armed.clear()
    if not text:
        return
    if production:
        raise UsageError("Failpoints are refused in production mode: leave out --failpoints or the production setting.")
    for part in text.split(";"):
        step, _, rest = part.strip().partition("=")
        action, _, hit = rest.partition("@")
        action, _, seconds = action.partition(":")
        try:
            point = Failpoint(action, float(seconds or 0), int(hit or 1))
        except ValueError:
            point = None
        if point is None or step not in STEPS or action not in ACTIONS:
            raise UsageError(f"{part.strip()!r} is not a failpoint: write STEP=ACTION[@N], for example W3=exit@2.")
        _armed[step] = point


def any_armed() -> bool:
    """Whether any failpoint is armed. Code that executes once per run asks this first, because even an unarmed step
    costs time."""
    return bool(_armed)


def armed(step: str) -> bool:
    return step in _armed


async def hit(step: str) -> None:
    """Execute the action of this step, if it is armed and this is the N-th hit."""
    if not _armed:
        return
    point = _armed.get(step)
    if point is None:
        return
    point.hits += 1
    if point.hits == point.on_hit:
        await _act(step, point)


async def _act(step: str, point: Failpoint) -> None:
    match point.action:
        case "exit":
            os.kill(os.getpid(), signal.SIGKILL)
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "sleep":
            await asyncio.sleep(point.seconds)
        case "drop":
            raise ReplyDropped(step)
        case _:
            raise FailpointError(f"failpoint {step}")
