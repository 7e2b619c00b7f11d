"""Where a list goes on. Opaque to clients: only the list that gave a cursor out can read it."""

from __future__ import annotations

import base64
import binascii
from datetime import timedelta

import msgspec

from detent.api.problems import BadCursor
from detent.identity import EPOCH, RunKey

MICROSECOND = timedelta(microseconds=1)
LARGEST = (1 << 63) - 1
LATEST = 253_370_764_800_000_000  # the year 9999, in microseconds


def after_job(number: int) -> str:
    return _encode(["jobs", number])


def read_after_job(cursor: str | None) -> int:
    if cursor is None:
        return 0
    (number,) = _decode(cursor, "jobs", 1)
    return number


def after_run(key: RunKey) -> str:
    return _encode(["runs", (key.scheduled_at - EPOCH) // MICROSECOND, key.job, key.serial])


def read_after_run(cursor: str | None) -> RunKey | None:
    if cursor is None:
        return None
    at, job, serial = _decode(cursor, "runs", 3)
    if at > LATEST or serial >= 1 << 31:
        raise BadCursor
    return RunKey(job, EPOCH + timedelta(microseconds=at), serial)


def _encode(parts: list[str | int]) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(parts)).rstrip(b"=").decode()


def _decode(cursor: str, kind: str, count: int) -> list[int]:
    try:
        raw = base64.b64decode(cursor.encode() + b"=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        found, *numbers = msgspec.json.decode(raw, type=list[str | int])
    except (binascii.Error, msgspec.DecodeError, ValueError):
        raise BadCursor from None
    whole = [number for number in numbers if isinstance(number, int) and 0 <= number <= LARGEST]
    if found != kind or len(whole) != count or len(numbers) != count:
        raise BadCursor
    return whole
