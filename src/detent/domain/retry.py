"""The wait between a failed attempt and its retry. Pure: the random number is an argument."""

from __future__ import annotations

from typing import Literal

Backoff = Literal["exponential", "linear", "fixed"]


def longest_delay(attempt: int, backoff: Backoff, base: float, ceiling: float) -> float:
    """The upper end of the wait after the given attempt (1 is the first)."""
    if backoff == "fixed":
        delay = base
    elif backoff == "linear":
        delay = base * attempt
    else:
        # The exponent is capped: two to the hundredth is past any ceiling, two to the thousandth is not a float.
        delay = base * 2.0 ** min(attempt - 1, 100)
    return min(delay, ceiling)


def retry_delay(attempt: int, backoff: Backoff, base: float, ceiling: float, chance: float) -> float:
    """Full jitter: anywhere between 0 and the longest delay, so that runs that failed together spread out.

    `chance` is a random number in [0, 1).
    """
    return longest_delay(attempt, backoff, base, ceiling) * chance


def patient_delay(delay: float, retry_after: float | None, ceiling: float) -> float:
    """The wait when a target requested one with `Retry-After` or Retry: the longer of the two, at most the job's
    `retry_max_seconds`. NaN requests nothing."""
    if retry_after is None or not retry_after > delay:
        return delay
    return max(delay, min(retry_after, ceiling))
