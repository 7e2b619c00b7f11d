"""Which offsets of a partition may be committed. No I/O.

Kafka remembers one position for a partition: everything before it is dealt with. Offers are finished in any order, so
the position stays at the first one that is not finished, however many after it are.
"""

from __future__ import annotations

from collections import deque


class PartitionPositions:
    def __init__(self) -> None:
        self._delivered: deque[int] = deque()
        self._finished: set[int] = set()
        self._position: int | None = None

    def delivered(self, offset: int) -> None:
        """In the order of the partition."""
        self._delivered.append(offset)

    def finished(self, offset: int) -> None:
        """More than once is no mistake."""
        if self._delivered and offset >= self._delivered[0]:
            self._finished.add(offset)

    def advance(self) -> int | None:
        """The position to be committed, if it has changed: the offset after the last one before which all are
        finished."""
        before = self._position
        while self._delivered and self._delivered[0] in self._finished:
            offset = self._delivered.popleft()
            self._finished.discard(offset)
            self._position = offset + 1
        return self._position if self._position != before else None
