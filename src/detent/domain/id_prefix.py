"""The beginning of an id as the range of ids that it stands for."""

from __future__ import annotations

import re
from typing import NamedTuple
from uuid import UUID

SHORTEST = 8
"""Ids begin with their time, of which eight digits are a minute: a shorter beginning names nothing in particular."""
_PREFIX = re.compile(r"[0-9a-f][0-9a-f-]{7,35}", re.IGNORECASE)
_DIGITS = 32


class IdRange(NamedTuple):
    """All ids from `low` to `high`, both included."""

    low: UUID
    high: UUID


def id_range(text: str) -> IdRange | None:
    """The ids that begin with this text; None if none can, or if it is too short to be meant as one."""
    digits = text.replace("-", "").lower()
    if _PREFIX.fullmatch(text) is None or not SHORTEST <= len(digits) <= _DIGITS:
        return None
    low = UUID(digits.ljust(_DIGITS, "0"))
    if "-" in text and not str(low).startswith(text.lower()):  # a dash where no id has one
        return None
    return IdRange(low, UUID(digits.ljust(_DIGITS, "f")))
