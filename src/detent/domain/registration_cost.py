"""Which documents of jobs are checked in a thread, because that takes long enough to hold up the event loop. No I/O."""

from __future__ import annotations

from detent.domain.job import JobSpec
from detent.domain.schedule.rrule_parse import looks_like_rrule

# What is_large looks at: a value counts one, and so do a hundred characters.
LARGE_PARTS = 1_000
CHARACTERS_OF_A_PART = 100
COSTLY_PARTS = frozenset({"rrule", "also", "exclude"})


def is_costly(spec: JobSpec) -> bool:
    """Whether its ticks may take more than a tenth of a millisecond to compute, or its payload to check: callers then
    use a thread."""
    written = spec.schedule
    if isinstance(written, str):
        searched = looks_like_rrule(written)
    else:
        searched = written is not None and not COSTLY_PARTS.isdisjoint(written)
    return (
        searched
        or bool(spec.jitter_seconds)
        or spec.release != "exact"
        or spec.tzdata_policy != "recompute"
        or spec.idempotency_key_template is not None
        or spec.payload_schema is not None
    )


def is_large(spec: JobSpec) -> bool:
    """Whether its payload may take more than a few milliseconds to check (a megabyte takes a tenth of a second):
    callers then use a thread for this job only. Reads only a small part of the payload."""
    todo, seen = [spec.payload], 0
    while todo and seen <= LARGE_PARTS:
        part = todo.pop()
        seen += 1
        if isinstance(part, str):
            seen += len(part) // CHARACTERS_OF_A_PART
        elif isinstance(part, dict | list) and len(part) > LARGE_PARTS:
            return True
        elif isinstance(part, dict):
            todo += [*part, *part.values()]
        elif isinstance(part, list):
            todo += part
    return seen > LARGE_PARTS
