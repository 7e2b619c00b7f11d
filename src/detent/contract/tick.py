"""Ticks in the public API: the ledger, backfills, skips, explanations and audits."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

from msgspec import Meta, Struct, field

from detent.contract.page import Instant

TickOrder = Literal["oldest", "newest"]


class BackfillRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which past ticks of a job are to run: those from `from` to `to` (by default now), both included. Ticks that ran
    are left out, unless `reprocess` is set. At most `concurrency` of them run at once, as far as the job allows. With
    `dry_run` the answer lists them, and nothing runs."""

    from_: Instant = field(name="from")
    to: Instant | None = None
    order: TickOrder = "oldest"
    concurrency: Annotated[int, Meta(ge=1, le=1000)] = 1
    reprocess: bool = False
    dry_run: bool = False


class Backfilled(Struct, frozen=True, kw_only=True):
    """`ticks` will run, or would in a dry run; `left_out` ran already or will run anyway. `first` and `last` are the
    first and the last of all. `items` are the first hundred that would run, in a dry run only."""

    dry_run: bool
    ticks: int
    left_out: int
    first: Instant | None
    last: Instant | None
    items: list[Instant]


class OutstandingTicks(Struct, frozen=True, kw_only=True):
    """A range of past ticks that are still to run: `left` of them, `next` first."""

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
    """The past ticks that a job still has to run, in all and range by range."""

    left: int
    items: list[OutstandingTicks]


class DroppedTicks(Struct, frozen=True, kw_only=True):
    """How many ticks were dropped."""

    dropped: int


class Skip(Struct, frozen=True, kw_only=True):
    """A tick that is to be skipped."""

    at: Instant
    reason: str | None
    created_at: Instant
    created_by: str | None


class LedgerTick(Struct, frozen=True, kw_only=True):
    """A tick and its status: that of its run; `due`, `scheduled` or `to be skipped` before it fires; `paused` in a
    pause that is not over; `catching up` where it was missed and is to run; `missing` where nothing is recorded. A
    range of ticks that is recorded as one is one entry: `ticks` of them, up to `until`. A span whose schedule cannot be
    read is one entry too, `unknown`, and its `reason` says why."""

    at: Instant
    local: str
    status: str
    reason: str | None
    run_id: UUID | None
    ticks: int
    until: Instant | None


class Explanation(Struct, frozen=True, kw_only=True):
    """What happened at one instant of a job, in sentences. `tick`: whether it is a tick; `before` and `after` are the
    ticks on both sides of it. `at` is the instant of the question, or the tick that stands for it."""

    job_id: UUID
    job: str
    at: Instant
    tick: bool
    status: str | None
    run_id: UUID | None
    before: Instant | None
    after: Instant | None
    sentences: list[str]


class RunExplanation(Struct, frozen=True, kw_only=True):
    """What happened to one run, or what it waits for, in sentences."""

    run_id: UUID
    job_id: UUID
    job: str
    status: str
    sentences: list[str]


class ExtraEntry(Struct, frozen=True, kw_only=True):
    """A recorded entry for which no tick was expected."""

    at: Instant
    until: Instant
    ticks: int
    status: str


class UnknownSpan(Struct, frozen=True, kw_only=True):
    """A span whose expected ticks are unknown, after `since` up to `until` (null: still), and why."""

    since: Instant
    until: Instant | None
    why: str


class AuditedJob(Struct, frozen=True, kw_only=True):
    """The ticks of one job: how many were `expected`, the statuses of those that are `accounted_for`, and of those that
    are `open`. Of the `missing`, `doubled` or `extra` ones the first hundred are listed. `lateness_ms` counts runs by
    how late they started, rounded up to two digits; `late` of them exceeded the requested limit. `overdue` of the open
    ticks should have fired more than a minute ago; `unknown` are the spans whose schedule cannot be read, which are
    never clean."""

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
    """The ticks after `since`, up to and including `until`, of `audited` of the requested `jobs`. Jobs without expected
    and recorded ticks are not among the `items`. `next_cursor` continues with the next jobs, and is null at the end.
    `unaudited_since`: ticks after this time, up to `since`, were requested, but their history is no longer kept."""

    since: Instant
    until: Instant
    jobs: int
    audited: int
    items: list[AuditedJob]
    next_cursor: str | None
    unaudited_since: Instant | None = None
