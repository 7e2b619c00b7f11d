"""The part of a stored schedule that every kind has."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from detent.domain.schedule.instants import format_instant


def stored_bounds(
    starts_at: datetime | None, ends_at: datetime | None, jitter: float, stagger_ms: int | None = None
) -> dict[str, Any]:
    """Defaults are left out."""
    stored: dict[str, Any] = {}
    if starts_at is not None:
        stored["starts_at"] = format_instant(starts_at)
    if ends_at is not None:
        stored["ends_at"] = format_instant(ends_at)
    if jitter:
        stored["jitter_seconds"] = int(jitter) if jitter == int(jitter) else jitter
    if stagger_ms is not None:
        stored["stagger_ms"] = stagger_ms
    return stored
