"""Routes about ticks: the status of each, the reason, and whether any is missing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from typing import Annotated

from msgspec import Meta, Struct

from detent.api.context import PREFIX, Api
from detent.api.cursors import after_job, after_tick, binding, read_after_job, read_after_tick
from detent.api.jobs import Limit
from detent.api.references import job_id, unknown_job
from detent.api.routing import Routes
from detent.contract.page import Instant, Page
from detent.contract.tick import AuditedJob, AuditPage, Explanation, ExtraEntry, LedgerTick, UnknownSpan
from detent.domain.identity import RunKey, run_id
from detent.domain.ledger import CATCHING_UP
from detent.domain.ledger_ticks import UNKNOWN, TickStatus
from detent.domain.misfire import THRESHOLD
from detent.errors import UsageError
from detent.jobs.audit import JobAccount
from detent.jobs.explanation import explain

routes = Routes(PREFIX)

DAY = timedelta(days=1)
MICROSECOND = timedelta(microseconds=1)
LONGEST = timedelta(days=3660)
MAX_NAMED_JOBS = 100
JobReference = Annotated[str, Meta(min_length=1, max_length=200)]


class TickQuery(Struct, forbid_unknown_fields=True, rename={"from_": "from"}):
    """Ticks from `from` to `to`, both included; by default the last and the next 24 hours."""

    from_: Instant | None = None
    to: Instant | None = None
    cursor: str | None = None
    limit: Limit = 50


class ExplainQuery(Struct, forbid_unknown_fields=True):
    """An instant, or without an offset a time on the wall clock of the job's zone, which also may not exist; or `now`,
    or `last` or `next` for the tick before or after now."""

    at: Annotated[str, Meta(min_length=1, max_length=40)]


class AuditQuery(Struct, forbid_unknown_fields=True):
    """Ticks after `since` up to `until`; by default the last 24 hours. `job`, a name or an id, may be given more than
    once. A run is late when it starts more than `late_ms` after its tick."""

    since: Instant | None = None
    until: Instant | None = None
    job: Annotated[list[JobReference], Meta(max_length=MAX_NAMED_JOBS)] = []
    late_ms: Annotated[int, Meta(ge=0, le=86_400_000)] = 1000
    cursor: str | None = None
    limit: Limit = 100


@routes.get("/jobs/{id}/ticks")
async def list_ticks(api: Api, id: str, query: TickQuery) -> Page[LedgerTick]:  # noqa: A002 - the name of the path parameter is part of the contract
    """List the ticks of a job with the status of each, from the oldest to the future ones."""
    job = await job_id(api, id)
    bound = binding(api.tenant, query, str(job))
    now = await api.store.upkeep.now()
    start, end = _utc(query.from_, "from") or now - DAY, _utc(query.to, "to") or now + DAY
    _check_window(start, end, "from", "to")
    after = read_after_tick(query.cursor, bound) or start - MICROSECOND
    found = await api.jobs.audit.ticks(job, after, end, query.limit, tenant=api.tenant)
    items = [_tick(tick, found.job, found.zone) for tick in found.ticks]
    return Page(items, None if found.following is None else after_tick(found.following, bound))


@routes.get("/jobs/{id}/explain")
async def explain_tick(api: Api, id: str, query: ExplainQuery) -> Explanation:  # noqa: A002 - as above
    """Explain in sentences what happened at one instant of a job, and why."""
    story = await api.jobs.explainer.story(await job_id(api, id), query.at, tenant=api.tenant)
    facts = story.facts
    return Explanation(
        job_id=story.job_id,
        job=facts.job,
        at=facts.at,
        tick=facts.is_tick,
        status=facts.status,
        run_id=story.run_id,
        before=facts.before,
        after=facts.after,
        sentences=explain(facts),
    )


@routes.get("/audit")
async def audit(api: Api, query: AuditQuery) -> AuditPage:
    """Compare the expected ticks with the recorded ones, job by job."""
    # Not bound to the window: the client repeats the window of the first page with each cursor.
    bound = binding(api.tenant, AuditQuery(job=query.job, late_ms=query.late_ms))
    now = await api.store.upkeep.now()
    until = min(_utc(query.until, "until") or now, now)
    since = _utc(query.since, "since") or until - DAY
    _check_window(since, until, "since", "until")
    kept = await api.store.ledger.kept_since()
    window = (since if kept is None else min(max(since, kept - MICROSECOND), until), until)
    jobs = await _numbers(api, query.job)
    audited, following = await api.jobs.audit.audit(
        window,
        jobs,
        behind=read_after_job(query.cursor, bound),
        limit=query.limit,
        late_after=timedelta(milliseconds=query.late_ms),
        overdue_before=now - THRESHOLD,
        tenant=api.tenant,
    )
    count = await api.store.ledger.count(window, jobs, tenant=api.tenant)
    cursor = None if following is None else after_job(following, bound)
    items = [_audited(each) for each in audited if each.account.expected or not each.account.clean]
    return AuditPage(
        since=window[0],
        until=until,
        jobs=count,
        audited=len(audited),
        items=items,
        next_cursor=cursor,
        unaudited_since=await _unaudited(api, since, window[0], jobs),
    )


async def _unaudited(api: Api, asked: datetime, begun: datetime, jobs: list[int] | None) -> datetime | None:
    """The start of the requested time whose history is no longer kept, if any job is that old."""
    if asked >= begun or not await api.store.ledger.count((asked, begun), jobs, tenant=api.tenant):
        return None
    return asked


async def _numbers(api: Api, references: list[str]) -> list[int] | None:
    if not references:
        return None
    return [await _number(api, reference) for reference in references]


async def _number(api: Api, reference: str) -> int:
    """An unknown id is refused: an audit of nothing would look clean."""
    number = await api.store.jobs.number(await job_id(api, reference), tenant=api.tenant)
    if number is None:
        raise unknown_job(reference)
    return number


def _check_window(start: datetime, end: datetime, first: str, last: str) -> None:
    if end < start:
        raise UsageError(f"{last} is before {first}: swap them.", f"/{last}")
    if end - start > LONGEST:
        raise UsageError(f"The time from {first} to {last} is longer than ten years: shorten it.", f"/{first}")


def _utc(moment: datetime | None, name: str) -> datetime | None:
    if moment is not None and not 1971 <= moment.year <= 9000:
        raise UsageError(f"{name} is {moment.isoformat()}: give a year from 1971 to 9000.", f"/{name}")
    return None if moment is None else moment.astimezone(UTC)


def _tick(tick: TickStatus, job: int, zone: tzinfo) -> LedgerTick:
    entry = tick.entry
    ran = entry is not None and entry.first == entry.last and tick.status not in (CATCHING_UP, UNKNOWN)
    local = tick.at.astimezone(zone).isoformat(timespec="milliseconds" if tick.at.microsecond else "seconds")
    return LedgerTick(
        at=tick.at,
        local=local,
        status=tick.status,
        reason=None if entry is None else entry.reason,
        run_id=run_id(RunKey(job, tick.at)) if ran else None,
        ticks=tick.ticks,
        until=entry.last if entry is not None and entry.last > tick.at else None,
    )


def _audited(audited: JobAccount) -> AuditedJob:
    account = audited.account
    return AuditedJob(
        job_id=audited.id,
        job=audited.name,
        expected=account.expected,
        accounted_for=dict(account.accounted),
        open=dict(account.open),
        missing=account.missing_count,
        doubled=account.doubled_count,
        extra=account.extra_count,
        other_zone_data=account.other_zone_data,
        missing_ticks=account.missing,
        doubled_ticks=account.doubled,
        extra_entries=[
            ExtraEntry(at=entry.first, until=entry.last, ticks=entry.ticks, status=entry.words)
            for entry in account.extra
        ],
        late=account.late,
        lateness_ms={str(value): count for value, count in sorted(account.lateness.items())},
        oldest_due=account.oldest_due,
        overdue=account.overdue,
        unknown=[UnknownSpan(since=span.since, until=span.until, why=span.why) for span in account.unknown],
    )
