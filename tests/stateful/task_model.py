"""What the database should hold of on-demand runs: a run waits, or is live, or has ended, and moves between these."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from detent.domain.identity import RunKey, run_id
from detent.domain.run import Claim
from detent.domain.states import RunStatus
from tests.stateful.protocol_model import Model, Run

PRIORITY = 5


@dataclass
class Document:
    """One run as it is enqueued."""

    unique: str | None = None
    period: bool = False
    concurrency: str | None = None
    delayed: bool = False
    priority: int | None = None


@dataclass
class TaskRun(Run):
    """A run that was enqueued, waiting or live."""

    priority: int = PRIORITY
    concurrency: str | None = None
    delayed: bool = False
    parked: bool = False

    @property
    def status(self) -> str:
        if self.owner is not None:
            return "running"
        return "retrying" if self.attempt > 1 or self.crashes else "pending"

    def waiting_row(self) -> tuple[object, ...]:
        counts = (self.token, self.attempt, self.crashes, self.lost_alone)
        return *counts, self.priority, self.concurrency, self.delayed, self.parked


@dataclass
class Task:
    """`lanes`: a job with a schedule, which has so many."""

    limit: int | None = None
    once: bool = False
    lanes: int | None = None
    status: str = "active"


class Answer(NamedTuple):
    run: UUID
    created: bool
    status: str


@dataclass
class Holder:
    """The run that has a unique key; `period`: whether or not it has ended."""

    key: RunKey
    period: bool


@dataclass
class TaskModel(Model):
    queue: int = 0
    tasks: dict[int, Task] = field(default_factory=dict)
    waiting: dict[RunKey, TaskRun] = field(default_factory=dict)
    live: dict[RunKey, TaskRun] = field(default_factory=dict)  # type: ignore[assignment]
    holders: dict[tuple[int, str], Holder] = field(default_factory=dict)

    # --- enqueue ---

    def free(self, job: int, unique: str) -> bool:
        holder = self.holders.get((job, unique))
        return holder is None or not (holder.period or holder.key in self.waiting or holder.key in self.live)

    def enqueue(self, job: int, documents: Iterable[Document], keys: Iterable[RunKey]) -> list[Answer]:
        """The answers to an enqueue that gave new runs these keys; those of runs that it only found are not used."""
        return [self._enqueue(job, document, key) for document, key in zip(documents, keys, strict=True)]

    def _enqueue(self, job: int, document: Document, key: RunKey) -> Answer:
        if document.unique is not None and not self.free(job, document.unique):
            found = self.holders[job, document.unique].key
            return Answer(run_id(found), False, self.status(found))
        if document.unique is not None:
            self.holders[job, document.unique] = Holder(key, document.period)
        task = self.tasks[job]
        concurrency = document.concurrency if task.limit is None else document.concurrency or ""
        priority = PRIORITY if document.priority is None else document.priority
        self.waiting[key] = TaskRun(
            key, -1, task.once, priority=priority, concurrency=concurrency, delayed=document.delayed
        )
        return Answer(run_id(key), True, "pending")

    def status(self, key: RunKey) -> str:
        run = self.waiting.get(key) or self.live.get(key)
        return str(self.ended[key][0].value) if run is None else run.status

    # --- what waits ---

    def starts(self, job: int) -> bool:
        task = self.tasks[job]
        return task.status == "active" or (task.lanes is not None and task.status != "deleted")

    def heads(self) -> set[tuple[int, bool, int]]:
        return {
            (run.key.job, run.concurrency is not None, run.priority)
            for run in self.waiting.values()
            if not run.parked and self.starts(run.key.job)
        }

    def ready(self, *, keyed: bool) -> list[TaskRun]:
        """Runs of tasks that a claim may take now."""
        return [
            run
            for run in self.waiting.values()
            if not run.parked
            and not run.delayed
            and (run.concurrency is not None) is keyed
            and self.tasks[run.key.job].lanes is None
            and self.starts(run.key.job)
        ]

    def places(self, job: int, key: str) -> int:
        """How many more runs of this concurrency key may be live."""
        taken = sum(run.key.job == job and run.concurrency == key for run in self.live.values())
        return (self.tasks[job].limit or 1) - taken

    def parked(self) -> dict[tuple[int, str], list[TaskRun]]:
        """Runs that wait for a place, by job and key."""
        return _by_key(run for run in self.waiting.values() if run.parked)

    def keyed(self) -> dict[tuple[int, str], list[TaskRun]]:
        """The runs with concurrency keys that a claim would read, by job and key."""
        return _by_key(self.ready(keyed=True))

    def laned(self, job: int) -> list[TaskRun]:
        return [run for run in self.waiting.values() if run.key.job == job and not run.delayed]

    def free_lanes(self, job: int) -> list[int]:
        """The highest first."""
        taken = {run.lane for run in self.live.values() if run.key.job == job}
        return [lane for lane in reversed(range(self.tasks[job].lanes or 0)) if lane not in taken]

    # --- moves ---

    def seat(self) -> list[TaskRun]:
        """Of the runs with concurrency keys that are ready, those that have a place; the others are parked."""
        seated: list[TaskRun] = []
        for (job, key), runs in self.keyed().items():
            some = in_order(runs)[: max(self.places(job, key), 0)]
            for run in runs:
                run.parked = run not in some
            seated += some
        return in_order(seated)

    def unpark(self) -> list[TaskRun]:
        """As many runs become ready as have places now."""
        ready: list[TaskRun] = []
        for (job, key), runs in self.parked().items():
            ready += in_order(runs)[: max(self.places(job, key), 0)]
        for run in ready:
            run.parked = False
        return ready

    def take(self, key: RunKey, node: int | None, lane: int | None = None) -> TaskRun:
        """From the backlog into live_runs; a lane of a job with a schedule keeps the token."""
        run = self.live[key] = self.waiting.pop(key)
        run.owner, run.parked = node, False
        run.token += lane is None
        run.lane = key.serial if lane is None else lane
        if node is not None:
            self.grants.append((node, self.claim_of(run)))
        return run

    def claim_of(self, run: Run) -> Claim:
        claim = super().claim_of(run)
        assert isinstance(run, TaskRun)
        return claim._replace(queue=self.queue, payload="", concurrency_key=run.concurrency)

    def pending(self) -> list[TaskRun]:
        return [run for run in self.live.values() if run.owner is None]

    def retry(self, run: Run) -> None:
        """A run of a task returns to the backlog; one of a job with a schedule keeps its lane."""
        assert isinstance(run, TaskRun)
        super().retry(run)
        if run.key in self.live and self.tasks[run.key.job].lanes is None:
            self.waiting[run.key] = self.live.pop(run.key)
            run.delayed = False

    def cancel(self, key: RunKey) -> int | None:
        if key in self.live:
            return super().cancel(key)
        self.end_waiting(key)
        return None

    def end_waiting(self, key: RunKey) -> None:
        self.ended[key] = (RunStatus.CANCELLED, self.waiting.pop(key).token)

    def delete(self, job: int) -> None:
        """The job is deleted, and so is everything that no node has; then another takes its place."""
        for key in [key for key in self.waiting if key.job == job]:
            self.end_waiting(key)
        for run in [run for run in self.pending() if run.key.job == job]:
            self.end(run, RunStatus.CANCELLED)

    def dead(self) -> list[RunKey]:
        return [key for key, (status, _) in self.ended.items() if status is RunStatus.DEAD]

    def redrive(self, keys: Collection[RunKey], concurrency: dict[RunKey, str | None]) -> None:
        for key in keys:
            _, token = self.ended.pop(key)
            assert token is not None
            run = TaskRun(key, -1, self.tasks[key.job].once, token=token + 1, concurrency=concurrency[key])
            self.waiting[key] = run


def in_order(runs: Iterable[TaskRun]) -> list[TaskRun]:
    return sorted(runs, key=lambda run: (-run.priority, run.key.serial))


def keys_of(runs: Iterable[TaskRun]) -> list[RunKey]:
    return [run.key for run in runs]


def _by_key(runs: Iterable[TaskRun]) -> dict[tuple[int, str], list[TaskRun]]:
    found: dict[tuple[int, str], list[TaskRun]] = defaultdict(list)
    for run in runs:
        if run.concurrency is not None:
            found[run.key.job, run.concurrency].append(run)
    return found
