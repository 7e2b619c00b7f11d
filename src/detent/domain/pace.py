"""How fast many things are done, one lot after the other. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

from detent.errors import UsageError

STEP_SECONDS = 0.5
SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}
FASTEST = 100_000


class Pace(NamedTuple):
    """So many in each lot, and so many seconds until the next one. Without a rate there is nothing to wait for."""

    lot: int
    pause: float


def read_rate(name: str, text: str) -> float:
    """Things per second: `100/s`, `100`, `600/m`. `name` is what the one who wrote it knows it by."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(?:/(s|m|h))?", text.strip())
    rate = float(found[1]) / SECONDS[found[2] or "s"] if found else 0.0
    if not 0 < rate <= FASTEST:
        raise UsageError(f"{name} is {text!r}: give a number of runs per second, such as 100/s or 600/m.")
    return rate


def pace(rate: float | None, most: int) -> Pace:
    """At most `most` in a lot."""
    if rate is None:
        return Pace(most, 0.0)
    lot = max(1, min(most, round(rate * STEP_SECONDS)))
    return Pace(lot, lot / rate)
