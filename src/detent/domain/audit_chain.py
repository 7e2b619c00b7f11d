"""The chain of hashes over the audit log: how it is made, and what is wrong with one. No I/O.

The hash of an event covers the hash of the event before it and everything the event says. So an altered event no longer
fits its own hash, and where one was removed, inserted or moved, the next one no longer fits the one before it. Whoever
can write to every row can compute a new chain. It differs from the old one in every later hash: compare the head with
one that was kept elsewhere.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

NOTHING = bytes(32)
"""Instead of the hash before the first event."""


class ChainLink(NamedTuple):
    """One event at its position in the chain. `facts` is its whole content, as JSON values in a fixed order."""

    position: int
    event: int
    facts: list[Any]
    previous: bytes
    hash: bytes


class ChainEnds(NamedTuple):
    """Both ends of the chain: `purged`, the last event that retention removed, and `head`, the newest one."""

    purged: int
    purged_hash: bytes
    head: int
    head_hash: bytes


class ChainFault(NamedTuple):
    """A fault of the chain at `position`, described in one sentence."""

    position: int
    event: int | None
    text: str


def digest(previous: bytes, facts: list[Any]) -> bytes:
    text = json.dumps(facts, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(previous + text.encode()).digest()


def digests(previous: bytes, facts: Iterable[list[Any]]) -> Iterator[bytes]:
    """The hashes of events that follow one another."""
    for each in facts:
        previous = digest(previous, each)
        yield previous


class ChainCheck:
    """Reads the links in the order of their positions and collects the faults."""

    def __init__(
        self, purged: int = 0, purged_hash: bytes | None = NOTHING, expected: tuple[int, bytes] | None = None
    ) -> None:
        """`purged_hash` None: the first link is not compared with anything before it. `expected`: a position, and the
        hash that it had when an operator noted it."""
        self._expected = expected
        self._purged = (purged, purged_hash)
        self._position = purged
        self._hash = purged_hash
        self.events = 0
        self.faults: list[ChainFault] = []

    @property
    def head(self) -> tuple[int, bytes]:
        return self._position, self._hash or NOTHING

    def read(self, link: ChainLink) -> None:
        self.events += 1
        missing = link.position - self._position - 1
        if digest(link.previous, link.facts) != link.hash:
            self._add(link, "was altered: it no longer fits its hash")
        elif missing <= 0 and self._hash is not None and link.previous != self._hash:
            self._add(link, "is not the one that was chained here: events were moved, replaced or inserted")
        if missing > 0 and self._hash is not None:
            first, last = self._position + 1, link.position - 1
            what = f"Event at position {first} was" if first == last else f"Events at positions {first} to {last} were"
            self.faults.append(ChainFault(first, None, f"{what} removed."))
        if self._expected is not None and self._expected[0] == link.position:
            if self._expected[1] != link.hash:
                self._add(link, "has another hash than expected: the chain up to here was written anew")
            self._expected = None
        self._position, self._hash = link.position, link.hash

    def end(self, ends: ChainEnds | None) -> None:
        """Compare the last link with the end that the chain should have, if that is known."""
        if self._expected is not None and self._expected != self._purged:
            self.faults.append(ChainFault(self._expected[0], None, self._unmet(self._expected[0])))
        if ends is None:
            return
        if self._position < ends.head:
            first = self._position + 1
            what = f"position {first} was" if first == ends.head else f"positions {first} to {ends.head} were"
            self.faults.append(ChainFault(first, None, f"The newest events were cut off: {what} removed."))
        elif self._hash is not None and self._hash != ends.head_hash:
            self.faults.append(
                ChainFault(ends.head, None, f"The chain ends at position {ends.head} with another hash than recorded.")
            )

    def _unmet(self, position: int) -> str:
        """Why the hash that was expected at this position was not found there."""
        purged, purged_hash = self._purged
        if purged_hash is None or position > purged:
            return f"There is no event at position {position}, whose hash was expected."
        if position == purged:
            return (
                f"The event at position {position}, which was removed after its time, had another hash than expected."
            )
        removed = f"The event at position {position}, whose hash was expected, was removed after its time"
        return f"{removed}: expect a later head."

    def _add(self, link: ChainLink, what: str) -> None:
        self.faults.append(
            ChainFault(link.position, link.event, f"Event {link.event} at position {link.position} {what}.")
        )
