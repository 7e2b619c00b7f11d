"""The runs that this worker holds, and how the task that executes one is interrupted.

A task executes one run after another, so its cancellation does not say which run was meant: the run itself records it,
and the rest of a cancellation is absorbed when that run ends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence

from detent.domain.identity import FIRST_TASK_LANE, RunKey
from detent.domain.run import INTERRUPTED, Claim, HeldRun


class HeldRuns:
    """The runs that a worker holds, by their job: nearly always one. Keyed by the whole identity, which contains a
    time, each was hashed three times, and that took a twentieth of what a run cost. Of a task there may be thousands:
    they are kept by job and lane. Two claims of one such run are held where the reply to what ended the first was lost:
    the node may have claimed the run again before it knows."""

    def __init__(self) -> None:
        self._first: dict[int, HeldRun] = {}
        self._others: dict[int, list[HeldRun]] = {}
        self._tasks: dict[tuple[int, int], HeldRun] = {}
        self._former: dict[tuple[int, int], list[HeldRun]] = {}

    def __len__(self) -> int:
        beside = (*self._others.values(), *self._former.values())
        return len(self._first) + len(self._tasks) + sum(map(len, beside))

    def __iter__(self) -> Iterator[HeldRun]:
        yield from self._first.values()
        yield from self._tasks.values()
        for some in (*self._others.values(), *self._former.values()):
            yield from some

    def add_all(self, some: Iterable[HeldRun]) -> None:
        first = self._first
        for held in some:
            claim = held.claim
            if claim.job in first or claim.lane >= FIRST_TASK_LANE:
                self.add(held)
            else:  # nearly always
                first[claim.job] = held

    def add(self, held: HeldRun) -> None:
        """Replaces one that is here already under the same claim."""
        job = held.claim.job
        if held.claim.lane >= FIRST_TASK_LANE:
            self._add_of_task((job, held.claim.lane), held)
            return
        if job in self._first:
            self.remove(held.claim)
        if job in self._first:
            self._others.setdefault(job, []).append(held)
        else:
            self._first[job] = held

    def _add_of_task(self, place: tuple[int, int], held: HeldRun) -> None:
        former = self._tasks.get(place)
        if former is not None and former.claim.identity != held.claim.identity:
            self._former.setdefault(place, []).append(former)
        self._tasks[place] = held

    def find(self, claim: Claim) -> HeldRun | None:
        for held in self._of(claim.job, claim.lane):
            if held.claim is claim or held.claim.identity == claim.identity:
                return held
        return None

    def of_run(self, key: RunKey) -> Sequence[HeldRun]:
        """Those that may be this run."""
        return (*self._of_job(key.job), *self._of(key.job, key.serial)) if key.on_demand else self._of_job(key.job)

    def _of(self, job: int, lane: int) -> Sequence[HeldRun]:
        if lane < FIRST_TASK_LANE:
            return self._of_job(job)
        held = self._tasks.get((job, lane))
        return () if held is None else (held, *self._former.get((job, lane), ())) if self._former else (held,)

    def _of_job(self, job: int) -> Sequence[HeldRun]:
        first = self._first.get(job)
        return () if first is None else (first, *self._others.get(job, ()))

    def remove_all(self, some: Iterable[HeldRun]) -> list[HeldRun]:
        """Returns those that were here: one that was adopted again in the meantime is another one of the same claim."""
        gone: list[HeldRun] = []
        first, others = self._first, self._others
        for held in some:
            job = held.claim.job
            if first.get(job) is held and not others:  # nearly always
                del first[job]
                gone.append(held)
            elif (found := self.remove(held.claim)) is not None:
                gone.append(found)
        return gone

    def remove(self, claim: Claim) -> HeldRun | None:
        if claim.lane >= FIRST_TASK_LANE:
            return self._remove_of_task((claim.job, claim.lane), claim)
        held = self.find(claim)
        if held is not None:
            self._take_out(claim.job, held)
        return held

    def _remove_of_task(self, place: tuple[int, int], claim: Claim) -> HeldRun | None:
        held = self.find(claim)
        if held is None:
            return None
        former = self._former.pop(place, [])
        left = [other for other in (*former, self._tasks[place]) if other is not held]
        if left:
            self._tasks[place] = left[-1]
            if left[:-1]:
                self._former[place] = left[:-1]
        else:
            del self._tasks[place]
        return held

    def _take_out(self, job: int, held: HeldRun) -> None:
        left = [other for other in self._of_job(job) if other is not held]
        del self._first[job]
        self._others.pop(job, None)
        if left:
            self._first[job] = left[0]
        if left[1:]:
            self._others[job] = left[1:]


def is_running(held: HeldRun) -> bool:
    return held.task is not None and not held.over


def expire(held: HeldRun) -> None:
    held.expired = True
    if held.task is not None:
        held.task.cancel(INTERRUPTED)


async def absorb_cancellation(task: asyncio.Task[None]) -> None:
    """A run was asked to stop, perhaps when it was over already: the cancellation must not hit the task's next run."""
    while task.cancelling():
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            pass
        task.uncancel()
