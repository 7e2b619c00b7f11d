"""A run in hand, and how the task that runs it is interrupted.

A task runs one run after another, so being cancelled says nothing about which of them was meant: the run itself knows,
and what is left of a cancellation ends with it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import datetime

from detent.domain.job import Definition
from detent.domain.run import Claim


class Held:
    """A run in hand: waiting for a slot, running, or done and being settled."""

    __slots__ = (
        *("begun", "called", "claim", "definition", "expired", "followed", "passed_on"),
        *("started", "stop", "task"),
    )

    def __init__(self, claim: Claim, started: datetime) -> None:
        self.claim = claim
        self.started = started
        self.definition: Definition | None = None
        self.task: asyncio.Task[None] | None = None
        self.begun = False
        self.called = False
        """Its target is being called, or was: from here on it has an outcome, and never goes back as if not started."""
        self.stop = False
        self.expired = False
        self.passed_on = False
        self.followed = False


class InHand:
    """The runs that a worker holds, by their job: nearly always one. By their whole identity, which has a time in it,
    each was hashed three times, and that took a twentieth of what a run cost."""

    def __init__(self) -> None:
        self._first: dict[int, Held] = {}
        self._others: dict[int, list[Held]] = {}

    def __len__(self) -> int:
        return len(self._first) + sum(map(len, self._others.values()))

    def __iter__(self) -> Iterator[Held]:
        yield from self._first.values()
        for some in self._others.values():
            yield from some

    def add(self, held: Held) -> None:
        """One that is here already under the same claim makes way."""
        job = held.claim.job
        if job in self._first:
            self.remove(held.claim)
        if job in self._first:
            self._others.setdefault(job, []).append(held)
        else:
            self._first[job] = held

    def find(self, claim: Claim) -> Held | None:
        for held in self.of_job(claim.job):
            if held.claim is claim or held.claim.identity == claim.identity:
                return held
        return None

    def of_job(self, job: int) -> Sequence[Held]:
        first = self._first.get(job)
        return () if first is None else (first, *self._others.get(job, ()))

    def remove(self, claim: Claim) -> Held | None:
        if not self._others:
            held = self._first.get(claim.job)
            if held is not None and held.claim is claim:
                return self._first.pop(claim.job)
        held = self.find(claim)
        if held is not None:
            self._take_out(claim.job, held)
        return held

    def _take_out(self, job: int, held: Held) -> None:
        left = [other for other in self.of_job(job) if other is not held]
        del self._first[job]
        self._others.pop(job, None)
        if left:
            self._first[job] = left[0]
        if left[1:]:
            self._others[job] = left[1:]


def is_running(held: Held) -> bool:
    return held.task is not None and not held.passed_on


def expire(held: Held) -> None:
    held.expired = True
    if held.task is not None:
        held.task.cancel()


async def come_to_rest(task: asyncio.Task[None]) -> None:
    """A run was asked to stop, perhaps when it was over already: what is left of that must not hit the next one."""
    while task.cancelling():
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            pass
        task.uncancel()
