"""Collects what is known about one instant of a job, for `explanation.py`, or about one run."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

import msgspec

from detent.contract.run import Run
from detent.domain.identity import RunKey, node_name, token_text
from detent.domain.job import JobSpec
from detent.domain.job_schedule import schedule_of
from detent.domain.ledger import Entry, LedgerSegment
from detent.domain.ledger_ticks import tick_statuses
from detent.domain.schedule import Schedule, ScheduleError
from detent.domain.schedule.instants import parse_instant
from detent.domain.states import OPEN
from detent.errors import DetentError, UsageError
from detent.jobs.audit import no_longer_kept
from detent.jobs.explanation import Facts, JobEvent, Leader, RuleInForce, explain, span
from detent.jobs.run_explanation import explain_run
from detent.jobs.serving import ServingCheck
from detent.runtime.arithmetic import compute
from detent.store import Store
from detent.store.db import Row
from detent.store.jobs import DEFAULT_TENANT, number_of
from detent.store.ledger import Reading

MICROSECOND = timedelta(microseconds=1)
NEAR = timedelta(days=400)
FAR = timedelta(days=366 * 100)
LONGEST_RUN = timedelta(days=8)


class TickStory(NamedTuple):
    """The facts, with the ids of the job and of the run."""

    job_id: UUID
    facts: Facts
    run_id: UUID | None


class TickExplainer:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._records = store.explanations
        self._serving = ServingCheck(store)

    async def story(self, job_id: UUID, at: str, *, tenant: int = DEFAULT_TENANT) -> TickStory:
        """`at` is an instant or, without an offset, a wall-clock time in the job's zone; or `now`, `last` or `next`."""
        number, asked = await number_of(self._store.database, job_id, tenant), ""
        job = await self._records.job(number)
        if at in ("last", "next"):
            present = await self.story(job_id, "now", tenant=tenant)
            if present.facts.unknown is not None:
                return present
            asked, at = at, _neighbour(present.facts, at).isoformat()
        moment = _moment(at, job)
        reading = await self._store.ledger.read(number, (moment - MICROSECOND, moment))
        facts = Facts(
            job=job["name"],
            at=moment,
            now=job["now"],
            created=JobEvent(job["created_at"], job["created_by"]),
            partition=job["partition"],
            completed=job["status"] == "completed",
            deletion=JobEvent(job["since"], job["opened_by"]) if job["status"] == "deleted" and job["since"] else None,
            no_tick_yet=asked == "last" and moment <= job["created_at"],
        )
        kept = await self._store.ledger.kept_since()
        if kept is not None and moment < kept and job["created_at"] < kept and not reading.entries:
            return TickStory(job["id"], facts._replace(unknown=no_longer_kept(kept - MICROSECOND)), None)
        segment, backfilled = _in_force(reading)
        if segment is None and reading.unread:
            return TickStory(
                job["id"], facts._replace(unknown=reading.unread[0].why, entry=_only(reading.entries)), None
            )
        if segment is None:
            return TickStory(job["id"], facts._replace(after=await self._first_after(number, moment)), None)
        facts = await self._with_rule(facts._replace(backfilled=backfilled), number, segment)
        if segment.schedule.delay is not None:
            facts = _of_delay(facts, reading, job)
        if not facts.is_tick:
            return TickStory(job["id"], facts, None)
        return await self._with_status(facts, job, reading, segment, tenant)

    async def run(self, run: Run, key: RunKey, *, tenant: int = DEFAULT_TENANT) -> list[str]:
        """What happened to a run, in sentences."""
        story = await self._run_story(run, key, tenant)
        wait = await self._serving.waiting_for(run, key, tenant=tenant)
        return story if wait is None or wait in story else [*story, wait]

    async def _run_story(self, run: Run, key: RunKey, tenant: int) -> list[str]:
        if key.on_demand:
            return explain_run(run, await self._serving.run_facts(key, tenant=tenant))
        if not key.manual and not key.repeat:
            return explain((await self.story(run.job_id, run.scheduled_at.isoformat(), tenant=tenant)).facts)
        origin = "It was started manually, outside the schedule." if key.manual else "It was started by the schedule."
        sentences = [origin] if not key.repeat else [f"Repeat {key.repeat} of an earlier run.", origin]
        for attempt in run.attempts:
            took = "" if attempt.started_at is None else f" after {span(attempt.finished_at - attempt.started_at)}"
            sentences.append(f"Attempt {attempt.attempt} {attempt.outcome}{took}.")
        return [*sentences, f"The run is {run.status}."] if run.status in OPEN else sentences

    async def _first_after(self, number: int, moment: datetime) -> datetime | None:
        reading = await self._store.ledger.read(number, (moment, moment + NEAR))
        found = next(iter(tick_statuses(reading.segments, [], moment, moment + NEAR, None, moment)), None)
        return None if found is None else found.at

    async def _with_rule(self, facts: Facts, number: int, segment: LedgerSegment) -> Facts:
        row = await self._records.revision_at(number, facts.at)
        revision, made = None, None
        if row is not None:
            revision, made = row["revision"], JobEvent(row["made_at"], row["changed_by"])
        return await compute(_with_ticks, facts._replace(rule=RuleInForce(segment.schedule, revision, made)), segment)

    async def _with_status(
        self, facts: Facts, job: Row, reading: Reading, segment: LedgerSegment, tenant: int
    ) -> TickStory:
        number, at = job["job"], facts.at
        skips = await self._records.skips(number)
        tick = next(
            tick_statuses([segment], reading.entries, at - MICROSECOND, at, reading.next_tick, facts.now, _ticks(skips))
        )
        facts = facts._replace(status=tick.status, entry=tick.entry, leader=await self._leader(facts))
        facts = facts._replace(skip=_skip(skips, at), held=await self._records.hold())
        facts = facts._replace(recorded_at=_recorded_at(reading.rows, tick.entry))
        run = None
        if tick.entry is not None and tick.entry.first == tick.entry.last == at:
            run = await self._store.runs.get(RunKey(number, at), tenant=tenant)
        facts = await self._with_reason(facts._replace(run=run), job, tenant)
        return TickStory(job["id"], facts, None if run is None else run.id)

    async def _with_reason(self, facts: Facts, job: Row, tenant: int) -> Facts:
        """Why the tick did not run, and who caused it."""
        entry = facts.entry
        match facts.status, None if entry is None else entry.reason:
            case "skipped", "overlap":
                return facts._replace(blocker=await self._blocker(job["job"], facts, tenant))
            case ("skipped", "paused") | ("paused", _):
                return await self._with_pause(facts, job)
            case "skipped", "edited":
                span = await self._records.span_at(job["job"], facts.at)
                return facts if span is None else facts._replace(edit=JobEvent(span["until"], span["closed_by"]))
            case "missed", "dropped" | "deleted" | "max_runs":
                span = await self._records.span_at(job["job"], facts.at)
                if span is not None and span["opened"] == "paused":
                    return facts._replace(pause=JobEvent(span["since"], span["opened_by"], span["reason"]))
            case "cancelled", "replaced":
                return facts._replace(replaced_by=await self._records.entry_after(job["job"], facts.at))
            case "missed", "merged" if entry is not None:
                return facts._replace(merged_into=await self._records.entry_after(job["job"], entry.last))
        return facts

    async def _with_pause(self, facts: Facts, job: Row) -> Facts:
        """The tick is in a pause, or was due when one began."""
        span = await self._records.span_at(job["job"], facts.at)
        if span is None:
            return facts
        if span["opened"] == "paused":
            pause = JobEvent(span["since"], span["opened_by"], span["reason"])
            return facts._replace(pause=pause, pause_until=None if span["until"] else job["paused_until"])
        following = await self._records.span_at(job["job"], span["until"] + MICROSECOND) if span["until"] else None
        reason = following["reason"] if following is not None else None
        return facts._replace(pause=JobEvent(span["until"] or facts.at, span["closed_by"], reason))

    async def _leader(self, facts: Facts) -> Leader | None:
        row = await self._records.leader_at(facts.partition, facts.at)
        return None if row is None else Leader(node_name(row["node"]), token_text(row["term"]), row["at"])

    async def _blocker(self, job: int, facts: Facts, tenant: int) -> Run | None:
        key = await self._records.blocking_run(job, facts.recorded_at or facts.at, LONGEST_RUN)
        return None if key is None else await self._store.runs.get(key, tenant=tenant)


