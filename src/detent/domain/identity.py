"""Identities: run ids, partitions, tokens. Pure arithmetic, no clock, no randomness.

A run id *is* its tick: the same (job, scheduled time, serial) gives the same id on every node, ids sort by time, and
an id decodes back into the primary key it stands for, so ids need neither a column nor an index. The layout is that
of a UUID version 7: 48 bits of milliseconds, version, 12 high bits of the serial, variant, 16 low bits of the serial,
46 bits of the job's number.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from uuid import UUID

PARTITIONS = 256
MAX_JOB = (1 << 46) - 1
MAX_SERIAL = (1 << 28) - 1
MANUAL = 1 << 27
ON_DEMAND = MANUAL + (1 << 26)
FIRST_TASK_LANE = 1 << 15
"""A claimed run of a task has its serial as its lane, which is above this; ticks and triggers have lanes below."""
# A token is the incarnation shifted by this many bits, and a counter. Migration 0001 says 32 in a comment, which its
# checksum keeps from being corrected.
COUNTER_BITS = 22
COUNTER = (1 << COUNTER_BITS) - 1
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)

_VERSION = 7 << 76
_VARIANT = 2 << 62


class RunKey(NamedTuple):
    """The primary key of a run: its job, its tick, and a serial.

    Serial 0 is the tick itself and n its n-th re-run. The serials from MANUAL on are of runs that are not ticks, and
    those from ON_DEMAND on of on-demand runs: each has a serial of its own, and its time is when it is due. Versions
    before on-demand runs counted the re-runs of a triggered run from MANUAL on. So an id shows which of them it is."""

    job: int
    scheduled_at: datetime
    serial: int = 0

    @property
    def manual(self) -> bool:
        return self.serial >= MANUAL

    @property
    def on_demand(self) -> bool:
        return self.serial >= ON_DEMAND

    @property
    def repeat(self) -> int:
        """Which re-run this is; 0 for the first run. A re-run of an on-demand run is a new on-demand run."""
        return 0 if self.on_demand else self.serial % MANUAL

    @property
    def first(self) -> RunKey:
        """The run that this one repeats, or itself."""
        return self._replace(serial=self.serial - self.repeat)


def milliseconds(instant: datetime) -> int:
    return (instant - EPOCH) // MILLISECOND


def from_seconds(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def from_milliseconds(value: int) -> datetime:
    return EPOCH + timedelta(milliseconds=value)


def run_id(key: RunKey) -> UUID:
    high = milliseconds(key.scheduled_at) << 80 | _VERSION | (key.serial >> 16) << 64
    return UUID(int=high | _VARIANT | (key.serial & 0xFFFF) << 46 | key.job)


def run_id_text(job: int, time: int, serial: int) -> str:
    """As str(run_id(key)) of a tick at `time` milliseconds, at a quarter of its cost: called for every run."""
    high, low = serial >> 16, serial & 0xFFFF
    parts = (time >> 16, time & 0xFFFF, high, 0x8000 | low >> 2, (low & 3) << 46 | job)
    return "%08x-%04x-7%03x-%04x-%012x" % parts  # noqa: UP031 - a third quicker than format


def decode_run_id(value: UUID) -> RunKey | None:
    """The key behind a run id, or None for a UUID that cannot be one of ours."""
    number = value.int
    if number >> 76 & 0xF != 7 or number >> 62 & 0b11 != 2:
        return None
    serial = (number >> 64 & 0xFFF) << 16 | number >> 46 & 0xFFFF
    try:
        return RunKey(number & MAX_JOB, from_milliseconds(number >> 80), serial)
    except OverflowError:  # a year no datetime can hold
        return None


def partition_of(job_id: UUID) -> int:
    """Stored with the job at its creation; changing this function would move no existing job."""
    return hashlib.blake2b(job_id.bytes, digest_size=1).digest()[0]


def first_token(incarnation: int) -> int:
    """The token of a run's first claim. Tokens and terms have the incarnation above their counter, which has 22 bits:
    an incarnation may be as large as the seconds since 2020, and JSON is read by languages whose numbers end at 53
    bits."""
    return incarnation << COUNTER_BITS | 1


def token_text(token: int) -> str:
    """A token or a term for people: incarnation and counter apart."""
    return f"{token >> COUNTER_BITS}.{token & COUNTER}"


def node_name(node: int) -> str:
    return f"{node & 0xFFFFFFFFFFFFFFFF:016x}"


def node_number(name: str) -> int | None:
    """The node of this name; None for a name that no node can have."""
    try:
        number = int(name, 16)
    except ValueError:
        return None
    return number if 0 < number < 1 << 63 and node_name(number) == name else None
