"""What is asked for when a run is enqueued, and the rules that it has to satisfy. Time is an argument.

The SQL functions that enqueue runs have the same rules (`enqueue_problem`), in the words of SQL.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from detent.domain.documents import check_text, looks_sound, utc_instants
from detent.domain.job import Name
from detent.domain.text import check_seen
from detent.errors import UsageError

FARTHEST = timedelta(days=366)
OLDEST = timedelta(days=1)
MAX_RUNS = 10_000

DueTime = Annotated[datetime, Meta(tz=True)]
Delay = Annotated[float, Meta(ge=0, le=FARTHEST.total_seconds())]
Period = Annotated[float, Meta(ge=0.001, le=FARTHEST.total_seconds())]
Key = Annotated[str, Meta(min_length=1, max_length=200)]
RunPriority = Annotated[int, Meta(ge=-100, le=100)]


class NewRun(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """A run to enqueue. It is due now, at `at`, or after `delay_seconds`. What is left out is as its job says: payload,
    priority, queue and concurrency key. While a run with the same `unique_key` is unfinished, no other is created, and
    with `unique_for_seconds` not for that long after it was enqueued either."""

    payload: Any | UnsetType = UNSET
    at: DueTime | None = None
    delay_seconds: Delay | None = None
    priority: RunPriority | None = None
    queue: Name | None = None
    unique_key: Key | None = None
    unique_for_seconds: Period | None = None
    concurrency_key: Key | None = None


def written_run(run: NewRun, now: datetime, max_payload_bytes: int) -> bytes:
    """The run as it is passed to the database. UsageError: it cannot be enqueued."""
    run = utc_instants(run)
    _check_times(run, now)
    if run.unique_for_seconds is not None and run.unique_key is None:
        raise UsageError(
            "unique_for_seconds is given without unique_key: give both, or neither.", "/unique_for_seconds"
        )
    written = _encoded(run)
    if len(written) > max_payload_bytes:
        _check_payload(run, max_payload_bytes)
    if run.queue is not None:
        check_seen(run.queue, "The queue", "/queue")
    return written


def _check_times(run: NewRun, now: datetime) -> None:
    if run.at is None:
        return
    if run.delay_seconds is not None:
        raise UsageError("at and delay_seconds are both given: give one of them.", "/delay_seconds")
    if run.at > now + FARTHEST:
        raise UsageError(
            f"at is {run.at.isoformat()}, more than {FARTHEST.days} days ahead: give an earlier time.", "/at"
        )
    if run.at < now - OLDEST:
        raise UsageError(
            f"at is {run.at.isoformat()}, more than a day in the past: give a later time, or leave it out to run now.",
            "/at",
        )


def _encoded(run: NewRun) -> bytes:
    try:
        written = msgspec.json.encode(run)
        if looks_sound(written):
            return written
    except (UnicodeEncodeError, RecursionError):
        written = b""
    check_text(msgspec.to_builtins(run))
    return written or msgspec.json.encode(run)


def _check_payload(run: NewRun, max_payload_bytes: int) -> None:
    size = 0 if run.payload is UNSET else len(msgspec.json.encode(run.payload))
    if size > max_payload_bytes:
        raise UsageError(
            f"The payload is {size} bytes of JSON and {max_payload_bytes} are allowed: store the data elsewhere and "
            "send a reference to it.",
            "/payload",
        )
