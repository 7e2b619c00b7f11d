"""Explains one tick of a job in sentences. Pure: the facts and the time are arguments.

The sentences say which schedule was in force and who set it, the effect of a clock change, which node led the job's
partition, and each attempt of the run with its end; or why there was no run. For an instant that is not a tick they
name the ticks before and after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import NamedTuple

from detent.contract.cluster import ClusterHold
from detent.contract.run import Attempt, Run
from detent.domain.attempt_words import end_of_attempt
from detent.domain.callbacks import WORKER_PREFIX
from detent.domain.counts import plural
from detent.domain.ledger import CATCHING_UP, DUE, PAUSED, Entry
from detent.domain.ledger_ticks import MISSING, SCHEDULED, TO_BE_SKIPPED
from detent.domain.schedule import Schedule
from detent.domain.schedule.preview import clock_notes
from detent.domain.schedule.schedule import SEARCHED

MILLISECOND = timedelta(milliseconds=1)
REASONS = {
    "retries exhausted": " because its retries were used up",
    "not retryable": " because its error is not retried",
    "lost": " because its worker was lost",
    "discarded": ", and was discarded",
    "replaced": " because a later tick replaced it (concurrent_policy REPLACE)",
}


class JobEvent(NamedTuple):
    """A change of a job: when, by whom and why. `by` None: not recorded."""

    at: datetime
    by: str | None
    reason: str | None = None


class RuleInForce(NamedTuple):
    """The schedule in force, and the revision of the job that set it; None: the revision is not known."""

    schedule: Schedule
    revision: int | None = None
    made: JobEvent | None = None


class Leader(NamedTuple):
    node: str
    term: str
    since: datetime


class Facts(NamedTuple):
    """What is recorded about one instant of a job. `rule` None: no schedule was in force. `status` and `entry` are
    those of the tick, `run` is its run, `blocker` the run that kept it from starting. `pause`, `edit` and `deletion`
    are the changes of the job that skipped the tick. `fires_at` is the tick plus the job's jitter or the delay
    of its staggered release. `backfilled`: it ran in a backfill, and no schedule was in force. `replaced_by`: the tick
    whose run took the place of this one. `no_tick_yet`: the last tick was asked for, and there is none. `unknown`: why
    the schedule of that time cannot be read."""

    job: str
    at: datetime
    now: datetime
    created: JobEvent
    partition: int
    rule: RuleInForce | None = None
    is_tick: bool = False
    fires_at: datetime | None = None
    backfilled: bool = False
    before: datetime | None = None
    after: datetime | None = None
    status: str | None = None
    entry: Entry | None = None
    run: Run | None = None
    recorded_at: datetime | None = None
    leader: Leader | None = None
    blocker: Run | None = None
    pause: JobEvent | None = None
    pause_until: datetime | None = None
    edit: JobEvent | None = None
    deletion: JobEvent | None = None
    completed: bool = False
    skip: JobEvent | None = None
    merged_into: datetime | None = None
    replaced_by: datetime | None = None
    held: ClusterHold | None = None
    no_tick_yet: bool = False
    unknown: str | None = None


def explain(facts: Facts) -> list[str]:
    return list(TickNarrator(facts).sentences())


class TickNarrator:
    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.zone = None if facts.rule is None else facts.rule.schedule.zone

    def sentences(self) -> Iterator[str]:
        facts = self.facts
        if facts.unknown is not None:
            yield f"The schedule of {facts.job!r} at {self.when(facts.at)} is unknown. {facts.unknown}"
            if facts.entry is not None:
                yield f"The ledger records: {facts.entry.words}."
            return
        if facts.rule is None:
            yield from self._without_schedule()
            return
        if facts.rule.schedule.never:
            yield f"{self.when(facts.at)} is not a tick of {facts.job!r}. {self._rule(facts.rule)}"
            return
        mark, notes = clock_notes(facts.rule.schedule, facts.at)
        if not facts.is_tick:
            yield f"{self.when(facts.at)} is not a tick of {facts.job!r}. {self._rule(facts.rule)}"
            yield from self._notes(notes)
            yield self._neighbours()
            return
        yield f"{self.when(facts.at)} is a tick of {facts.job!r}. {self._rule(facts.rule)}"
        if mark is not None or facts.rule.schedule.timezone != "UTC":
            yield from self._notes(notes)
        if facts.backfilled:
            yield self._backfill()
        elif facts.at <= facts.now and facts.status not in (PAUSED,):
            yield self._leader()
        yield from self._fate()

    # --- the schedule ---

    def _without_schedule(self) -> Iterator[str]:
        facts, at = self.facts, self.when(self.facts.at)
        if facts.no_tick_yet:
            yield f"{facts.job!r} has had no tick yet: it was created {self._done(facts.created)}."
        elif facts.at <= facts.created.at:
            yield f"{facts.job!r} had no tick at {at}: it was created {self._done(facts.created)}."
        elif facts.deletion is not None and facts.at > facts.deletion.at:
            yield f"{facts.job!r} had no schedule at {at}: it was deleted {self._done(facts.deletion)}."
        else:
            end = ": it was already completed, and had no tick left" if facts.completed else ""
            yield f"{facts.job!r} had no schedule at {at}{end}."
        if facts.after is not None:
            that_time = "" if facts.no_tick_yet else " after that time"
            yield f"Its first tick{that_time} is {self.when(facts.after)}."

    def _rule(self, rule: RuleInForce) -> str:
        words = rule.schedule.describe().rstrip(".")
        zone = f" in {rule.schedule.timezone}" if rule.schedule.kind in SEARCHED else ""
        past = self.facts.at <= self.facts.now
        text = f"Its schedule {'was' if past else 'is'}: {words}{zone}"
        if rule.schedule.never:
            text = f"It {'had' if past else 'has'} no schedule: its runs {'were' if past else 'are'} enqueued"
        if rule.revision is None or rule.made is None:
            return f"{text}."
        return f"{text}, set by revision {rule.revision} {self._done(rule.made)}."

    def _notes(self, notes: list[str]) -> Iterator[str]:
        for note in notes:
            yield f"The clocks change then: {note}."

    def _neighbours(self) -> str:
        near = [self.when(tick) for tick in (self.facts.before, self.facts.after) if tick is not None]
        if not near:
            return "It has no tick before or after that time."
        if len(near) == 2:
            return f"The nearest ticks are {near[0]} and {near[1]}."
        side = "after" if self.facts.before is None else "before"
        return f"The nearest tick is {near[0]}; there is none {'before' if side == 'after' else 'after'} that time."

    def _backfill(self) -> str:
        if self.facts.at > self.facts.created.at:
            return "A backfill ran it: no schedule was in force."
        return f"A backfill ran it: the job was created {self._done(self.facts.created)}."

    def _leader(self) -> str:
        leader = self.facts.leader
        if leader is None:
            return f"Which node led its partition, {self.facts.partition}, is not recorded."
        since = f"since {self.when(leader.since)}, with term {leader.term}"
        return f"The leader of its partition, {self.facts.partition}, was node {leader.node}, {since}."

    # --- the status ---

    def _fate(self) -> Iterator[str]:
        facts = self.facts
        match facts.status:
            case "scheduled" | "to be skipped" | "due" | "paused" | "missing" | "catching up":
                yield from self._open_end()
            case "skipped":
                yield self._skipped()
            case "missed":
                yield self._missed()
            case _ if facts.run is not None:
                yield from self._ran(facts.run)
        entry = facts.entry
        if entry is not None and entry.ticks > 1 and facts.status != CATCHING_UP:
            yield (
                f"The ledger has one entry for {entry.ticks} ticks, from {self.when(entry.first)} to "
                f"{self.when(entry.last)}, including this one."
            )

    def _open_end(self) -> Iterator[str]:
        facts = self.facts
        match facts.status:
            case status if status == SCHEDULED:
                yield self._to_come()
            case status if status == TO_BE_SKIPPED:
                yield f"It will not run: {self._asked_to_skip()}"
            case status if status == PAUSED:
                yield self._in_pause()
            case status if status == CATCHING_UP:
                left = facts.entry.ticks if facts.entry is not None else 1
                yield f"It was missed or was in a pause, and will still run: {_ticks(left)} left to catch up."
            case status if status == DUE:
                yield f"It has been due for {span(facts.now - (facts.fires_at or facts.at))} and has not fired yet."
            case status if status == MISSING:
                yield (
                    "Its outcome is unknown: the ledger has no entry for it, and the job's cursor has passed it. "
                    "`detent audit` counts it as missing."
                )
        if facts.held is not None and facts.status in (DUE, SCHEDULED, CATCHING_UP):
            paused = self._done(JobEvent(facts.held.at, facts.held.by, facts.held.reason))
            yield f"No tick of any job fires at the moment: the cluster was paused {paused}."

    def _to_come(self) -> str:
        facts = self.facts
        fires_at, delayed = facts.fires_at or facts.at, self._delayed()
        delay = f", {delayed}" if delayed else ""
        if facts.rule is not None and facts.rule.schedule.delay is not None:
            return (
                f"It fires in {span(fires_at - facts.now)} at the earliest: if a run of the job is unfinished then, it "
                "waits for its end and for the delay since."
            )
        return f"It fires in {span(fires_at - facts.now)}{delay}."

    def _delayed(self) -> str:
        """Why it fires later than it ticks; empty: it does not."""
        facts = self.facts
        if facts.fires_at is None or facts.fires_at == facts.at:
            return ""
        cause = "jitter" if facts.rule is None or not facts.rule.schedule.staggered else "its staggered release"
        return f"{span(facts.fires_at - facts.at)} after the tick because of {cause}"

    def _in_pause(self) -> str:
        pause = self.facts.pause
        text = "It does not run: " + (f"the job was paused {self._done(pause)}" if pause else "the job is paused")
        if self.facts.pause_until is not None:
            text += f", until {self.when(self.facts.pause_until)}"
        return f"{text}. Whether it runs later is decided when the job is resumed."

    def _skipped(self) -> str:
        facts = self.facts
        reason = facts.entry.reason if facts.entry is not None else None
        match reason:
            case "overlap":
                return f"It did not run: {self._blocked()}"
            case "paused":
                paused = f" {self._done(facts.pause)}" if facts.pause is not None else ""
                return f"It did not run: the job was paused{paused}."
            case "by request":
                return f"It did not run: {self._asked_to_skip()}"
            case "tenant suspended":
                return "It did not run: the tenant was suspended by an administrator of the cluster."
            case "edited":
                edited = f" {self._done(facts.edit)}" if facts.edit is not None else ""
                return (
                    f"It was skipped: it was due and had not fired when the schedule was changed{edited}. An edit does "
                    "not fire ticks."
                )
            case "deleted":
                deleted = f" {self._done(facts.deletion)}" if facts.deletion is not None else ""
                return f"It was skipped: it was due and had not fired when the job was deleted{deleted}."
        return f"It did not run: {reason}."

    def _blocked(self) -> str:
        blocker = self.facts.blocker
        if blocker is None:
            return "another run of the job was unfinished, and its concurrent_policy allows no other run."
        ended = f"ended {self.when(blocker.finished_at)}" if blocker.finished_at else "has not ended yet"
        return (
            f"the run of {self.when(blocker.scheduled_at)}, {blocker.id}, was unfinished ({ended}), and the job's "
            "concurrent_policy allows no other run."
        )

    def _asked_to_skip(self) -> str:
        if self.facts.skip is None:
            return "it was marked to be skipped."
        return f"it was marked to be skipped {self._done(self.facts.skip)}."

    def _missed(self) -> str:
        facts = self.facts
        late = f" {span(facts.recorded_at - facts.at)} later" if facts.recorded_at is not None else ""
        reason = facts.entry.reason if facts.entry is not None else None
        begin = f"It was missed: no node fired it in time. When a node processed it{late},"
        match reason:
            case "grace":
                return f"{begin} it was older than the job's grace period."
            case "merged":
                into = f", {self.when(facts.merged_into)}," if facts.merged_into is not None else ""
                return f"{begin} only the latest missed tick{into} was run (missed_window RUN_ONCE)."
            case "policy":
                return f"{begin} no missed tick was run (missed_window SKIP)."
            case "limit":
                return f"{begin} more ticks had been missed than max_missed allows."
        return self._dropped(str(reason))

    def _dropped(self, reason: str) -> str:
        """The sentence for a tick that waited to be caught up and was dropped."""
        facts = self.facts
        origin = "no node fired it in time" if facts.pause is None else f"the job was paused {self._done(facts.pause)}"
        at = "" if facts.recorded_at is None else f", {self.when(facts.recorded_at)}"
        ends = {
            "dropped": f"until the catch-up was dropped{at}",
            "deleted": f"until the job was deleted{at}",
            "max_runs": f"until the job had used all its max_runs{at}",
        }
        return f"It was missed: {origin}. It waited to be caught up {ends.get(reason, f'until {reason}{at}')}."

    # --- a run ---

    def _ran(self, run: Run) -> Iterator[str]:
        yield f"It became run {run.id}, which {self._state(run)}."
        if delayed := self._delayed():
            yield f"It was to fire {delayed}."
        if self.facts.replaced_by is not None:
            yield f"The tick that replaced it is {self.when(self.facts.replaced_by)}."
        for attempt in run.attempts:
            yield self._attempt(attempt, run)
        if run.status == "running" and run.started_at is not None:
            yield f"Attempt {run.attempt} started {self._after_tick(run.started_at)} and has not ended."

    def _state(self, run: Run) -> str:
        reason = REASONS.get(run.reason, f": {run.reason}") if run.reason else ""
        match run.status:
            case "succeeded" | "dead" | "cancelled":
                ended = f" at {self.when(run.finished_at)}" if run.finished_at else ""
                verb = {"succeeded": "succeeded", "dead": "died", "cancelled": "was cancelled"}[str(run.status)]
                return f"{verb}{ended}{reason}"
            case "running":
                if (run.node or "").startswith(WORKER_PREFIX):
                    return f"was accepted by its target, and waits for its callback{reason}"
                return f"is running on node {run.node}{reason}"
            case "retrying":
                return f"waits for its next attempt, number {run.attempt}{reason}"
        return f"waits for a worker{reason}"

    def _attempt(self, attempt: Attempt, run: Run) -> str:
        started = "" if attempt.started_at is None else f" started {self._after_tick(attempt.started_at)}"
        node = f" on node {attempt.node}" if attempt.node else ""
        took = "" if attempt.started_at is None else f" after {span(attempt.finished_at - attempt.started_at)}"
        end = end_of_attempt(attempt.outcome, attempt.node, attempt.error, took)
        joined = " and" if started else ""
        return f"Attempt {attempt.attempt}{started}{node}{joined} {end}".rstrip(".") + "."

    def _after_tick(self, moment: datetime) -> str:
        late = moment - self.facts.at
        counted = late >= timedelta(0) and not self.facts.backfilled
        return f"{span(late)} after the tick" if counted else f"at {self.when(moment)}"

    # --- words ---

    def _done(self, event: JobEvent) -> str:
        reason = f" ({event.reason})" if event.reason else ""
        by = f" by {event.by}" if event.by else ""
        return f"at {self.when(event.at)}{by}{reason}"

    def when(self, moment: datetime) -> str:
        text = f"{moment:%Y-%m-%d %H:%M:%S}"
        if moment.microsecond // 1000 and moment.microsecond % 1000 == 0:
            text += f".{moment.microsecond // 1000:03}"
        if self.zone is None or self.zone.name == "UTC":
            return f"{text} UTC"
        local = moment.astimezone(self.zone.info)
        day = "" if local.date() == moment.date() else f"{local:%Y-%m-%d} "
        return f"{text} UTC ({day}{local:%H:%M:%S} in {self.zone.name})"


def span(length: timedelta) -> str:
    """`12 ms`, `1.5 s`, `3 min 20 s`, `2 h 5 min`, `40 days`."""
    milliseconds = max(length // MILLISECOND, 0)
    if milliseconds < 1000:
        return f"{milliseconds} ms"
    if milliseconds < 60_000:
        return f"{milliseconds / 1000:.1f} s"
    minutes, seconds = divmod(milliseconds // 1000, 60)
    hours, minutes_left = divmod(minutes, 60)
    if not hours:
        return f"{minutes} min {seconds} s" if seconds else f"{minutes} min"
    if hours < 48:
        return f"{hours} h {minutes_left} min" if minutes_left else f"{hours} h"
    return f"{hours // 24} days"


def _ticks(count: int) -> str:
    return plural(count, "tick")
