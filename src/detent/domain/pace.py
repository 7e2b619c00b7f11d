"""The pace of bulk operations: batches with a pause between them. No I/O."""

from __future__ import annotations

import re
from typing import NamedTuple

from detent.errors import UsageError

STEP_SECONDS = 0.5
SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}
FASTEST = 100_000


class Pace(NamedTuple):
    """The size of a batch, and the seconds until the next one; 0 without a rate."""

    lot: int
    pause: float


def read_rate(name: str, text: str) -> float:
    """Operations per second: `100/s`, `100`, `600/m`. `name` is the name of the option, for error messages."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(?:/(s|m|h))?", text.strip())
    rate = float(found[1]) / SECONDS[found[2] or "s"] if found else 0.0
    if not 0 < rate <= FASTEST:
        raise UsageError(f"{name} is {text!r}: give a number of runs per second, such as 100/s or 600/m.")
    return rate


def pace(rate: float | None, most: int) -> Pace:
    """The pace for this rate, with at most `most` items in a batch."""
    if rate is None:
        return Pace(most, 0.0)
    lot = max(1, min(most, round(rate * STEP_SECONDS)))
    return Pace(lot, lot / rate)
