"""Staggered release: jobs that tick at the same second are released over a few, those of higher priority first.

The tick stays what it is: its run, its key and its header name it. Only the moment of its fire is later, by the same
time at every tick, which follows from the job's number and priority alone: so every node computes the same, and no node
has to know the others of the herd.

    priority 10 and above   0 to 3 s after the tick
    priority 5              1.5 to 4.5 s
    priority 0 and below    3 to 6 s

The ranges overlap, so that a herd of one priority, which most are, is spread over half of the time.
"""

from __future__ import annotations

from datetime import timedelta

WINDOW_MS = 6_000
RANGE_MS = WINDOW_MS // 2
HIGHEST, LOWEST = 10, 0
# Multiples of the golden ratio lie far from each other, however many consecutive numbers there are.
GOLDEN = 2_654_435_769
BITS = 32


def stagger_start(priority: int) -> int:
    """Where the range of a priority begins, in milliseconds after the tick."""
    return RANGE_MS * (HIGHEST - min(max(priority, LOWEST), HIGHEST)) // (HIGHEST - LOWEST)


def stagger(job: int, start: int) -> timedelta:
    """How long after its tick a job is released."""
    return timedelta(milliseconds=start + ((job * GOLDEN % (1 << BITS)) * RANGE_MS >> BITS))
