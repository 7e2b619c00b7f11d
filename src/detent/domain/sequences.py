"""Values that are lists. No I/O."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeVar

from detent.errors import UsageError

T = TypeVar("T")


def listed(field: str, values: Collection[T]) -> list[T]:
    """The values as a list. Text is refused: it has the type of a sequence of texts, and `tags="billing"` would be
    seven tags. UsageError."""
    if isinstance(values, str | bytes) or not isinstance(values, Collection):
        raise UsageError(f"{field} is {values!r}: give a list, such as {field}=[{values!r}].")
    return list(values)
