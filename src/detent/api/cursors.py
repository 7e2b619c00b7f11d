"""Cursors of lists: opaque to clients, and readable only by the list that issued them.

A cursor is bound to its tenant and its query, and refused with any other. It needs no secret, because the rows that it
leads to are filtered by tenant anyway.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from datetime import datetime, timedelta

import msgspec

from detent.api.problems import BadCursor
from detent.domain.identity import EPOCH, RunKey
from detent.store.tenant_exports import LAST as LAST_PART
from detent.store.tenant_exports import ExportPlace

MICROSECOND = timedelta(microseconds=1)
LARGEST = (1 << 63) - 1
LATEST = 253_370_764_800_000_000  # the year 9999, in microseconds


def binding(tenant: int, query: msgspec.Struct, *more: object) -> str:
    """A digest of what a list shows: its tenant, its query without cursor and limit, and what its path names."""
    asked = {name: value for name, value in msgspec.structs.asdict(query).items() if name not in ("cursor", "limit")}
    whole = msgspec.json.encode([tenant, type(query).__name__, asked, *more], order="deterministic")
    return hashlib.blake2b(whole, digest_size=9).hexdigest()


def after_job(number: int, bound: str) -> str:
    return _encode(["jobs", bound, number])


def read_after_job(cursor: str | None, bound: str) -> int:
    if cursor is None:
        return 0
    (number,) = _decode(cursor, "jobs", bound, 1)
    return number


def after_revision(number: int, bound: str) -> str:
    return _encode(["revisions", bound, number])


def read_after_revision(cursor: str | None, bound: str) -> int | None:
    number = None if cursor is None else _decode(cursor, "revisions", bound, 1)[0]
    if number is not None and number >= 1 << 31:
        raise BadCursor
    return number


def after_tick(tick: datetime, bound: str) -> str:
    return _encode(["ticks", bound, (tick - EPOCH) // MICROSECOND])


def read_after_tick(cursor: str | None, bound: str) -> datetime | None:
    if cursor is None:
        return None
    (at,) = _decode(cursor, "ticks", bound, 1)
    if at > LATEST:
        raise BadCursor
    return EPOCH + timedelta(microseconds=at)


def after_key(number: int, bound: str) -> str:
    return _encode(["keys", bound, number])


def read_after_key(cursor: str | None, bound: str) -> int:
    return 0 if cursor is None else _decode(cursor, "keys", bound, 1)[0]


def after_incident(number: int, bound: str) -> str:
    return _encode(["incidents", bound, number])


def read_after_incident(cursor: str | None, bound: str) -> int | None:
    return None if cursor is None else _decode(cursor, "incidents", bound, 1)[0]


def after_event(number: int, bound: str) -> str:
    return _encode(["events", bound, number])


def read_after_event(cursor: str | None, bound: str) -> int | None:
    return None if cursor is None else _decode(cursor, "events", bound, 1)[0]


def after_tenant(number: int, bound: str) -> str:
    return _encode(["tenants", bound, number])


def read_after_tenant(cursor: str | None, bound: str) -> int:
    number = 0 if cursor is None else _decode(cursor, "tenants", bound, 1)[0]
    if number >= 1 << 31:
        raise BadCursor
    return number


def after_export(place: ExportPlace, bound: str) -> str:
    row = (place.job, (place.at - EPOCH) // MICROSECOND, place.serial, place.token, place.chunk)
    return _encode(["export", bound, place.part, *row, int(place.within)])


def read_after_export(cursor: str | None, bound: str) -> ExportPlace:
    if cursor is None:
        return ExportPlace()
    part, job, at, serial, token, chunk, within = _decode(cursor, "export", bound, 7)
    if part > LAST_PART or at > LATEST or serial >= 1 << 31 or chunk >= 1 << 15:
        raise BadCursor
    return ExportPlace(part, job, EPOCH + timedelta(microseconds=at), serial, token, chunk, bool(within))


def after_run(key: RunKey, bound: str) -> str:
    return _encode(["runs", bound, (key.scheduled_at - EPOCH) // MICROSECOND, key.job, key.serial])


def read_after_run(cursor: str | None, bound: str) -> RunKey | None:
    if cursor is None:
        return None
    at, job, serial = _decode(cursor, "runs", bound, 3)
    if at > LATEST or serial >= 1 << 31:
        raise BadCursor
    return RunKey(job, EPOCH + timedelta(microseconds=at), serial)


def _encode(parts: list[str | int]) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(parts)).rstrip(b"=").decode()


def _decode(cursor: str, kind: str, bound: str, count: int) -> list[int]:
    try:
        raw = base64.b64decode(cursor.encode() + b"=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        found, owner, *numbers = msgspec.json.decode(raw, type=list[str | int])
    except (binascii.Error, msgspec.DecodeError, ValueError):
        raise BadCursor from None
    whole = [number for number in numbers if isinstance(number, int) and 0 <= number <= LARGEST]
    if (found, owner) != (kind, bound) or len(whole) != count or len(numbers) != count:
        raise BadCursor
    return whole
