"""Explains one on-demand run in sentences: when it is due, what it waits for, and each of its attempts. Pure: the facts
and the time are arguments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from detent.contract.run import Run
from detent.domain.counts import plural
from detent.domain.states import OPEN
from detent.jobs.explanation import Facts, JobEvent, TickNarrator, span

MAX_AHEAD = 1000


class RunFacts(NamedTuple):
    """What is recorded about an on-demand run. `place`: 'backlog', 'live', or None if it is finished. `holders` have
    the places of its concurrency key, `unfinished` the lanes of its job; both name some. `ahead`: how many are to start
    before it, up to MAX_AHEAD. `stopped`: a limit of 0 lets no run of its queue start. `lack`: the worker that is
    missing."""

    name: str
    status: str
    reason: str | None
    task: bool
    key_limit: int | None
    key_rate: float | None
    now: datetime
    held: bool
    place: str | None
    parked: bool | None
    paced: bool | None
    not_before: datetime | None
    attempt: int | None
    key: str | None
    owner: int | None
    queue: str | None
    suspended: bool | None
    ahead: int
    holders: Sequence[UUID]
    unfinished: Sequence[UUID]
    needs: str | None
    stopped: bool
    lack: str | None = None


def explain_run(run: Run, facts: RunFacts) -> list[str]:
    return list(RunNarrator(run, facts).sentences())


class RunNarrator(TickNarrator):
    def __init__(self, run: Run, facts: RunFacts) -> None:
        super().__init__(Facts(run.job, run.scheduled_at, facts.now, JobEvent(facts.now, None), 0))
        self.run = run
        self.known = facts

    def sentences(self) -> Iterator[str]:
        run, known = self.run, self.known
        kind = "task" if known.task else "job"
        past = run.scheduled_at <= known.now
        due = f"{'was' if past else 'is'} due at {self.when(run.scheduled_at)}"
        yield f"It is an on-demand run of the {kind} {known.name!r}: it was enqueued, and {due}."
        for attempt in run.attempts:
            yield self._attempt(attempt, run)
        if run.status == "running" and run.started_at is not None:
            yield f"Attempt {run.attempt} started {self._after_tick(run.started_at)} and has not ended."
        elif run.status not in OPEN:
            yield f"It {self._state(run)}."
        elif known.owner is not None:
            yield "A worker has claimed it and has not started it yet."
        else:
            yield self.waits()

    def _after_tick(self, moment: datetime) -> str:
        late = moment - self.run.scheduled_at
        return f"{span(late)} after it was due" if late >= timedelta(0) else f"at {self.when(moment)}"

    def waits(self) -> str:
        """What keeps it from starting: what comes first here would, without the others."""
        known = self.known
        if known.held:
            return "It waits: the cluster is paused, and no run starts."
        if known.suspended:
            return "It waits: the tenant is suspended by an administrator of the cluster."
        if known.status == "deleted":
            return "Its job is deleted: it will be cancelled."
        if known.task and known.status == "paused":
            why = f" ({known.reason})" if known.reason else ""
            return f"It waits: the task is paused{why}. It starts when the task is resumed."
        if known.not_before is not None and known.not_before > known.now:
            return self._in_time(known.not_before)
        if known.parked:
            return self._for_key()
        if known.place == "backlog" and known.unfinished:
            runs = ", ".join(map(str, known.unfinished))
            return f"It waits for its turn: the job has its maximum of unfinished runs, among them {runs}."
        if known.stopped:
            return f"It waits: a limit of 0 stops the queue {known.queue!r} or its tenant, see `detent queue list`."
        if known.lack is not None:
            return known.lack
        ahead = "" if not known.ahead else f" {_runs(known.ahead)} of the same priority are ahead of it."
        return f"It waits for a worker that serves the queue {known.queue!r}.{ahead}"

    def _in_time(self, at: datetime) -> str:
        known = self.known
        time = f"at {self.when(at)}, in {span(at - known.now)}"
        if (known.attempt or 1) > 1:
            return f"It waits for its next attempt, number {known.attempt}, which may start {time}."
        if known.paced and at > self.run.scheduled_at:
            rate = "" if known.key_rate is None else f" ({known.key_rate:g} per second)"
            return f"The rate of its concurrency key {known.key!r}{rate} lets it start {time}."
        return f"It may start {time}."

    def _for_key(self) -> str:
        known = self.known
        limit = known.key_limit or 1
        most = "one run" if limit == 1 else f"{limit} runs"
        text = f"It waits for its concurrency key {known.key!r}: at most {most} with it may run at the same time"
        if not known.holders:
            return f"{text}. A place is free, and a worker is about to start the next one."
        held = ", ".join(map(str, known.holders))
        return f"{text}, and {held} {'does' if len(known.holders) == 1 else 'do'}."


def _runs(count: int) -> str:
    return f"{MAX_AHEAD:,} or more runs" if count >= MAX_AHEAD else plural(count, "run")