def _with_ticks(facts: Facts, segment: LedgerSegment) -> Facts:
    schedule = segment.schedule
    return facts._replace(
        is_tick=schedule.latest(facts.at, facts.at) == facts.at,
        fires_at=segment.fires_at(facts.at),
        before=schedule.latest(facts.at - FAR, facts.at - timedelta(milliseconds=1)),
        after=schedule.next_after(facts.at),
    )


def _of_delay(facts: Facts, reading: Reading, job: Row) -> Facts:
    """Ticks that count from the end of a run are those that are recorded, and the next one."""
    known = sorted({entry.first for entry in reading.entries} | ({reading.next_tick} if reading.next_tick else set()))
    return facts._replace(
        is_tick=facts.at in known,
        before=max((tick for tick in (*known, job["last_tick"]) if tick and tick < facts.at), default=None),
        after=min((tick for tick in known if tick > facts.at), default=None),
    )


def _moment(text: str, job: Row) -> datetime:
    """An instant as written, or a wall-clock time in the job's zone; in a gap, the instant that replaces it."""
    if text == "now":
        now: datetime = job["now"]
        return now
    try:
        schedule: Schedule = _schedule(job)
        resolver = getattr(schedule.ticks, "resolver", None)
        gap = "run" if resolver is not None and resolver.gap == "run" else "shift"
        return parse_instant(text, schedule.zone, gap, getattr(resolver, "overlap", "first"))
    except ScheduleError as error:
        raise UsageError(error.message, "/at") from error


