"""Counts in sentences: `1 job`, `2 jobs`, `1,000 jobs`."""

from __future__ import annotations


def plural(count: int, noun: str, many: str | None = None) -> str:
    """The count with its noun; `many` is the plural, if it does not end in `s`."""
    return f"{count:,} {noun if count == 1 else many or noun + 's'}"
