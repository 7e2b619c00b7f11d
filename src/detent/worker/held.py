"""A run in hand, and how the task that runs it is interrupted.

A task runs one run after another, so being cancelled says nothing about which of them was meant: the run itself knows,
and what is left of a cancellation ends with it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import datetime

from detent.model import Claim, Definition


class Held:
    """A run in hand: waiting for a slot, running, or done and being settled."""

    __slots__ = ("begun", "claim", "definition", "expired", "followed", "passed_on", "started", "stop", "task")

    def __init__(self, claim: Claim, started: datetime) -> None:
        self.claim = claim
        self.started = started
        self.definition: Definition | None = None
        self.task: asyncio.Task[None] | None = None
        self.begun = False
        self.stop = False
        self.expired = False
        self.passed_on = False
        self.followed = False


class InHand:
    """The runs that a worker holds, by their job: nearly always one. By their whole identity, which has a time in it,
    each was hashed three times, and that took a twentieth of what a run cost."""

    def __init__(self) -> None:
        self._by_job: dict[int, tuple[Held, ...]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Held]:
        for some in self._by_job.values():
            yield from some

    def add(self, held: Held) -> None:
        """One that is here already under the same claim makes way."""
        job = held.claim.job
        if job in self._by_job:
            self.remove(held.claim)
        self._by_job[job] = (*self._by_job.get(job, ()), held)
        self._count += 1

    def find(self, claim: Claim) -> Held | None:
        for held in self._by_job.get(claim.job, ()):
            if held.claim is claim or held.claim.identity == claim.identity:
                return held
        return None

    def of_job(self, job: int) -> tuple[Held, ...]:
        return self._by_job.get(job, ())

    def remove(self, claim: Claim) -> Held | None:
        held = self.find(claim)
        if held is not None:
            others = tuple(other for other in self._by_job[claim.job] if other is not held)
            if others:
                self._by_job[claim.job] = others
            else:
                del self._by_job[claim.job]
            self._count -= 1
        return held


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