def _neighbour(facts: Facts, side: str) -> datetime:
    """The tick before or after the present."""
    found = facts.at if facts.is_tick and side == "last" else facts.before if side == "last" else facts.after
    if facts.rule is not None and facts.rule.schedule.never:
        raise UsageError(
            f"{facts.job} is a task, and has no ticks: explain one of its runs with `detent run explain RUN`.", "/at"
        )
    if found is None:
        raise UsageError(
            f"{facts.job} has no {side} tick: give a time such as 2030-01-31T09:00:00Z, or explain one of its runs"
            " with `detent run explain RUN`.",
            "/at",
        )
    return found


def _schedule(job: Row) -> Schedule:
    """The schedule of the present definition; if this version cannot read it, one in UTC."""
    try:
        spec = msgspec.json.decode(job["definition"], type=JobSpec)
        return schedule_of(spec, job["tenant"], job["created_at"])
    except (msgspec.MsgspecError, ScheduleError, DetentError):
        return Schedule.parse("* * * * *")


def _only(entries: list[Entry]) -> Entry | None:
    return entries[0] if entries else None


def _in_force(reading: Reading) -> tuple[LedgerSegment | None, bool]:
    """The segment of the instant, and whether it is that of a backfill. The segment of a backfill counts only if there
    is no other and the tick has run."""
    regular = [segment for segment in reading.segments if not segment.optional]
    if regular or not reading.segments or not reading.entries:
        return next(iter(regular), None), False
    return reading.segments[0]._replace(optional=False), True


def _ticks(skips: list[Row]) -> set[datetime]:
    return {row["tick"] for row in skips}


def _skip(skips: list[Row], at: datetime) -> JobEvent | None:
    found = [row for row in skips if row["tick"] == at]
    return JobEvent(found[0]["created_at"], found[0]["created_by"], found[0]["reason"]) if found else None


def _recorded_at(rows: list[Row], entry: Entry | None) -> datetime | None:
    """When the entry was recorded."""
    if entry is None:
        return None
    found: list[datetime | None] = [row["finished_at"] for row in rows if row["scheduled_at"] == entry.first]
    return found[0] if found else None
