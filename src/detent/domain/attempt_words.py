"""How an attempt ended, in words."""

from __future__ import annotations

from detent.domain.callbacks import WORKER_PREFIX

ENDS = {
    "succeeded": "succeeded",
    "failed": "failed",
    "timeout": "timed out",
    "lost": "was lost with its node",
    "stale": "was given up",
    "cancelled": "was cancelled",
}
# The names of workers that hold a lease instead of being nodes.
LEASED = ("pull:", WORKER_PREFIX)
REFUSED = "refused: "
REPORTED = {
    "succeeded": "a later report that it succeeded",
    "failed": "a later report that it failed",
    "timeout": "a later report that it timed out",
    "cancelled": "a later report that it was cancelled",
    "accepted": "a later report that its target accepted it",
}


def end_of_attempt(outcome: str, node: str | None, error: str | None, took: str) -> str:
    """`failed after 2 s: HTTP 503`; `took` is ` after 2 s`, or empty."""
    refused = ""
    if outcome == "stale":
        error, _, reported = (error or "").rpartition(REFUSED)  # stored by record_stale, behind the attempt's own error
        error = error.rstrip("; ")
        refused = f"; {REPORTED.get(reported, 'a later report')} was refused"
    lost = outcome == "lost" and (node or "").startswith(LEASED)
    words = "was given up" if lost else ENDS[outcome]
    return f"{words}{took}{refused}" + (f": {error}" if error else "")
