"""Jobs and runs as people read them. Field names, their order and their meaning are the public contract."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

from msgspec import Meta, Struct, field

from detent.contract.page import Instant

TickOrder = Literal["oldest", "newest"]


class BackfillRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which past ticks of a job are to run: those from `from` to `to` (now, if it is left out), both included. Ticks
    that ran are left out, unless they are to be run again (`reprocess`). At most `concurrency` are under way at once,
    as far as the job allows. With `dry_run` nothing is done but to tell which they are."""

    from_: Instant = field(name="from")
    to: Instant | None = None
    order: TickOrder = "oldest"
    concurrency: Annotated[int, Meta(ge=1, le=1000)] = 1
    reprocess: bool = False
    dry_run: bool = False


class Backfilled(Struct, frozen=True, kw_only=True):
    """`ticks` run, or would, and so many are `left_out` because they ran or are going to. `first` and `last` are those
    of all. `items` are the first hundred that would run, told in a dry run only."""

    dry_run: bool
    ticks: int
    left_out: int
    first: Instant | None
    last: Instant | None
    items: list[Instant]


class OutstandingTicks(Struct, frozen=True, kw_only=True):
    """A range of ticks that are still to run beside the schedule: `left` of them, `next` first."""

    kind: Literal["missed", "backfill"]
    first: Instant
    last: Instant
    next: Instant
    left: int
    order: TickOrder
    concurrency: int
    reprocess: bool
    created_at: Instant
    created_by: str | None


class CatchUpState(Struct, frozen=True, kw_only=True):
    """What a job still has to make up for, in all and range by range."""

    left: int
    items: list[OutstandingTicks]


class DroppedTicks(Struct, frozen=True, kw_only=True):
    """How many ticks were given up."""

    dropped: int


class Skip(Struct, frozen=True, kw_only=True):
    """A tick that is not to run."""

    at: Instant
    reason: str | None
    created_at: Instant
    created_by: str | None


class LedgerTick(Struct, frozen=True, kw_only=True):
    """A tick and what became of it: the status of its run; `due` or `scheduled` where it is yet to fire, or `to be
    skipped`; `paused` in a pause that is not over; `catching up` where it was missed and is to run; `missing` where
    nobody knows. A range of ticks that is on record as one is one entry: `ticks` of them, up to `until`. A span whose
    schedule cannot be read is one entry too, `unknown`, and its `reason` says why."""

    at: Instant
    local: str
    status: str
    reason: str | None
    run_id: UUID | None
    ticks: int
    until: Instant | None


class Explanation(Struct, frozen=True, kw_only=True):
    """What became of one instant of a job, in sentences. `tick`: whether it is one; `before` and `after` are those on
    both sides of it. `at` is the instant that was asked about, or the tick that stands for it."""

    job_id: UUID
    job: str
    at: Instant
    tick: bool
    status: str | None
    run_id: UUID | None
    before: Instant | None
    after: Instant | None
    sentences: list[str]


class ExtraEntry(Struct, frozen=True, kw_only=True):
    """What is on record although no such tick was to be expected."""

    at: Instant
    until: Instant
    ticks: int
    status: str


class UnknownSpan(Struct, frozen=True, kw_only=True):
    """Ticks of which nobody can say what was expected, after `since` up to `until` (null: it goes on), and why."""

    since: Instant
    until: Instant | None
    why: str


class AuditedJob(Struct, frozen=True, kw_only=True):
    """The ticks of one job: how many were `expected`, what became of those that are `accounted_for`, and in which state
    the `open` ones are. Of those that are `missing`, `doubled` or `extra` the first hundred are named. `lateness_ms`
    counts runs by how late they started, rounded up to two digits; `late` of them were later than was asked for.
    `overdue` of the open ticks should have fired more than a minute ago and have not; `unknown` are the spans whose
    schedule cannot be read, which are never clean."""

    job_id: UUID
    job: str
    expected: int
    accounted_for: dict[str, int]
    open: dict[str, int]
    missing: int
    doubled: int
    extra: int
    other_zone_data: int
    missing_ticks: list[Instant]
    doubled_ticks: list[Instant]
    extra_entries: list[ExtraEntry]
    late: int
    lateness_ms: dict[str, int]
    oldest_due: Instant | None
    overdue: int = 0
    unknown: list[UnknownSpan] = []


class AuditPage(Struct, frozen=True, kw_only=True):
    """The ticks after `since`, up to and including `until`, of `audited` of the `jobs` that were asked about. Those of
    which nothing was expected, and nothing is on record, are not among the `items`. `next_cursor` asks for the jobs
    that follow, and is null at the end. `unaudited_since`: ticks after this time, up to `since`, were asked for and are
    not known, because history of them is no longer kept."""

    since: Instant
    until: Instant
    jobs: int
    audited: int
    items: list[AuditedJob]
    next_cursor: str | None
    unaudited_since: Instant | None = None
